import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_models import Mixture, window_sources, windows
from marin_models.windows import described_stream

steps = st.integers(0, 10**12)
seeds = st.integers(0, 2**40)


def mixture(a=50, b=80, weights=(1, 3)):
    """Tokens tell their stream and position: a holds 0.., b holds 1000.. ."""
    streams = {"b": np.arange(1000, 1000 + b, dtype=np.uint16), "a": np.arange(a, dtype=np.uint32)}
    return Mixture(streams, dict(zip("ab", weights, strict=True)))


@settings(max_examples=50)
@given(seeds, steps, st.integers(1, 9), st.integers(1, 49))
def test_a_window_is_a_run_of_its_stream_and_depends_on_seed_and_step_alone(seed, step, batch, length):
    rows = windows(mixture(), seed=seed, step=step, batch=batch, length=length)
    assert rows.shape == (batch, length + 1)
    assert rows.dtype == np.int32
    assert (np.diff(rows, axis=1) == 1).all()
    np.testing.assert_array_equal(rows, windows(mixture(), seed=seed, step=step, batch=batch, length=length))
    sources = window_sources(mixture(), seed=seed, step=step, batch=batch)
    np.testing.assert_array_equal(rows[:, 0] >= 1000, sources == 1)


@given(seeds, steps, st.integers(1, 5), st.integers(0, 5))
def test_a_larger_batch_begins_with_the_rows_of_a_smaller_one(seed, step, batch, more):
    small = windows(mixture(), seed=seed, step=step, batch=batch, length=7)
    large = windows(mixture(), seed=seed, step=step, batch=batch + more, length=7)
    np.testing.assert_array_equal(large[:batch], small)


def test_a_part_of_a_batch_is_the_same_rows_whoever_asks_for_it():
    whole = windows(mixture(), seed=3, step=9, batch=8, length=5)
    for part in (slice(0, 2), slice(2, 8), slice(7, 8)):
        rows = windows(mixture(), seed=3, step=9, batch=8, length=5, rows=part)
        np.testing.assert_array_equal(rows, whole[part])


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ({"a": [0, 50]}, r"offsets \['a'\] must have the names of streams \('a', 'b'\)"),
        ({"a": [0, 50], "b": [0, 81]}, "the offsets of 'b' must rise from 0 to 80, the end of its stream"),
        ({"a": [0, 30, 20, 50], "b": [0, 80]}, "the offsets of 'a' must rise from 0 to 50"),
        ({"a": [3, 50], "b": [0, 80]}, "the offsets of 'a' must rise from 0 to 50"),
        ({"a": [0, 49], "b": [0, 80]}, "the offsets of 'a' must rise from 0 to 50"),
        ({"a": [0.0, 50.0], "b": [0, 80]}, "the offsets of 'a' must rise from 0 to 50"),
    ],
)
def test_borders_of_documents_that_are_not_those_of_their_streams_are_refused(offsets, message):
    one = mixture()
    with pytest.raises(ValueError, match=message):
        Mixture(one.streams, one.weights, {name: np.array(each) for name, each in offsets.items()})


@pytest.mark.parametrize(
    ("stream", "weight", "message"),
    [
        ([1, 2, 3], 1, "stream 'a' is a list; it must be an array of 1-D integer tokens"),
        (np.zeros((2, 3), int), 1, r"stream 'a' is int64\[2, 3\]; it must be 1-D integer tokens"),
        (np.zeros(3), 1, r"stream 'a' is float64\[3\]; it must be 1-D integer tokens"),
        (np.zeros(3, int), "1", "the weight of 'a' is '1'; it must be a finite number above 0"),
    ],
)
def test_what_is_no_stream_or_weight_is_refused(stream, weight, message):
    with pytest.raises(ValueError, match=message):
        Mixture({"a": stream}, {"a": weight})


def test_streams_that_differ_are_described_differently():
    one = np.arange(100_000) % 17
    assert described_stream(one) == described_stream(one.astype(np.uint8))
    assert len({described_stream(each) for each in (one, one[::-1], one[:-1], (one + 1) % 17)}) == 4
    assert described_stream(one[:0]).startswith("0, ")


def test_steps_and_seeds_give_different_windows():
    first = windows(mixture(), seed=0, step=0, batch=8, length=3)
    assert (first != windows(mixture(), seed=0, step=1, batch=8, length=3)).any()
    assert (first != windows(mixture(), seed=1, step=0, batch=8, length=3)).any()


def test_the_order_in_which_streams_are_named_does_not_matter():
    one = mixture()
    other = Mixture(dict(reversed(one.streams.items())), dict(reversed(one.weights.items())))
    assert one.names == other.names == ("a", "b")
    np.testing.assert_array_equal(
        windows(one, seed=1, step=2, batch=9, length=4), windows(other, seed=1, step=2, batch=9, length=4)
    )


def test_streams_are_chosen_by_weight_whatever_their_size():
    sources = window_sources(mixture(a=10, b=1000), seed=0, step=0, batch=20000)
    np.testing.assert_allclose(np.mean(sources), 0.75, atol=0.01)


def test_positions_are_uniform_and_reach_both_ends():
    rows = windows(mixture(a=13), seed=0, step=0, batch=20000, length=3)
    starts = rows[rows[:, 0] < 1000, 0]
    counts = np.bincount(starts, minlength=10)
    assert len(counts) == 10
    np.testing.assert_allclose(counts / len(starts), 0.1, atol=0.02)


def test_a_stream_of_exactly_one_window_is_enough():
    only = Mixture({"a": np.arange(5, dtype=np.uint16)}, {"a": 1})
    np.testing.assert_array_equal(windows(only, seed=0, step=0, batch=1, length=4), [[0, 1, 2, 3, 4]])


def test_memory_maps_are_read_as_they_are(tmp_path):
    path = tmp_path / "tokens"
    np.arange(50, dtype=np.uint16).tofile(path)
    mapped = Mixture({"a": np.memmap(path, np.uint16, "r")}, {"a": 1})
    plain = Mixture({"a": np.arange(50, dtype=np.uint16)}, {"a": 1})
    np.testing.assert_array_equal(
        windows(mapped, seed=0, step=5, batch=4, length=9), windows(plain, seed=0, step=5, batch=4, length=9)
    )


def test_the_windows_of_a_seed_never_change():
    # A change here changes every experiment's data order: it needs a new major version.
    assert windows(mixture(), seed=7, step=11, batch=3, length=1)[:, 0].tolist() == [1072, 1053, 1061]
    assert window_sources(mixture(), seed=7, step=11, batch=8).tolist() == [1, 1, 1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("streams", "weights", "message"),
    [
        ({}, {}, "must have the same names, at least one"),
        ({"a": np.arange(9)}, {"b": 1}, r"streams \['a'\] and weights \['b'\] must have the same names"),
        ({"a": np.arange(9)}, {"a": 0}, "weight of 'a' is 0; it must be a finite number above 0 .leave the stream out"),
        ({"a": np.arange(9)}, {"a": float("nan")}, "weight of 'a' is nan"),
        ({"a": np.arange(9.0)}, {"a": 1}, r"stream 'a' is float64\[9\]; it must be 1-D integer tokens"),
        ({"a": np.zeros((3, 3), int)}, {"a": 1}, r"stream 'a' is int64\[3, 3\]; it must be 1-D"),
    ],
)
def test_a_mixture_that_makes_no_sense_is_refused(streams, weights, message):
    with pytest.raises(ValueError, match=message):
        Mixture(streams, weights)


def test_a_stream_shorter_than_a_window_is_named():
    with pytest.raises(
        ValueError, match=r"holds 60 tokens .length \+ 1., but streams are shorter: {'a': 50}; use a sh"
    ):
        windows(mixture(), seed=0, step=0, batch=1, length=59)


@pytest.mark.parametrize(("seed", "step"), [(-1, 0), (0, -1), (2**63, 0)])
def test_a_seed_or_step_outside_its_range_is_refused(seed, step):
    with pytest.raises(ValueError, match=f"seed {seed} and step {step} must be from 0"):
        windows(mixture(), seed=seed, step=step, batch=1, length=2)
