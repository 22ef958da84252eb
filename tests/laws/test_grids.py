"""Laws of grids: what may be exchanged, merged or written in another order without changing a cell."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl import Ok, evaluate, grid, op, provenance
from marin_dsl.expression import walk
from marin_dsl.grids import Grid


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


@op(version="1")
def measure(at: dict) -> float:
    if 13 in at.values():
        raise ValueError("unlucky")
    return float(sum(at.values()))


@op(version="1")
def double(value: float) -> float:
    return 2 * value


@op(version="1")
def increase(value: float) -> float:
    return value + 1


COORDINATES = st.integers(-3, 20)
AXES = st.dictionaries(
    st.sampled_from(["rate", "seed", "width"]), st.lists(COORDINATES, min_size=1, max_size=4), min_size=1, max_size=3
)


def swept(axes: dict[str, list[int]]) -> Grid[Any]:
    return grid(**axes)(lambda **at: measure(at))


def by_place(cells: Any) -> dict[Any, Any]:
    return {frozenset(cell.coordinates.items()): cell.value for cell in cells}


@given(AXES)
def test_a_product_has_as_many_points_as_the_product_of_the_sizes(axes):
    assert len(grid(**axes)) == math.prod(map(len, axes.values()))
    assert len(swept(axes)) == math.prod(len(set(values)) for values in axes.values())


@given(st.lists(st.tuples(COORDINATES, COORDINATES), min_size=1, max_size=5), st.integers(1, 3))
def test_zipped_axes_have_the_points_of_the_pairs_and_are_one_factor(pairs, seeds):
    left, right = (list(column) for column in zip(*pairs, strict=True))
    together = grid.zip(left=left, right=right)
    assert [tuple(point.values()) for point in together.coordinates] == pairs
    assert len(grid(together, seed=range(seeds))) == len(pairs) * seeds


@given(AXES, st.randoms(use_true_random=False))
def test_the_order_of_axes_and_of_their_values_changes_no_cell_and_no_mean(axes, chance):
    shuffled = [(name, chance.sample(values, len(values))) for name, values in axes.items()]
    chance.shuffle(shuffled)
    one, other = swept(axes), swept(dict(shuffled))
    assert by_place(one) == by_place(other)
    axis = next(iter(axes))
    means, shuffled_means = one.mean(axis), other.mean(axis)
    if len(axes) == 1:
        assert means == shuffled_means
    else:
        assert by_place(means) == by_place(shuffled_means)


@given(AXES)
def test_map_composes_and_the_identity_changes_nothing(axes):
    runs = swept(axes)
    assert runs.map(increase).map(double).cells == runs.map(lambda run: double(increase(run))).cells
    assert runs.map(lambda run: run).cells == runs.cells


@given(AXES, st.data())
def test_where_and_map_may_be_exchanged_and_where_may_come_before_filling(axes, data):
    axis = data.draw(st.sampled_from(sorted(axes)))
    wanted = data.draw(COORDINATES)
    runs = swept(axes)

    def small(**at):
        return at[axis] < wanted

    for chosen in ({axis: wanted}, {}):
        predicate = None if chosen else small
        filtered = runs.where(predicate, **chosen)
        assert filtered.map(double).cells == runs.map(double).where(predicate, **chosen).cells
        assert grid(**axes).where(predicate, **chosen)(lambda **at: measure(at)).cells == filtered.cells
    kept, left = runs.where(small), runs.where(lambda **at: not small(**at))
    assert by_place(kept + left) == by_place(runs), "what is chosen and what is not make the whole"


@given(AXES, st.data())
def test_two_wheres_are_one(axes, data):
    wanted = {axis: data.draw(st.sampled_from(values)) for axis, values in axes.items()}
    runs = swept(axes)
    one_by_one = runs
    for axis, at in wanted.items():
        one_by_one = one_by_one.where(**{axis: at})
    assert one_by_one.cells == runs.where(**wanted).cells
    assert len(one_by_one) == 1


@given(AXES)
def test_a_grid_added_to_itself_or_to_its_parts_is_itself(axes):
    runs = swept(axes)
    assert (runs + runs).cells == (runs + runs.where(lambda **at: False)).cells == runs.cells


@given(AXES)
def test_a_grid_of_grids_has_the_cells_of_the_product(axes):
    outer, *inner = axes

    def below(at: dict[str, int], rest: list[str]) -> Any:
        if not rest:
            return measure(at)
        axis = rest[0]
        return grid(**{axis: axes[axis]})(lambda **more: below(at | more, rest[1:]))

    nested = grid(**{outer: axes[outer]})(lambda **at: below(at, inner))
    assert nested.axes == tuple(axes)
    assert nested.cells == swept(axes).cells


@given(AXES, st.data())
def test_by_is_a_map_before(axes, data):
    axis = data.draw(st.sampled_from(sorted(axes)))
    one, other = swept(axes).argmin(axis, by=double), swept(axes).map(double).argmin(axis)
    assert (one.cells if isinstance(one, Grid) else one) == (other.cells if isinstance(other, Grid) else other)


@given(COORDINATES, st.lists(COORDINATES, min_size=1, max_size=4, unique=True))
def test_a_mean_over_an_axis_of_size_one_has_the_values_of_its_cells(seed, rates):
    runs = swept({"rate": rates, "seed": [seed]})
    means = runs.mean("seed")
    assert [cell.coordinates for cell in means] == [{"rate": rate} for rate in rates]
    store = "memory://means-of-one"
    for one, run in zip(evaluate(means, store=store, debug=True), evaluate(runs, store=store, debug=True), strict=True):
        assert one.ok == run.ok
        assert not run.ok or one.value == run.value


@given(AXES, st.data())
def test_a_mean_is_that_of_exactly_its_cells_or_there_is_none(axes, data):
    axis = data.draw(st.sampled_from(sorted(axes)))
    runs, store = swept(axes), "memory://means"
    means = runs.mean(axis)
    for cell in means if isinstance(means, Grid) else ():
        group = evaluate(runs.where(**cell.coordinates), store=store, debug=True)
        found = evaluate(cell.value, store=store, debug=True)
        assert found.ok == all(outcome.ok for outcome in group)
        if found.ok:
            assert found.value == pytest.approx(sum(outcome.value for outcome in group) / len(group))
        else:
            assert all(cause.message == "unlucky" for cause in found.because)


@given(AXES)
def test_choosing_finds_what_python_finds_and_names_all_that_failed(axes):
    runs, store = swept(axes), "memory://choices"
    outcomes = dict(zip(by_place(runs), evaluate(runs, store=store, debug=True), strict=True))
    numbers = [outcome.value for outcome in outcomes.values() if outcome.ok]
    for choice, of in ((runs.argmin(), min), (runs.argmax(), max)):
        found = evaluate(choice, store=store, debug=True)
        if not numbers:
            assert found.message.startswith(f"none of {len(runs)} cells has a number")
            continue
        assert found.value.value == of(numbers)
        assert outcomes[frozenset(found.value.coordinates.items())].value == of(numbers)
        assert len(found.value.failed) == len(outcomes) - len(numbers)


@given(AXES)
def test_a_table_has_one_row_for_each_cell_whatever_became_of_it(axes):
    runs, store = swept(axes), "memory://tables"
    rows = evaluate(runs.table(), store=store, debug=True).value.rows
    outcomes = evaluate(runs, store=store, debug=True)
    assert [row[:-1] for row in rows] == [tuple(cell.coordinates.values()) for cell in runs]
    for row, outcome in zip(rows, outcomes, strict=True):
        assert row[-1] == outcome.value if isinstance(outcome, Ok) else row[-1].reason == "ValueError: unlucky"


@given(AXES)
def test_the_operations_of_a_grid_refer_to_every_cell(axes):
    runs = swept(axes)
    keys = {cell.value.key for cell in runs}
    for made in (runs.mean(), runs.argmin(), runs.argmax(), runs.table()):
        assert keys <= {found.key for found in walk(made)}
