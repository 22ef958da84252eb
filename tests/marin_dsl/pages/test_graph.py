"""The drawing: nothing overlaps, everything flows down, equal input gives equal output."""

import os
import re
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_dsl.pages import NodeEvidence, graph

from . import example
from .test_clusters import fan, graphs, node


def overlap(a: graph.Place, b: graph.Place) -> bool:
    across = a.x < b.x + b.width - 0.2 and b.x < a.x + a.width - 0.2
    return across and a.y < b.y + b.height and b.y < a.y + a.height


def numbers(path: str) -> list[float]:
    return [float(text) for text in re.findall(r"-?\d+\.?\d*", path)]


@pytest.fixture(scope="module")
def drawing() -> graph.Drawing:
    return graph.layout(example.nodes(), example.key("page"))


def test_the_example_fits_the_width_of_the_page(drawing):
    assert drawing.width <= 1000


def test_the_page_itself_lies_at_the_bottom(drawing):
    lowest = max(drawing.boxes, key=lambda box: box.place.y)
    assert lowest.cluster.cells[0].node.title == "page"


def test_equal_nodes_are_drawn_equally(drawing):
    assert graph.layout(example.nodes(), example.key("page")) == drawing


def test_a_wide_row_of_different_operators_is_wrapped():
    nodes = (node("data"), *(node(f"step-number-{i}", "data") for i in range(20)))
    drawing = graph.layout(nodes, "data")
    assert drawing.width <= graph.WIDTH + 2 * graph.MARGIN + 20 * graph.BEND
    assert len({box.place.y for box in drawing.boxes}) > 3


def test_a_hundred_alike_nodes_stay_in_one_box_of_bounded_width():
    drawing = graph.layout((node("data"), *fan(100)), "data")
    assert len(drawing.boxes) == 2
    assert drawing.width <= graph.WIDTH


def test_one_node_and_none_can_be_drawn():
    assert len(graph.layout((node("a"),), "a").boxes) == 1
    assert graph.layout((), "a").boxes == ()


def test_a_long_chain_is_drawn_without_recursion():
    chain = tuple(node(f"n{i}", *([f"n{i - 1}"] if i else [])) for i in range(1500))
    drawing = graph.layout(chain, "n1499")
    assert [box.place.y for box in drawing.boxes] == sorted(box.place.y for box in drawing.boxes)


@given(graphs())
@settings(deadline=None)
def test_no_boxes_overlap_and_cells_stay_in_theirs(nodes):
    drawing = graph.layout(nodes, "k0")
    assert not any(overlap(a.place, b.place) for a, b in combinations(drawing.boxes, 2))
    for box in drawing.boxes:
        assert not any(overlap(a, b) for a, b in combinations(box.cells, 2))
        for cell in box.cells:
            assert box.place.x <= cell.x
            assert cell.x + cell.width <= box.place.x + box.place.width + 0.1
            assert cell.y + cell.height <= box.place.y + box.place.height


@given(graphs())
@settings(deadline=None)
def test_everything_lies_inside_the_drawing(nodes):
    drawing = graph.layout(nodes, "k0")
    for box in drawing.boxes:
        assert box.place.x >= 0
        assert box.place.x + box.place.width <= drawing.width
        assert box.place.y + box.place.height <= drawing.height


@given(graphs())
@settings(deadline=None)
def test_routes_leave_the_bottom_of_one_box_and_reach_the_top_of_another(nodes):
    drawing = graph.layout(nodes, "k0")
    for route in drawing.routes:
        source, target = (drawing.boxes[i].place for i in (route.link.source, route.link.target))
        x0, y0, *_, x1, y1 = numbers(route.path)
        assert source.x <= x0 <= source.x + source.width
        assert target.x <= x1 <= target.x + target.width
        assert y0 == pytest.approx(source.y + source.height, abs=0.1)
        assert y1 == pytest.approx(target.y - 5, abs=0.1)
        assert y0 < y1


def test_the_drawing_does_not_depend_on_the_hash_seed(drawing):
    code = (
        "from tests.marin_dsl.pages import example; from marin_dsl.pages import graph; "
        "print(graph.layout(example.nodes(), example.key('page')))"
    )
    root = Path(__file__).parents[3]
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, check=True)
        assert run.stdout.decode().strip() == str(drawing)


def test_sweeps_untangle_what_can_be_untangled():
    tops = [node(f"a{i}") for i in range(3)]
    bottoms = [node(f"b{i}", f"a{2 - i}") for i in range(3)]
    drawing = graph.layout((*tops, *bottoms), "b0")
    ends = sorted((numbers(route.path)[0], numbers(route.path)[-2]) for route in drawing.routes)
    assert [end for _, end in ends] == sorted(end for _, end in ends)


def test_crossings_are_counted_as_inversions():
    assert graph.crossings([0, 1], [2, 3], {0: [3], 1: [2]}) == 1
    assert graph.crossings([0, 1], [2, 3], {0: [2], 1: [3]}) == 0
    assert graph.crossings([0, 1], [2, 3], {0: [2, 3], 1: [2, 3]}) == 1


items = st.lists(
    st.tuples(st.floats(-500, 500), st.floats(1, 100), st.sampled_from([1.0, 3.0])), min_size=1, max_size=8
)


@given(items, st.floats(0, 500))
def test_spread_keeps_order_and_distance_and_stays_inside(rows, slack):
    wanted, widths, weights = map(list, zip(*rows, strict=True))
    room = sum(widths) + slack
    centres = graph.spread(wanted, widths, weights, room)
    for (a, wa), (b, wb) in pairwise(zip(centres, widths, strict=True)):
        assert b - a >= (wa + wb) / 2 - 1e-6
    assert centres[0] - widths[0] / 2 >= -room / 2 - 1e-6
    assert centres[-1] + widths[-1] / 2 <= room / 2 + 1e-6


@given(items, st.integers(0, 10_000))
def test_no_other_placement_is_closer_to_what_was_wanted(rows, seed):
    wanted, widths, weights = (np.array(column) for column in zip(*rows, strict=True))
    room = float(widths.sum()) + 300
    best = np.array(graph.spread(list(wanted), list(widths), list(weights), room))
    random = np.random.default_rng(seed)
    offsets = best - np.concatenate([[0], np.cumsum((widths[1:] + widths[:-1]) / 2)])
    other = np.maximum.accumulate(offsets + random.normal(0, 5, len(best)))
    low, high = (widths[0] - room) / 2, offsets[-1] + (room - widths[-1]) / 2 - best[-1]
    moved = np.clip(other, low, high) + (best - offsets)
    cost = lambda centres: float((weights * (centres - wanted) ** 2).sum())  # noqa: E731
    assert cost(best) <= cost(moved) + 1e-6 * (1 + cost(moved))


def test_titles_decide_the_width_of_a_box_within_bounds():
    short, long = (graph.layout((NodeEvidence("k", "m.f", title, status="ok"),), "k") for title in ("a", "x" * 80))
    assert short.boxes[0].place.width == 128
    assert long.boxes[0].place.width == 196
