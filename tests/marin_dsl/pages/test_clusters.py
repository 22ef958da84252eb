"""Alike nodes share a box; inline nodes with one argument become part of an edge; nothing else disappears."""

from graphlib import CycleError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl.pages import NodeEvidence
from marin_dsl.pages.clusters import Link, cluster, short_name, topological

from . import example


def node(key: str, *reads: str, operator: str = "", status: str = "ok", **arguments: str) -> NodeEvidence:
    return NodeEvidence(
        key, operator or f"m.{key}", key, status=status, depends_on=reads, arguments=tuple(arguments.items())
    )


def fan(count: int, *, operator: str = "m.train", **facts) -> list[NodeEvidence]:
    return [node(f"t{i}", "data", operator=operator, lr=str(i), fixed="x", **facts) for i in range(count)]


def labels(nodes, root="end") -> dict[str, str]:
    return {cell.node.key: cell.label for box in cluster(tuple(nodes), root).boxes for cell in box.cells}


def test_four_alike_nodes_share_a_box_and_three_do_not():
    assert [len(box.cells) for box in cluster((node("data"), *fan(4)), "t0").boxes] == [1, 4]
    assert [len(box.cells) for box in cluster((node("data"), *fan(3)), "t0").boxes] == [1, 1, 1, 1]


def test_nodes_of_one_operator_at_different_depths_do_not_share_a_box():
    chain = [node(f"n{i}", *([f"n{i - 1}"] if i else []), operator="m.step") for i in range(5)]
    assert all(box.single for box in cluster(tuple(chain), "n4").boxes)


def test_cells_are_told_apart_by_the_arguments_that_vary():
    assert labels([node("data"), *fan(4)])["t2"] == "2"


def test_a_cell_without_short_arguments_takes_the_label_of_what_only_it_reads():
    evaluations = [
        node(f"e{i}", f"t{i}", "data", operator="m.evaluate", model=f"train(data, lr={i}, fixed=x)") for i in range(4)
    ]
    assert labels([node("data"), *fan(4), *evaluations])["e3"] == "3"


def test_cells_that_would_look_the_same_show_their_titles():
    twins = [node(f"t{i}", "data", operator="m.train", lr=str(i % 2)) for i in range(4)]
    assert labels([node("data"), *twins])["t3"] == "t3"


def test_an_inline_node_with_one_argument_is_folded_into_its_edge():
    found = cluster((node("a"), node("p", "a", status="inline"), node("b", "p")), "b")
    assert [box.cells[0].node.key for box in found.boxes] == ["a", "b"]
    assert found.links == (Link(0, 1, 1, pairwise=False, broken=False),)
    assert found.folded == 1


def test_a_chain_of_inline_nodes_is_folded_to_where_it_starts():
    nodes = (node("a"), node("p", "a", status="inline"), node("q", "p", status="inline"), node("b", "q"))
    assert len(cluster(nodes, "b").links) == 1


def test_inline_nodes_that_join_two_and_an_inline_root_keep_their_box():
    nodes = (node("a"), node("b"), node("sum", "a", "b", status="inline"), node("root", "sum", status="inline"))
    assert {box.cells[0].node.key for box in cluster(nodes, "root").boxes} == {"a", "b", "sum", "root"}


def test_edges_between_boxes_are_counted_and_known_to_be_pairwise():
    evaluations = [node(f"e{i}", f"t{i}", "data", operator="m.evaluate") for i in range(4)]
    links = {(link.source, link.target): link for link in cluster((node("data"), *fan(4), *evaluations), "e0").links}
    assert links[1, 2] == Link(1, 2, 4, pairwise=True, broken=False)
    assert links[0, 1] == Link(0, 1, 4, pairwise=False, broken=False)


def test_an_edge_is_broken_when_all_it_carries_failed():
    failed = fan(4, status="failed")
    assert cluster((node("data"), *failed, node("end", *[n.key for n in failed])), "end").links[1].broken
    mixed = (*fan(4)[:3], *failed[3:])
    assert not cluster((node("data"), *mixed, node("end", *[n.key for n in mixed])), "end").links[1].broken


def test_a_source_lies_just_above_its_first_reader():
    nodes = (node("a"), node("b", "a"), node("c", "b", "late"), node("late"))
    assert {box.cells[0].node.key: box.depth for box in cluster(nodes, "c").boxes} == {
        "a": 0,
        "b": 1,
        "late": 1,
        "c": 2,
    }


def test_keys_that_are_not_on_the_page_are_left_out():
    assert cluster((node("a", "elsewhere"),), "a").links == ()


def test_no_nodes_make_no_boxes():
    assert cluster((), "x").boxes == ()


def test_a_circle_is_refused():
    with pytest.raises(CycleError):
        cluster((node("a", "b"), node("b", "a")), "a")


def test_an_operator_is_called_by_its_last_name():
    assert (short_name("a.b.c"), short_name("c"), short_name("a.")) == ("c", "c", "a.")


def test_the_example_loses_only_its_inline_nodes():
    found = cluster(example.nodes(), example.key("page"))
    assert found.folded == 10
    assert sum(len(box.cells) for box in found.boxes) == 40


@st.composite
def graphs(draw) -> tuple[NodeEvidence, ...]:
    """Random graphs of a few operators and statuses, in random order."""
    count = draw(st.integers(1, 30))
    nodes = []
    for i in range(count):
        reads = draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        status = draw(st.sampled_from(["ok", "ok", "ok", "failed", "skipped", "inline"]))
        operator = draw(st.sampled_from(["m.a", "m.b", "m.c"]))
        nodes.append(node(f"k{i}", *(f"k{j}" for j in reads), operator=operator, status=status, x=str(i)))
    return tuple(draw(st.permutations(nodes)))


@given(graphs())
def test_every_node_is_in_one_box_or_folded(nodes):
    found = cluster(nodes, "k0")
    keys = [cell.node.key for box in found.boxes for cell in box.cells]
    assert len(keys) == len(set(keys)) == len(nodes) - found.folded
    assert {n.key for n in nodes if n.status != "inline"} <= set(keys)


@given(graphs())
def test_links_lead_from_shallow_boxes_to_deeper_ones(nodes):
    found = cluster(nodes, "k0")
    assert all(found.boxes[link.source].depth < found.boxes[link.target].depth for link in found.links)


@given(graphs())
def test_labels_within_a_box_are_distinct(nodes):
    for box in cluster(nodes, "k0").boxes:
        assert len({cell.label for cell in box.cells}) == len(box.cells)


@given(graphs())
def test_nodes_come_after_those_they_depend_on(nodes):
    place = {n.key: i for i, n in enumerate(topological(nodes))}
    assert all(place[read] < place[n.key] for n in nodes for read in n.depends_on)
