"""Content is made of checked, immutable, encodable values."""

import attrs
import numpy as np
import pytest

from marin_dsl.encoding import decode, encode
from marin_dsl.pages import Column, Curves, Interval, Missing, Page, Prose, Series, Table

from . import example


def test_a_page_is_a_value_that_survives_being_stored():
    page = example.page()
    assert decode(encode(page)) == page


def test_equal_pages_have_equal_bytes():
    assert encode(example.page()) == encode(example.page())


def test_another_point_of_a_curve_makes_another_page():
    page = example.page()
    curves = page.sections[1]
    bent = attrs.evolve(curves.series[0], values=curves.series[0].values + 1)
    other = attrs.evolve(page, sections=(attrs.evolve(curves, series=(bent, *curves.series[1:])),))
    assert encode(other) != encode(attrs.evolve(page, sections=(curves,)))


def test_nothing_on_a_page_can_be_reassigned():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        example.page().title = "another"


def test_lists_are_taken_as_tuples():
    table = Table("t", "", [Column("a")], [["x"], ["y"]])
    assert table.rows == (("x",), ("y",))
    assert Page("t", "q", "a", "v", [table]).sections == (table,)


def test_a_row_that_is_too_short_is_refused_with_its_number():
    with pytest.raises(ValueError, match=r"row 1 of table 'loss' has 1 cells for 2 columns.*Missing\(reason\)"):
        Table("loss", "", (Column("a"), Column("b")), (("x", 1.0), ("y",)))


def test_an_interval_that_runs_backwards_is_refused():
    with pytest.raises(ValueError, match=r"from low to high, not from 2.0 to 1.0: swap them"):
        Interval(1.5, 2.0, 1.0)


def test_arrays_of_different_lengths_make_no_series():
    with pytest.raises(ValueError, match=r"series 'a' needs arrays of one length, not .*'steps': 2"):
        Series("a", "a", np.arange(3), np.arange(2), np.arange(3.0))


@pytest.mark.parametrize("values", [np.zeros((2, 2)), np.array(["a", "b"]), 3.0], ids=["matrix", "text", "scalar"])
def test_a_curve_that_is_not_a_vector_of_numbers_is_refused(values):
    with pytest.raises(ValueError, match="one-dimensional array of numbers"):
        Series("a", "a", np.arange(2), np.arange(2), values)


def test_a_section_of_another_type_is_refused_where_the_page_is_made():
    with pytest.raises(TypeError, match=r"a section of page 'p' is a str: use Prose, Table, Curves"):
        Page("p", "q", "a", "v", ("text",))


def test_series_compare_by_the_numbers_in_their_arrays():
    one = Series("a", "a", [1, 2], [1, 2], [0.5, 0.25])
    assert one == Series("a", "a", [1, 2], [1, 2], [0.5, 0.25])
    assert one != Series("a", "a", [1, 2], [1, 2], [0.5, 0.26])


def test_missing_cells_prose_and_empty_curves_need_nothing_else():
    assert Missing("no data").kind == "failed"
    assert Page("t", "q", "a", "v", (Prose("h", "x"), Curves("h", "c", ()))).summary == ""
