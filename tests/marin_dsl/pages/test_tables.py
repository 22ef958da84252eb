"""Cells: how values read, which is best, where intervals lie."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl.pages import Column, Interval, Missing, Table, tables

LOWEST, HIGHEST = Column("x", best="lowest"), Column("x", best="highest")


def column(column: Column, *cells) -> list[tables.CellView]:
    return [row[0] for row in tables.cells(Table("t", "", (column,), tuple((cell,) for cell in cells)))]


def marks(which: Column, *cells) -> list[str]:
    return [cell.mark for cell in column(which, *cells)]


@pytest.mark.parametrize(
    ("cell", "kind", "text", "detail"),
    [
        ("adamw", "text", "adamw", ""),
        (True, "text", "yes", ""),
        (1234, "number", "1,234", ""),
        (0.12345, "number", "0.123", ""),
        (math.nan, "number", "not a number", ""),
        (None, "missing", "–", ""),
        (Interval(2.0, 1.5, 2.5), "interval", "2.000", "1.500 to 2.500"),
        (Missing("diverged"), "missing", "failed", "diverged"),
        (Missing("needs it", "skipped"), "missing", "skipped", "needs it"),
        (Missing("not asked for", "absent"), "missing", "–", "not asked for"),
    ],
)
def test_a_cell_says_its_value_or_why_there_is_none(cell, kind, text, detail):
    view = tables.view(cell, Column("x"))
    assert (view.kind, view.text, view.detail) == (kind, text, detail)


def test_the_lowest_or_highest_number_is_marked_best():
    assert marks(LOWEST, 3.0, 1.0, 2.0) == ["", "best", ""]
    assert marks(HIGHEST, 3.0, 1.0, 2.0) == ["best", "", ""]


def test_nothing_is_best_in_a_column_that_does_not_ask_or_has_one_number():
    assert marks(Column("x"), 1.0, 2.0) == ["", ""]
    assert marks(LOWEST, 1.0, Missing("failed"), None) == ["", "", ""]


def test_neither_nan_nor_infinity_nor_truth_can_be_best():
    assert marks(LOWEST, math.nan, -math.inf, False, 2.0, 1.0) == ["", "", "", "", "best"]


def test_an_interval_that_overlaps_the_best_one_is_marked_as_tied():
    cells = (Interval(1.0, 0.9, 1.1), Interval(1.15, 1.05, 1.25), Interval(2.0, 1.9, 2.1), 1.05)
    assert marks(LOWEST, *cells) == ["best", "tied", "", ""]


def test_the_first_of_equal_numbers_is_best():
    assert marks(LOWEST, 1.0, 1.0) == ["best", ""]


def test_whiskers_span_the_range_of_their_column():
    low, high = (cell.whisker for cell in column(LOWEST, Interval(1.0, 0.0, 2.0), Interval(3.0, 2.0, 4.0)))
    assert (low.low, low.point, high.point, high.high) == (0.0, 25.0, 75.0, 100.0)


def test_a_lone_interval_and_an_infinite_one_have_no_whisker():
    assert [c.whisker for c in column(LOWEST, Interval(1.0, 0.0, 2.0), Interval(math.inf, 1.0, math.inf), 3.0)] == [
        None
    ] * 3


def test_intervals_of_no_width_still_have_a_place():
    same = column(LOWEST, Interval(1.0, 1.0, 1.0), Interval(1.0, 1.0, 1.0))
    assert {c.whisker for c in same} == {tables.Whisker(0.0, 0.0, 0.0)}


def test_a_table_without_rows_has_no_cells():
    assert tables.cells(Table("t", "", (Column("a"),), ())) == []


finite = st.floats(-1e6, 1e6)


@given(st.lists(st.one_of(finite, st.none(), st.builds(Missing, st.text())), min_size=2))
def test_the_best_is_never_beaten(cells):
    best = tables.best_of(LOWEST, tuple(cells))
    numbers = [cell for cell in cells if isinstance(cell, float)]
    assert (best is None) == (len(numbers) < 2)
    assert best is None or cells[best] == min(numbers)


@given(st.lists(st.tuples(finite, finite, finite).map(sorted), min_size=2))
def test_whiskers_keep_the_order_of_what_they_show(triples):
    views = column(LOWEST, *(Interval(p, low, high) for low, p, high in triples))
    for view in views:
        assert 0 <= view.whisker.low <= view.whisker.point <= view.whisker.high <= 100
