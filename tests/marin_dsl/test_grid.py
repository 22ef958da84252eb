"""Sweeps over named axes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl import Failed, Ok, attempt, evaluate, grid, op, provenance
from marin_dsl.grid import Cell, contents


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


@op(version="1")
def train(rate: float, seed: int = 0) -> float:
    if rate > 1:
        raise ValueError("diverged")
    return rate + seed


@op(version="1")
def summarise(runs: list[Cell]) -> list:
    return [
        (dict(run.coordinates), run.value if isinstance(run.value, float) else type(run.value).__name__) for run in runs
    ]


@op(version="1")
def source(name: str) -> str:
    return name


@op(version="1")
def use(text: Any) -> Any:
    return text


def test_points_are_the_product_with_the_last_axis_fastest():
    points = grid(rate=[0.1, 0.2], seed=range(3))
    assert len(points) == 6
    assert [(point["rate"], point["seed"]) for point in points.coordinates][:4] == [
        (0.1, 0),
        (0.1, 1),
        (0.1, 2),
        (0.2, 0),
    ]
    assert repr(points) == "<grid of 6 points over rate, seed>"


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(), min_size=1, max_size=4), min_size=1, max_size=3))
def test_equal_coordinates_collapse(axes):
    made = grid(**axes)(lambda **at: use(list(at.values())))
    assert len(made) == math.prod(len(set(values)) for values in axes.values())
    assert len(made + made) == len(made)


def test_coordinates_that_differ_in_type_do_not_collapse():
    assert len(grid(n=[1, 1.0, True])(lambda n: use(n))) == 3
    assert len(grid(n=[float("nan"), float("nan")])(lambda n: use(n))) == 1


def test_parts_with_other_ranges_add_up_whatever_the_order_of_axes():
    points = grid(a=[1], b=[2, 3]) + grid(b=[5], a=[4])
    assert [dict(point) for point in points.coordinates] == [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 4, "b": 5}]
    filled = grid(a=[1])(use_a) + grid(a=[2])(use_a)
    assert [cell.coordinates["a"] for cell in filled] == [1, 2]
    for first, second in ((grid(a=[1]), grid(b=[1])), (grid(a=[1])(use_a), grid(b=[1])(lambda b: use(b)))):
        with pytest.raises(ValueError, match="only grids over the same axes add up: a here, b there"):
            first + second


def use_a(a):
    return use(a)


def test_two_different_cells_at_one_place_are_refused():
    with pytest.raises(ValueError, match=r"two different cells at a=1: .* and .*; tell them apart by another axis"):
        grid(a=[1])(use_a) + grid(a=[1])(lambda a: use(a + 1))


def test_where_and_map_keep_coordinates():
    runs = grid(rate=[0.1, 0.2], seed=[0, 1])(lambda rate, seed: train(rate, seed))
    chosen = runs.where(rate=0.2)
    assert [dict(cell.coordinates) for cell in chosen] == [{"rate": 0.2, "seed": 0}, {"rate": 0.2, "seed": 1}]
    assert [cell.value for cell in chosen.map(use)] == [use(train(0.2, 0)), use(train(0.2, 1))]
    assert len(runs.where(rate=3)) == 0
    with pytest.raises(KeyError, match="the grid has no axis `lr`; it has rate, seed"):
        runs.where(lr=1)


@pytest.mark.parametrize(
    ("axes", "error", "text"),
    [
        ({}, ValueError, r"needs at least one axis, such as grid\(seed=range\(3\)\)"),
        ({"a": []}, ValueError, "the axis `a` is empty, so the grid would have no cells"),
        ({"a": 5}, TypeError, r"the axis `a` is 5; an axis needs several values, such as \[5\]"),
        ({"a": "abc"}, TypeError, r"the axis `a` is 'abc'; an axis needs several values, such as \['abc'\]"),
        ({"a": source("x")}, TypeError, "the axis `a` is <Expression"),
    ],
)
def test_an_axis_that_is_none_is_refused(axes, error, text):
    with pytest.raises(error, match=text):
        grid(**axes)


def test_an_operator_receives_cells_and_failing_ones_are_seen_through_attempt(tmp_path):
    runs = grid(rate=[0.1, 5.0], seed=[0, 1])(lambda rate, seed: train(rate, seed))
    outcomes = evaluate(runs, store=tmp_path, debug=True)
    assert [type(outcome) for outcome in outcomes] == [Ok, Ok, Failed, Failed]
    shown = evaluate(summarise(runs.map(attempt)), store=tmp_path, debug=True).value
    assert shown == [
        ({"rate": 0.1, "seed": 0}, "Ok"), ({"rate": 0.1, "seed": 1}, "Ok"),
        ({"rate": 5.0, "seed": 0}, "Failed"), ({"rate": 5.0, "seed": 1}, "Failed"),
    ]  # fmt: skip
    assert evaluate(summarise(runs.where(rate=0.1)), store=tmp_path, debug=True).value == [
        ({"rate": 0.1, "seed": 0}, 0.1),
        ({"rate": 0.1, "seed": 1}, 1.1),
    ]


def test_an_axis_may_go_over_expressions(tmp_path):
    names = [source("a"), source("b"), source("a")]
    runs = grid(text=names)(lambda text: use(text))
    assert len(runs) == 2
    assert runs.where(text=source("b")).cells[0].value == use(source("b"))
    shown = evaluate(use(runs), store=tmp_path, debug=True).value
    assert [(dict(cell.coordinates), cell.value) for cell in shown] == [({"text": "a"}, "a"), ({"text": "b"}, "b")]


def test_the_expressions_of_a_nest_of_grids_are_found():
    inner = grid(a=[1, 2])(use_a)
    assert contents(grid(b=[1])(lambda b: inner)) == [use(1), use(2)]
    with pytest.raises(TypeError, match="is no expression; call an operator"):
        contents([use(1)])
