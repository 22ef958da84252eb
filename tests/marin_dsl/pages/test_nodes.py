"""Nodes in words: what became of each, where to read more, who is to blame."""

import attrs

from marin_dsl.pages import ErrorEvidence, Evidence, NodeEvidence, nodes

from . import example


def node(key: str, **facts) -> NodeEvidence:
    return NodeEvidence(key, "m.f", key, **{"status": "ok", **facts})


def viewed(*given: NodeEvidence) -> dict[str, nodes.NodeView]:
    return nodes.views(Evidence("t", "c", given, given[0].key))


def test_a_result_from_the_store_looks_different_from_one_that_was_computed():
    assert nodes.look(node("a")) == "ok"
    assert nodes.look(node("a", served=True)) == "served"
    assert nodes.look(node("a", status="failed", served=True)) == "failed"


def test_the_second_line_of_a_cell_says_status_and_duration():
    lines = {
        "12 s": node("a", seconds=12.0),
        "12 s, stored": node("a", seconds=12.0, served=True),
        "ran": node("a"),
        "stored": node("a", served=True),
        "failed, 3.0 s": node("a", status="failed", seconds=3.0),
        "skipped": node("a", status="skipped"),
        "inline": node("a", status="inline"),
    }
    assert [viewed(one)["a"].under for one in lines.values()] == list(lines)


def test_a_tooltip_tells_reason_error_and_arguments():
    error = ErrorEvidence("raised", "ValueError", "no")
    one = node("a", status="failed", seconds=1.0, reason="never computed", error=error, arguments=(("lr", "0.1"),))
    assert viewed(one)["a"].tooltip.split("\n") == [
        "a",
        "m.f",
        "failed, 1.0 s",
        "never computed",
        "ValueError: no",
        "lr = 0.1",
    ]


def test_blame_is_readable_from_both_sides():
    views = viewed(node("a", status="failed"), node("b", status="skipped", blamed=("a",), depends_on=("a",)))
    assert [one.title for one in views["a"].blames] == ["b"]
    assert [one.title for one in views["b"].blamed] == ["a"]


def test_blame_on_a_node_that_is_not_on_the_page_is_left_out():
    assert viewed(node("b", status="skipped", blamed=("elsewhere",)))["b"].blamed == ()


def test_views_come_in_the_order_of_computation():
    record = attrs.evolve(example.evidence(), nodes=tuple(reversed(example.nodes())))
    place = {key: i for i, key in enumerate(nodes.views(record))}
    assert all(place[read] < place[one.key] for one in record.nodes for read in one.depends_on)


def test_anchors_are_short_and_distinct_even_if_keys_begin_alike():
    alike = (node("sha256:" + "a" * 64), node("sha256:" + "a" * 63 + "b"), node("sha256:" + "c" * 64))
    found = nodes.anchors(alike)
    assert len(set(found.values())) == 3
    assert found[alike[2].key] == "node-cccccccccccc"


def test_an_anchor_holds_nothing_that_a_link_could_trip_over():
    assert nodes.anchors((node('sha256:" <x>&y'),)) == {'sha256:" <x>&y': "node--x-y"}


def test_counts_leave_out_what_did_not_happen():
    found = {one.word: one.count for one in nodes.counts(example.nodes())}
    assert found == {"ran": 6, "stored": 31, "failed": 2, "skipped": 1, "inline": 10}
    assert nodes.counts(()) == ()
