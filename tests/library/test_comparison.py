"""Arms beside one another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from library import comparison
from library.intervals import macro_interval, ratio_interval
from marin_dsl import Failed, Ok, Skipped
from marin_dsl.grids import Cell
from marin_dsl.outcome import Blame

LENGTHS = {"code": np.array([10, 20, 30, 40]), "prose": np.array([5, 5, 5, 5])}


def bits_of(rate):
    return {domain: lengths * float(rate) for domain, lengths in LENGTHS.items()}


def cell(optimizer, seed, value):
    return Cell({"optimizer": optimizer, "seed": seed}, value)


CELLS = [
    cell("muon", 0, Ok(bits_of(2))),
    cell("adamw", 0, Ok(bits_of(3))),
    cell("muon", 1, Ok(bits_of(2.5))),
    cell("adamw", 1, Failed("raised", "x.Diverged", "step 3")),
    cell("sgd", 0, Skipped((Blame("train sgd", "raised", "x.Diverged", "step 9"),))),
]


def test_arms_are_gathered_in_order_with_their_seeds_and_failures():
    muon, adamw, sgd = comparison.arms(CELLS)
    assert [arm.coordinates for arm in (muon, adamw, sgd)] == [{"optimizer": o} for o in ("muon", "adamw", "sgd")]
    assert (muon.seeds, adamw.seeds, sgd.seeds) == ((0, 1), (0,), ())
    assert adamw.failures == {1: "Diverged: step 3"}
    assert sgd.failures == {0: "Diverged: step 9"}
    assert muon.bits["code"].shape == (2, 4)
    assert muon.mean_bits["prose"].tolist() == [11.25] * 4


def test_the_best_arm_is_the_one_with_the_fewest_bits():
    assert comparison.best(comparison.arms(CELLS), LENGTHS).coordinates == {"optimizer": "muon"}


def test_choosing_among_arms_without_a_value_says_why_they_have_none():
    with pytest.raises(ValueError, match=r"none of 1 arms has a value to choose from: Diverged: step 9"):
        comparison.best(comparison.arms(CELLS[4:]), LENGTHS)


def test_a_difference_is_paired_so_that_equal_documents_leave_no_width():
    muon, adamw, _ = comparison.arms(CELLS)
    found = comparison.difference(muon, adamw, LENGTHS)
    assert (found.point, found.low, found.high) == pytest.approx((-0.75, -0.75, -0.75))
    assert comparison.difference(adamw, muon, LENGTHS).point == pytest.approx(0.75)


def test_the_best_run_is_the_first_seed_of_the_best_arm():
    runs = [Cell(cell.coordinates, Ok(f"run {place}")) for place, cell in enumerate(CELLS)]
    assert comparison.best_run.function(runs, CELLS, LENGTHS) == "run 0"


def test_every_domain_counts_equally_in_the_mean():
    bits = {"code": LENGTHS["code"] * 1.0, "prose": LENGTHS["prose"] * 3.0}
    assert comparison.macro_bits_per_byte(bits, LENGTHS).point == pytest.approx(2.0)


@given(st.lists(st.floats(0.5, 9), min_size=2, max_size=12), st.integers(0, 9))
def test_a_macro_interval_over_one_group_holds_its_point_and_is_reproducible(rates, seed):
    lengths = np.arange(1, len(rates) + 1) * 10
    bits = np.array(rates) * lengths
    found = macro_interval({"one": bits}, {"one": lengths}, seed=seed, resamples=200)
    assert found.low <= found.point <= found.high
    assert found.point == pytest.approx(ratio_interval(bits, lengths, seed=seed, resamples=200).point)
    assert found == macro_interval({"one": bits}, {"one": lengths}, seed=seed, resamples=200)


def test_a_group_with_one_document_makes_the_interval_infinite():
    found = macro_interval({"a": np.ones(1), "b": np.ones(3)}, {"a": np.ones(1), "b": np.ones(3)}, seed=0)
    assert (found.low, found.high, found.documents) == (-np.inf, np.inf, 4)


def test_groups_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"groups \['a'\] and \['b'\]; expected the same groups, at least one"):
        macro_interval({"a": np.ones(2)}, {"b": np.ones(2)}, seed=0)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30), st.integers(1, 40))
def test_smoothing_is_the_mean_of_a_trailing_window(values, window):
    found = comparison.smoothed(np.array(values), window)
    for place in range(len(values)):
        assert found[place] == pytest.approx(np.mean(values[max(0, place - window + 1) : place + 1]), abs=1e-9)


@pytest.mark.parametrize(
    ("curve", "target", "share"),
    [([3, 2, 1, 0], 1, 0.75), ([3, 2, 1, 2], 1, None), ([1, 1], 2, 0.5), ([3, 1, 3, 1], 2, 1.0), ([5], 1, None)],
)
def test_a_target_is_reached_when_the_curve_stays_below_it(curve, target, share):
    assert comparison.share_to_reach(np.array(curve), target) == share


def test_steps_that_were_skipped_are_left_out_of_a_smoothed_curve_and_reach_nothing():
    curve = np.array([3.0, np.nan, 1.0, np.inf, 1.0])
    np.testing.assert_array_equal(comparison.smoothed(curve, 2), [3.0, 3.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(comparison.smoothed(curve, 1), [3.0, np.nan, 1.0, np.nan, 1.0])
    assert comparison.share_to_reach(np.array([1.0, np.nan]), 2.0) is None
    assert comparison.share_to_reach(np.array([]), 2.0) is None
    with pytest.raises(ValueError, match="window=0; expected at least 1, the value itself"):
        comparison.smoothed(curve, 0)


def test_cells_without_a_seed_are_refused():
    with pytest.raises(
        ValueError, match=r"the cell at \{'optimizer': 'muon'\} has no 'seed'; give the grid an axis of"
    ):
        comparison.arms([Cell({"optimizer": "muon"}, Ok(bits_of(2)))])


@pytest.mark.parametrize("wrong", [{"level": 95.0}, {"level": 0.0}, {"resamples": 0}])
def test_a_level_or_number_of_draws_out_of_range_is_refused_for_groups_too(wrong):
    with pytest.raises(ValueError, match=r"level=.*, resamples=.*; expected 0 < level < 1 and at least one resample"):
        macro_interval(bits_of(2), LENGTHS, seed=0, **wrong)
