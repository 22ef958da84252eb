import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from library.intervals import (
    Interval,
    bits_per_byte,
    bits_per_byte_difference,
    difference_interval,
    ratio_interval,
)

sizes = st.lists(st.integers(1, 10**6), min_size=2, max_size=30).map(np.array)
pairs = st.lists(st.tuples(st.floats(0, 1e6), st.floats(1, 1e6)), min_size=2, max_size=30).map(
    lambda rows: tuple(np.array(rows).T)
)
seeds = st.integers(0, 2**32)
quick = settings(max_examples=50)


@quick
@given(pairs, seeds)
def test_the_point_is_the_ratio_of_sums_and_lies_in_the_interval(figures, seed):
    interval = ratio_interval(*figures, seed=seed, resamples=50)
    assert interval.point == pytest.approx(figures[0].sum() / figures[1].sum())
    assert interval.low <= interval.point <= interval.high
    assert interval.documents == len(figures[0])


@quick
@given(pairs, seeds)
def test_an_interval_lies_between_the_smallest_and_the_largest_document(figures, seed):
    interval = ratio_interval(*figures, seed=seed, resamples=50)
    ratios = figures[0] / figures[1]
    slack = 1e-9 * (1 + ratios.max())
    assert ratios.min() - slack <= interval.low
    assert interval.high <= ratios.max() + slack


@quick
@given(sizes, st.floats(0, 100), seeds)
def test_documents_that_agree_leave_no_doubt(lengths, ratio, seed):
    interval = ratio_interval(ratio * lengths, lengths, seed=seed, resamples=50)
    assert interval.point == pytest.approx(ratio)
    assert interval.high - interval.low <= 1e-9 * (1 + ratio)


@quick
@given(pairs, seeds)
def test_the_same_seed_gives_the_same_interval(figures, seed):
    one, other = (ratio_interval(*figures, seed=seed, resamples=50) for _ in range(2))
    assert one == other


def test_the_interval_is_that_of_ratios_of_sums_over_documents_drawn_with_replacement():
    numerator, denominator = np.array([1.0, 50.0, 3.0, 800.0]), np.array([2.0, 20.0, 1.0, 100.0])
    draws = np.random.default_rng(5).integers(4, size=(300, 4))
    ratios = [sum(numerator[k] for k in draw) / sum(denominator[k] for k in draw) for draw in draws]
    interval = ratio_interval(numerator, denominator, seed=5, resamples=300, level=0.8)
    assert (interval.low, interval.high) == pytest.approx((np.quantile(ratios, 0.1), np.quantile(ratios, 0.9)))


@given(seeds)
def test_even_a_single_draw_does_not_leave_the_point_outside(seed):
    interval = ratio_interval([1.0, 9.0, 3.0], [1.0, 2.0, 3.0], seed=seed, resamples=1)
    assert interval.low <= interval.point <= interval.high


def test_another_seed_draws_other_documents():
    numerator, denominator = np.arange(1.0, 30.0), np.ones(29)
    assert ratio_interval(numerator, denominator, seed=0) != ratio_interval(numerator, denominator, seed=1)


@quick
@given(pairs, seeds)
def test_a_higher_level_gives_a_wider_interval(figures, seed):
    narrow, wide = (ratio_interval(*figures, seed=seed, resamples=50, level=level) for level in (0.5, 0.99))
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


@quick
@given(pairs, st.floats(0.1, 10), seeds)
def test_a_change_of_unit_changes_the_interval_alike(figures, factor, seed):
    one = ratio_interval(*figures, seed=seed, resamples=50)
    other = ratio_interval(factor * figures[0], figures[1], seed=seed, resamples=50)
    assert (other.low, other.high) == pytest.approx((factor * one.low, factor * one.high))


def test_many_documents_drawn_in_parts_are_those_drawn_at_once(monkeypatch):
    figures = np.arange(1.0, 101.0), np.full(100, 3.0)
    whole = ratio_interval(*figures, seed=7, resamples=99)
    monkeypatch.setattr("library.intervals._DRAWS_AT_ONCE", 1000)
    assert ratio_interval(*figures, seed=7, resamples=99) == whole


def test_the_interval_has_the_width_that_theory_says():
    rng = np.random.default_rng(0)
    figures = rng.normal(2.0, 1.0, 2000)
    interval = ratio_interval(figures, np.ones(2000), seed=1)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 / math.sqrt(2000), rel=0.1)


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(200):
        lengths = rng.integers(100, 1000, 60)
        interval = ratio_interval(lengths * rng.normal(2.0, 0.5, 60), lengths, seed=trial, resamples=400)
        held += interval.low <= 2.0 <= interval.high
    assert 0.88 <= held / 200 <= 0.99


def test_one_document_tells_nothing_about_others():
    assert ratio_interval([6.0], [3.0], seed=0) == Interval(2.0, -math.inf, math.inf, 0.95, 1)


@quick
@given(pairs, seeds)
def test_an_arm_does_not_differ_from_itself(figures, seed):
    interval = difference_interval(figures[0], figures[0], figures[1], seed=seed, resamples=50)
    assert (interval.low, interval.point, interval.high) == (0, 0, 0)


@quick
@given(pairs, st.data(), seeds)
def test_swapping_two_arms_turns_the_sign_of_the_difference(figures, data, seed):
    numerator, denominator = figures
    other = np.array(data.draw(st.lists(st.floats(0, 1e6), min_size=len(numerator), max_size=len(numerator))))
    forth = difference_interval(numerator, other, denominator, seed=seed, resamples=50)
    back = difference_interval(other, numerator, denominator, seed=seed, resamples=50)
    assert (back.low, back.point, back.high) == pytest.approx((-forth.high, -forth.point, -forth.low), abs=1e-9)


def test_pairing_sees_a_difference_that_two_intervals_apart_would_not():
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 1000, 30)
    reference = lengths * rng.normal(2.0, 0.5, 30)
    better = reference - 0.05 * lengths
    alone = ratio_interval(better, lengths, seed=0), ratio_interval(reference, lengths, seed=0)
    assert alone[0].high > alone[1].low
    difference = difference_interval(better, reference, lengths, seed=0)
    assert difference.point == pytest.approx(-0.05)
    assert difference.high < -0.049


def test_the_operators_are_the_functions_with_bits_and_bytes():
    bits, other, lengths = np.array([5.0, 9.0]), np.array([4.0, 9.0]), np.array([2, 4])
    assert bits_per_byte.function(bits, lengths) == ratio_interval(bits, lengths, seed=0)
    assert bits_per_byte_difference.function(bits, other, lengths, seed=3) == difference_interval(
        bits, other, lengths, seed=3
    )


@pytest.mark.parametrize(
    ("numerator", "denominator", "message"),
    [
        ([], [], "at least one"),
        ([1.0], [1.0, 2.0], r"shapes \(1,\) and \(2,\); expected one figure for each of the same documents"),
        ([[1.0]], [[1.0]], "expected one figure"),
        ([1.0, math.nan], [1.0, 1.0], "document 1 has a figure that is not finite"),
        ([math.inf, 1.0], [1.0, 1.0], "document 0 has a figure that is not finite"),
        ([1.0, 1.0], [1.0, 0.0], r"document 1 has the size 0\.0; drop empty documents first"),
        ([1.0, 1.0], [math.inf, 1.0], "document 0 has the size inf"),
    ],
)
def test_figures_that_have_no_ratio_are_refused(numerator, denominator, message):
    with pytest.raises(ValueError, match=message):
        ratio_interval(numerator, denominator, seed=0)


@pytest.mark.parametrize("wrong", [{"level": 0}, {"level": 1}, {"level": 95}, {"resamples": 0}])
def test_a_level_or_number_of_draws_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match="expected 0 < level < 1 and at least one resample"):
        ratio_interval([1.0, 2.0], [1.0, 1.0], seed=0, **wrong)


def test_arms_with_different_documents_are_refused():
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\); expected the same documents in both arms"):
        difference_interval(np.ones(2), np.ones(3), np.ones(2), seed=0)
