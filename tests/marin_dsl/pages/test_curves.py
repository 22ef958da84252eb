"""Curves: what is drawn, against what, and the same as numbers."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from marin_dsl.pages import Curves, Series, curves

from . import example


def series(name: str = "a", values=(3.0, 2.0, 1.0), *, source=None, group: str = "", tokens=None) -> Series:
    steps = np.arange(1, len(values) + 1)
    return Series(
        name, group or name, steps * 100 if tokens is None else tokens, steps, np.array(values, float), source
    )


def section(*all_series: Series) -> Curves:
    return Curves("Loss", "caption", all_series, "loss")


def build(*all_series: Series, seconds=None) -> curves.Figure:
    return curves.build(section(*all_series), seconds or {}, "target")


def objects(item, name: str) -> list[dict]:
    """All objects of a Bokeh document of one type, depth first."""
    if isinstance(item, list):
        return [found for one in item for found in objects(one, name)]
    if not isinstance(item, dict):
        return []
    own = [item] if item.get("name") == name and item.get("type") == "object" else []
    return own + [found for one in item.values() for found in objects(one, name)]


@pytest.fixture(scope="module")
def figure() -> curves.Figure:
    return curves.build(example.page().sections[1], example.seconds(), "target")


def test_all_three_axes_are_offered_when_all_are_known(figure):
    assert [axis.label for axis in figure.axes] == ["tokens (millions)", "steps", "time (seconds)"]


def test_seconds_are_not_offered_when_nobody_observed_them():
    assert [axis.name for axis in build(series(source=("runs", 0))).axes] == ["tokens", "steps"]


def test_a_series_without_times_among_others_with_times_is_named():
    figure = build(series("a", source=("a",)), series("b", source=("b",)), seconds={("a",): np.arange(3.0)})
    assert figure.notes == ("No times on record for b: missing from the axis of seconds.",)


def test_times_of_another_length_than_the_series_are_not_used():
    assert curves.seconds_of(series(source=("a",)), {("a",): np.arange(4.0)}) is None
    assert curves.seconds_of(series(source=("a",)), {("a",): [1, 2, 3]}).tolist() == [1, 2, 3]


def test_long_runs_are_timed_in_minutes_and_hours():
    labels = [curves.axis_of("seconds", [np.array([1.0, end])]).label for end in (600, 601, 10801)]
    assert labels == ["time (seconds)", "time (minutes)", "time (hours)"]


def test_a_logarithmic_axis_starts_at_the_smallest_positive_value():
    axis = curves.axis_of("steps", [np.array([0.0, 5.0, 10.0])])
    assert (axis.low, axis.positive, axis.high) == (0.0, 5.0, 10.0)


def test_an_axis_of_nothing_but_zero_is_still_an_axis():
    axis = curves.axis_of("steps", [np.array([0.0])])
    assert 0 < axis.positive <= axis.high


def test_groups_share_a_colour_and_an_entry(figure):
    assert [entry.colour for entry in figure.legend] == [0, 1, 2, 3, 4]
    assert len(objects(figure.item, "GlyphRenderer")) == 2 * len(example.ARMS)


def test_more_groups_than_colours_differ_by_dash():
    entries = curves.legend_of(tuple(series(str(i)) for i in range(23)))
    assert len({(entry.colour, entry.dash) for entry in entries}) == 23


def test_nothing_to_draw_makes_no_figure():
    assert curves.build(section(), {}, "t") is None
    assert curves.build(section(series(values=())), {}, "t") is None


def test_equal_curves_make_equal_documents(figure):
    assert curves.build(example.page().sections[1], example.seconds(), "target").item == figure.item


def test_the_document_is_plain_json_in_which_every_reference_resolves(figure):
    text = json.dumps(figure.item, allow_nan=False)
    defined = set()

    def walk(item):
        if isinstance(item, dict):
            if item.get("type") == "object":
                defined.add(item["id"])
            elif set(item) == {"id"}:
                assert item["id"] in defined, text[:80]
        for one in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
            walk(one)

    walk(figure.item)
    assert figure.item["root_id"] in defined


def test_numbers_that_are_not_finite_survive_into_the_document():
    assert build(series(values=(1.0, math.nan, math.inf))) is not None
    assert build(series(values=(math.nan, math.nan))) is not None


def test_a_name_that_looks_like_an_identifier_is_kept():
    (_, renderer) = objects(build(series("p1001")).item, "GlyphRenderer")
    assert renderer["attributes"]["name"] == "p1001"


def test_a_diverged_curve_does_not_flatten_the_others():
    low, high, beyond = curves.vertical((series(values=np.linspace(7, 3, 100)), series(values=(7.5, 80.0, 9e4))))
    assert low > 2
    assert high < 10
    assert beyond == 2


def test_a_spike_of_ordinary_height_stays_in_the_picture():
    _, high, beyond = curves.vertical((series(values=(7.0, 5.0, 8.0, 3.0)),))
    assert high > 8
    assert beyond == 0


def test_what_lies_outside_the_picture_is_told(figure):
    assert figure.notes == ("41 points of diverging curves lie above the range shown.",)


def test_a_constant_curve_has_room_around_it():
    low, high, _ = curves.vertical((series(values=(2.0, 2.0)),))
    assert low < 2.0 < high


def test_the_table_reads_the_curves_at_eight_token_counts():
    glance = curves.glance((series("a", np.linspace(8, 1, 800)), series("b", np.linspace(8, 1, 80))))
    assert glance.columns == tuple(f"{10 * i}.00" for i in range(1, 9))
    assert glance.unit == "thousands"
    (_, whole), (_, short) = glance.rows
    assert "–" not in whole
    assert short[1:] == ("–",) * 7


def test_a_series_coarser_than_the_table_shows_what_is_near():
    (row,) = curves.glance((series("a", (4.0, 3.0)),)).rows
    assert row[1].count("–") < 8
    assert row[1][-1] != "–"


values = arrays.arrays(float, st.integers(1, 60), elements=st.floats(-100, 100))


@given(values)
def test_a_smoothed_curve_stays_between_the_extremes_seen_so_far(array):
    smooth = curves.smooth(array)
    assert smooth[0] == pytest.approx(array[0])
    assert (smooth <= np.maximum.accumulate(array) + 1e-9).all()
    assert (smooth >= np.minimum.accumulate(array) - 1e-9).all()


@given(st.floats(-100, 100), st.integers(1, 60))
def test_smoothing_leaves_a_constant_alone(level, points):
    assert curves.smooth(np.full(points, level)) == pytest.approx(np.full(points, level))


def test_smoothing_steps_over_gaps_and_starts_with_the_first_number():
    smooth = curves.smooth(np.array([math.nan, 2.0, math.nan, 2.0]))
    assert math.isnan(smooth[0])
    assert smooth[1:] == pytest.approx([2.0, 2.0, 2.0])


def test_smoothing_follows_a_steep_start():
    steps = np.arange(1, 1001)
    true = 3 + 4 / steps
    assert np.abs(curves.smooth(true) - true)[50:].max() < 0.05


@given(arrays.arrays(float, st.integers(1, 400), elements=st.floats(-100, 100)), st.integers(1, 50))
def test_thinning_keeps_both_ends_and_every_extreme(array, buckets):
    kept = curves.thin(array, buckets)
    assert kept[0] == 0
    assert kept[-1] == len(array) - 1
    assert (np.diff(kept) > 0).all()
    assert len(kept) <= max(2 * buckets + 2, len(array) if len(array) <= 2 * buckets else 0)
    assert array[kept].max() == array.max()
    assert array[kept].min() == array.min()


def test_thinning_a_curve_without_numbers_keeps_its_ends():
    assert curves.thin(np.full(1000, np.nan))[[0, -1]].tolist() == [0, 999]


def test_a_long_curve_stays_small():
    long = series(values=np.random.default_rng(0).normal(size=100_000))
    assert len(json.dumps(build(long).item)) < 40_000


def test_the_library_is_the_minified_one_and_holds_nothing_that_ends_a_script():
    text = curves.library()
    assert len(text) < 1_400_000
    assert "</script" not in text.lower()
    assert "<!--" not in text
