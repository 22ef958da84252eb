"""Numbers read as a person would write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl import quantities


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0994, "99 ms"), (0.0996, "0.10 s"), (0.996, "1.0 s"), (9.96, "10 s"), (59.4, "59 s"),
     (59.6, "1 min 0 s"), (3599.7, "1 h 0 min"), (90000, "25 h 0 min"), (math.nan, "–"), (None, "–")],
)  # fmt: skip
def test_durations_change_unit_without_a_gap(seconds, text):
    assert quantities.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (1 << 30, "1.00 GiB"), ((1 << 30) - 1, "1.00 GiB"), (None, "–")],
)
def test_memory_never_shows_1024_of_a_unit(size, text):
    assert quantities.memory(size) == text


@pytest.mark.parametrize(
    ("flops", "text"),
    [(999.4, "999 FLOP"), (999.9, "1.00 kFLOP"), (4.13e13, "41.3 TFLOP"), (3e23, "300 ZFLOP"), (math.inf, "–")],
)
def test_operations_take_the_prefix_that_fits(flops, text):
    assert quantities.operations(flops) == text


@given(st.floats(0, 1e25))
def test_no_count_of_operations_needs_more_than_three_digits_before_the_prefix(flops):
    digits = quantities.operations(flops).split()[0]
    assert len(digits.replace(".", "")) <= 3 or flops >= 1e24


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12), st.integers(0, 6))
def test_a_printed_number_reads_back_within_its_decimals(value, digits):
    text = quantities.number(value, digits).replace(",", "").replace("−", "-")
    assert abs(float(text) - value) <= 0.5 * 10**-digits * (1 + 1e-6) + 1e-3 * (abs(value) > 1e9)


def test_whole_numbers_keep_no_decimals_and_part_their_thousands():
    assert quantities.number(-1234567, 3) == "−1,234,567"


@given(st.floats(1, 1e15))
def test_a_scale_never_makes_a_number_smaller_than_one(largest):
    divisor, name = quantities.scale(largest)
    assert largest / divisor >= 1
    assert (divisor == 1) == (name == "")
