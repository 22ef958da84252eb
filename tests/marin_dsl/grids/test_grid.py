"""Sweeps over named axes."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl import Failed, Ok, attempt, evaluate, grid, op, provenance
from marin_dsl.grids import Cell, contents
from marin_dsl.pages import Missing, Table


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


def test_zipped_axes_go_together_alone_and_as_a_factor_of_a_product():
    together = grid.zip(rate=[0.1, 0.2], warmup=[10, 20])
    assert together.axes == ("rate", "warmup")
    assert together.coordinates == ({"rate": 0.1, "warmup": 10}, {"rate": 0.2, "warmup": 20})
    swept = grid(together, seed=range(2))
    assert [tuple(point.values()) for point in swept.coordinates] == [
        (0.1, 10, 0), (0.1, 10, 1), (0.2, 20, 0), (0.2, 20, 1)
    ]  # fmt: skip
    assert len(grid(grid(a=[1, 2]), grid.zip(b=[1, 2], c=[3, 4]))) == 4
    assert [tuple(point.values()) for point in grid.zip(n=iter([1, 2]), m=iter([3, 4])).coordinates] == [(1, 3), (2, 4)]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: grid.zip(), ValueError, r"grid\.zip\(\.\.\.\) needs axes, such as grid\.zip\(rate="),
        (lambda: grid.zip(a=[1], b=[1, 2]), ValueError, "need the same number of values, and `a` has 1, `b` has 2"),
        (lambda: grid.zip(a=[], b=[]), ValueError, "the axis `a` is empty"),
        (lambda: grid.zip(a=1, b=[1]), TypeError, "the axis `a` is 1; an axis needs several values"),
        (lambda: grid(grid(a=[1]), a=[2]), ValueError, "the axis `a` is named twice; rename one"),
        (lambda: grid([1, 2]), TypeError, r"takes axes by name, grid\(seed=range\(3\)\), and got \[1, 2\]"),
    ],
)
def test_axes_that_do_not_fit_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_an_operator_may_name_grid_and_grid_can_be_pickled():
    @op
    def sweeps(n: int) -> int:
        return len(grid(n=range(n)))

    assert sweeps(2) == sweeps(2)
    assert pickle.loads(pickle.dumps(grid)) is grid
    assert "call it with axes" in repr(grid)


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


def test_where_takes_a_predicate_of_the_axes_that_it_names():
    points = grid(rate=[0.1, 0.2], seed=range(3))
    runs = points(lambda rate, seed: train(rate, seed))
    assert len(runs.where(lambda rate: rate < 0.2)) == 3
    assert len(runs.where(lambda rate, seed: rate < 0.2 and seed > 0)) == 2
    assert len(runs.where(lambda seed: seed > 0, rate=0.2)) == 2
    assert len(runs.where(lambda seed, least=1: seed >= least)) == 4
    assert len(runs.where(lambda **at: at == {"rate": 0.1, "seed": 2})) == 1
    assert points.where(lambda seed: seed == 1)(train).cells == runs.where(seed=1).cells
    with pytest.raises(KeyError, match="the grid has no axis `lr`; it has rate, seed"):
        runs.where(lambda lr: lr < 1)
    with pytest.raises(TypeError, match=r"where\(\.\.\.\) takes a predicate or axes by name, and got 0.1"):
        runs.where(0.1)


def test_where_finds_coordinates_that_do_not_compare_to_one_truth():
    array = np.arange(3)
    runs = grid(at=[array, float("nan"), 1.0])(use_at)
    assert [len(runs.where(at=wanted)) for wanted in (np.arange(3), float("nan"), 1, np.arange(4))] == [1, 1, 1, 0]


def use_at(at):
    return use(at)


def test_two_different_plain_contents_at_one_place_are_refused():
    assert len(grid(n=[1, 1])(lambda n: [n])) == 1
    contents_in_turn = iter(["one", "other"])
    with pytest.raises(ValueError, match="two different cells at n=1: 'one' and 'other'"):
        grid(n=[1, 1])(lambda n: next(contents_in_turn))
    assert len(grid(n=[1, 1])(lambda n: math)) == 1, "what has no encoding is compared as Python does"


def value(root: Any, folder: Any) -> Any:
    return evaluate(root, store=folder, debug=True).value


def test_a_mean_over_an_axis_keeps_the_others(tmp_path):
    runs = grid(rate=[0.1, 0.2], seed=range(3))(lambda rate, seed: train(rate, seed))
    means = runs.mean("seed")
    assert means.axes == ("rate",)
    assert [outcome.value for outcome in evaluate(means, store=tmp_path, debug=True)] == pytest.approx([1.1, 1.2])
    assert value(runs.mean(), tmp_path) == pytest.approx(1.15)
    assert runs.mean() == runs.mean("rate", "seed"), "an expression, where no axis remains"
    with pytest.raises(KeyError, match="the grid has no axis `lr`; it has rate, seed"):
        runs.mean("lr")
    with pytest.raises(ValueError, match="the grid over rate, seed has no cells"):
        runs.where(rate=3).mean("seed")


def test_a_mean_over_a_failed_cell_is_skipped_and_names_it(tmp_path):
    runs = grid(rate=[0.1, 5.0], seed=[0, 1])(lambda rate, seed: train(rate, seed))
    good, bad = evaluate(runs.mean("seed"), store=tmp_path, debug=True)
    assert good.value == pytest.approx(0.6)
    assert bad.summary.count("ValueError: diverged") == 2
    attempted = evaluate(runs.map(attempt).mean("seed"), store=tmp_path, debug=True)[1]
    assert attempted.message == (
        "mean of a cell that has no value (ValueError: diverged); leave it out with .where(...)"
    )


def test_a_mean_of_what_is_no_number_says_what_to_do(tmp_path):
    found = evaluate(grid(a=[1])(lambda a: use({"loss": a})).mean(), store=tmp_path, debug=True)
    assert found.message == "mean takes numbers, and got {'loss': 1} (a dict); choose one with .map(...)"
    found = evaluate(grid(a=["1"])(use_a).mean(), store=tmp_path, debug=True)
    assert "mean takes numbers, and got '1' (a str)" in found.message


def test_a_mean_is_exact_and_survives_the_ends_of_the_floats(tmp_path):
    for numbers, expected in (([1e308, 1.5e308], 1.25e308), ([math.inf, 1.0], math.inf), ([1e16, 1.0, -1e16], 1 / 3)):
        assert value(grid(n=numbers)(lambda n: use(n)).mean(), tmp_path) == pytest.approx(expected)
    assert math.isnan(value(grid(n=[math.inf, -math.inf])(lambda n: use(n)).mean(), tmp_path))


def test_the_smallest_is_chosen_on_an_axis_and_its_coordinate_can_be_used_lazily(tmp_path):
    runs = grid(rate=[0.2, 0.1], seed=range(2))(lambda rate, seed: train(rate, seed))
    best = runs.mean("seed").argmin("rate")
    found = value(best, tmp_path)
    assert (dict(found.coordinates), found["rate"], found.value, found.failed) == (
        {"rate": 0.1},
        0.1,
        (0.1 + 1.1) / 2,
        (),
    )
    assert value(train(best["rate"], 7), tmp_path) == pytest.approx(7.1)
    assert [outcome.value["rate"] for outcome in evaluate(runs.argmax("rate"), store=tmp_path, debug=True)] == [0.2] * 2
    assert value(runs.argmax(), tmp_path).coordinates == {"rate": 0.2, "seed": 1}


def test_the_first_of_equal_numbers_is_chosen(tmp_path):
    runs = grid(n=[3, 1, 2])(lambda n: use(0.5))
    assert value(runs.argmin("n"), tmp_path)["n"] == value(runs.argmax("n"), tmp_path)["n"] == 3


def test_what_failed_or_is_nan_does_not_compete_and_is_named(tmp_path):
    runs = grid(rate=[5.0, float("nan"), 0.2])(lambda rate: train(rate))
    found = value(runs.argmin("rate"), tmp_path)
    assert found["rate"] == 0.2
    assert [cell.value for cell in found.failed] == ["ValueError: diverged", "its value is not a number (NaN)"]
    assert found.failed[0].coordinates == {"rate": 5.0}
    none = evaluate(runs.where(rate=5.0).argmin(), store=tmp_path, debug=True)
    assert none.message == "none of 1 cells has a number; the first: ValueError: diverged"


def test_cells_are_compared_by_a_function_or_by_a_key_of_their_content(tmp_path):
    runs = grid(n=[1, 2, 3])(lambda n: use({"loss": (n - 2) ** 2}))
    by_key, by_function = runs.argmin("n", by="loss"), runs.argmin("n", by=lambda found: found["loss"])
    assert by_key == by_function
    assert value(by_key, tmp_path)["n"] == 2
    found = evaluate(runs.argmax("n"), store=tmp_path, debug=True)
    assert "argmax takes numbers, and got {'loss': 1} (a dict)" in found.message


def test_a_table_has_every_cell_and_the_reasons_of_those_that_failed(tmp_path):
    runs = grid(rate=[0.1, 5.0], seed=[0, 1])(lambda rate, seed: train(rate, seed))
    table = value(runs.table("Losses", caption="bits", digits=2, best="lowest"), tmp_path)
    assert isinstance(table, Table)
    assert (table.heading, table.caption) == ("Losses", "bits")
    assert [(c.name, c.digits, c.best) for c in table.columns][1:] == [("seed", 3, None), ("value", 2, "lowest")]
    reason = Missing("ValueError: diverged")
    assert table.rows == ((0.1, 0, 0.1), (0.1, 1, 1.1), (5.0, 0, reason), (5.0, 1, reason))
    skipped = value(runs.map(use).table(), tmp_path).rows[2][2]
    assert skipped == Missing("train(rate=5.0, seed=0) failed (ValueError: diverged)", "skipped")
    attempted = value(runs.map(attempt).table(), tmp_path)
    assert attempted.rows == table.rows, "cells that were attempted already are shown in the same way"


def test_a_coordinate_that_failed_takes_nothing_else_with_it(tmp_path):
    runs = grid(of=[train(0.5), train(5.0)], seed=[0])(lambda of, seed: use(of))
    table = value(runs.table(), tmp_path)
    reason = Missing("train(rate=5.0, seed=0) failed (ValueError: diverged)", "skipped")
    assert table.rows == ((0.5, 0, 0.5), (Missing("ValueError: diverged"), 0, reason))
    found = value(runs.argmin(), tmp_path)
    assert found.coordinates == {"of": 0.5, "seed": 0}
    assert [(cell.coordinates["of"].message, cell.value) for cell in found.failed] == [("diverged", reason.reason)]


def test_a_table_of_dicts_has_a_column_for_each_key(tmp_path):
    def build(n):
        return {"loss": train(float(n)), "text": use("t")} if n else use({"other": np.float32(1.5)})

    table = value(grid(n=[0, 1, 2])(build).table(), tmp_path)
    assert [column.name for column in table.columns] == ["n", "other", "loss", "text"]
    assert table.rows == ((0, 1.5, None, None), (1, None, 1.0, "t"), (2, None, Missing("ValueError: diverged"), "t"))


def test_a_table_shows_any_content_in_short(tmp_path):
    best = grid(n=[1, 2])(lambda n: use(n)).argmin("n")
    cells = grid(at=["best", "list", "array"])(
        lambda at: {"best": best, "list": use([1, 2]), "array": use(np.zeros((2, 3)))}[at]
    )
    shown = [row[1] for row in value(cells.table(), tmp_path).rows]
    assert shown == ["n=1 (1)", "[1, 2]", "<array float64 2×3>"]
    partial = grid(rate=[0.1, 5.0])(lambda rate: train(rate)).argmin()
    table = value(grid(a=[0])(lambda a: partial).table(), tmp_path)
    assert table.rows[0][1] == "rate=0.1 (0.1, 1 without a number)"


def test_nothing_is_evaluated_by_the_operations_of_a_grid_and_calls_name_the_users_line(monkeypatch):
    calls = []
    monkeypatch.setattr(train, "function", calls.append)
    runs = grid(rate=[0.1], seed=[0])(lambda rate, seed: train(rate, seed))
    made = [runs.mean(), runs.argmin(), runs.argmax(), runs.table(), runs.mean("seed").cells[0].value]
    assert not calls
    assert all(expression.origin[0] == __file__ for expression in made)
    assert [expression.operator.name for expression in made[:4]] == [
        "marin.mean", "marin.argmin", "marin.argmax", "marin.table"
    ]  # fmt: skip
    assert {expression.operator.version for expression in made} == {"1"}


def test_a_grid_of_grids_is_one_grid_over_the_axes_of_both():
    nested = grid(rate=[0.1, 0.2])(lambda rate: grid(seed=range(2))(lambda seed: train(rate, seed)))
    assert nested.axes == ("rate", "seed")
    assert nested.cells == grid(rate=[0.1, 0.2], seed=range(2))(train).cells
    mapped = grid(rate=[0.1])(lambda rate: rate).map(lambda rate: grid(seed=[0])(lambda seed: train(rate, seed)))
    assert mapped.cells == nested.where(rate=0.1, seed=0).cells


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (lambda a: grid(a=[1])(use_a), "an inner grid has an axis `a`, and the outer one has it too; rename one"),
        (
            lambda a: grid(b=[1])(lambda b: use(b)) if a == 1 else use(a),
            "the cell at a=2 is no grid, although others are",
        ),
        (
            lambda a: grid(**{"bc"[a - 1]: [1]})(lambda **at: use(1)),
            "the inner grid at a=2 is over c, and others are over b",
        ),
    ],
)
def test_grids_that_do_not_fit_into_a_grid_are_refused(inner, text):
    with pytest.raises(ValueError, match=text):
        grid(a=[1, 2])(inner)


def test_the_expressions_of_a_nest_of_grids_are_found():
    inner = grid(a=[1, 2])(use_a)
    assert contents(grid(b=[1])(lambda b: inner)) == [use(1), use(2)]
    with pytest.raises(TypeError, match="is no expression; call an operator"):
        contents([use(1)])
