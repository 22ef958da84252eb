"""Rotary frequencies of longer contexts, against the formulas of the papers written out one pair at a time."""

import functools
import math

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import TINY, random_model

from marin_models import RotaryScaling, TransformerConfig, parameter_count
from marin_models.key_value_cache import empty_caches, extend
from marin_models.rotary import rotary_table
from marin_models.rotary_scaling import scaled_frequencies

LLAMA = RotaryScaling("llama3", 8.0, original_length=8192)
YARN = RotaryScaling("yarn", 4.0, original_length=4096)


def plain(half, theta):
    return [theta ** (-pair / half) for pair in range(half)]


def in_llama3(frequency, scaling):
    """By its turns within the original length, a pair keeps its frequency, loses the factor, or lies between."""
    turns = scaling.original_length * frequency / (2 * math.pi)
    if turns < scaling.slow_turns:
        return frequency / scaling.factor
    if turns > scaling.fast_turns:
        return frequency
    share = (turns - scaling.slow_turns) / (scaling.fast_turns - scaling.slow_turns)
    return (1 - share) * frequency / scaling.factor + share * frequency


def pair_that_turns(times, half, theta, length):
    """Where on the continuous line of pairs one turns so often within a length, by halving."""
    low, high = -1000.0, 1000.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if length * theta ** (-middle / half) / (2 * math.pi) > times else (low, middle)
    return low


def in_yarn(pair, half, theta, scaling):
    """As its authors released it: the ramp is linear in the number of the pair."""
    first, last = (
        pair_that_turns(turns, half, theta, scaling.original_length)
        for turns in (scaling.fast_turns, scaling.slow_turns)
    )
    if scaling.whole_pairs:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * half - 1)
    extrapolated = 1 - min(max((pair - first) / (last - first or 0.001), 0), 1)
    frequency = theta ** (-pair / half)
    return frequency / scaling.factor * (1 - extrapolated) + frequency * extrapolated


def written_out(half, theta, scaling):
    if scaling.kind == "linear":
        return [frequency / scaling.factor for frequency in plain(half, theta)]
    if scaling.kind == "llama3":
        return [in_llama3(frequency, scaling) for frequency in plain(half, theta)]
    return [in_yarn(pair, half, theta, scaling) for pair in range(half)]


def scaled(half, theta, scaling):
    return np.asarray(scaled_frequencies(jnp.asarray(plain(half, theta), jnp.float32), theta, scaling))


SCALINGS = st.one_of(
    st.builds(RotaryScaling, st.just("linear"), st.floats(1, 64)),
    st.builds(
        RotaryScaling,
        st.sampled_from(["llama3", "yarn"]),
        st.floats(1, 64),
        original_length=st.sampled_from([63, 1000, 4096, 8192]),
        slow_turns=st.floats(0.5, 2),
        fast_turns=st.floats(3, 40),
    ),
    st.builds(
        RotaryScaling, st.just("yarn"), st.floats(1, 64), original_length=st.just(2048), whole_pairs=st.booleans()
    ),
)
BASES = st.sampled_from([1e4, 5e5, 1e6])


@settings(max_examples=40, deadline=None)
@given(half=st.sampled_from([32, 64]), theta=BASES, scaling=SCALINGS)
def test_frequencies_equal_the_formulas_of_the_papers(half, theta, scaling):
    found = scaled(half, theta, scaling)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, written_out(half, theta, scaling), rtol=3e-5)


@settings(max_examples=25, deadline=None)
@given(half=st.sampled_from([32, 64]), theta=BASES, scaling=SCALINGS)
def test_a_factor_of_one_is_no_scaling_and_others_divide_slow_pairs_and_keep_fast_ones(half, theta, scaling):
    before = np.asarray(plain(half, theta), np.float32)
    np.testing.assert_allclose(scaled(half, theta, attrs.evolve(scaling, factor=1.0)), before, rtol=1e-6)
    share = scaled(half, theta, scaling) / before
    assert (share <= 1 + 1e-6).all()
    assert (share >= 1 / scaling.factor - 1e-6).all()
    assert (np.diff(share) <= 1e-6).all()  # the slower a pair, the more it loses
    if scaling.kind == "llama3":
        turns = scaling.original_length * before / (2 * math.pi)
        np.testing.assert_array_equal(share[turns > 1.001 * scaling.fast_turns], 1)
        np.testing.assert_allclose(share[turns < 0.999 * scaling.slow_turns], 1 / scaling.factor, rtol=1e-6)


@pytest.mark.parametrize("scaling", [LLAMA, YARN], ids=["llama3", "yarn"])
def test_the_fastest_pair_keeps_its_frequency_and_the_slowest_is_divided(scaling):
    share = scaled(64, 5e5, scaling) / np.asarray(plain(64, 5e5), np.float32)
    assert share[0] == 1
    np.testing.assert_allclose(share[-1], 1 / scaling.factor, rtol=1e-6)


def test_yarn_makes_cosines_and_sines_larger():
    scalings = {None: YARN, 1.5: attrs.evolve(YARN, attention_factor=1.5)}
    for given_factor, scaling in scalings.items():
        table = rotary_table(5, 8, 1e4, scaling)
        wanted = 1 + 0.1 * math.log(4) if given_factor is None else given_factor
        np.testing.assert_allclose(np.hypot(table.cosine, table.sine), wanted, rtol=1e-6)
    for scaling in (None, LLAMA, RotaryScaling("linear", 2.0)):
        table = rotary_table(5, 8, 1e4, scaling)
        np.testing.assert_allclose(np.hypot(table.cosine, table.sine), 1, rtol=1e-6)


def test_positions_of_a_linear_scaling_are_those_of_a_text_that_is_shorter():
    longer, shorter = rotary_table(9, 8, 1e4, RotaryScaling("linear", 4.0)), rotary_table(3, 8, 1e4)
    for one, other in zip(longer, shorter, strict=True):
        np.testing.assert_allclose(one[::4], other, atol=1e-6)


SHORT = attrs.evolve(TINY, rotary_scaling=RotaryScaling("yarn", 4.0, original_length=8))


@functools.cache
def hidden(config):
    model, tokens = random_model(config), np.arange(12)[None] % 17
    return model, tokens, np.asarray(jax.jit(lambda model, tokens: model.hidden(tokens))(model, tokens))


def test_a_model_reads_by_its_scaling_with_a_cache_and_without():
    (model, tokens, found), (_, _, unscaled) = hidden(SHORT), hidden(TINY)
    assert np.abs(found[:, 1:] - unscaled[:, 1:]).max() > 0.01
    np.testing.assert_array_equal(found[:, 0], unscaled[:, 0])  # which attends to itself alone
    read = jax.jit(lambda model, caches, tokens: extend(model, caches, tokens, jnp.zeros(1, jnp.int32)))
    cached, _ = read(model, empty_caches(model, 1, 16), tokens)
    np.testing.assert_allclose(cached, found, rtol=2e-5, atol=2e-5)


def test_scaling_has_no_parameters():
    assert parameter_count(SHORT) == parameter_count(TINY)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "dynamic"}, "kind must be one of 'linear', 'llama3', 'yarn', not 'dynamic'"),
        ({"factor": 0.5}, r"factor must be at least 1, not 0\.5"),
        ({"factor": "8"}, "factor must be a finite number above 0, not '8'"),
        ({"original_length": None}, "kind 'yarn' needs original_length, the tokens of the context before it was ext"),
        ({"original_length": 0}, "original_length must be an integer of at least 1, not 0"),
        ({"slow_turns": 40.0}, r"slow_turns 40\.0 must be below fast_turns 32\.0"),
        ({"attention_factor": -1.0}, r"attention_factor must be a finite number above 0, not -1\.0"),
        ({"whole_pairs": "no"}, "whole_pairs must be one of False, True, not 'no'"),
        (
            {"kind": "linear"},
            "kind 'linear' does not read original_length, which is 64; leave it out or choose another kind",
        ),
        ({"kind": "llama3", "attention_factor": 1.1}, r"kind 'llama3' does not read attention_factor, which is 1\.1"),
    ],
)
def test_an_impossible_scaling_is_refused_with_what_is_possible(arguments, message):
    with pytest.raises(ValueError, match=f"RotaryScaling: {message}"):
        RotaryScaling(**{"kind": "yarn", "factor": 4.0, "original_length": 64, **arguments})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rotary_scaling": 8.0}, r"rotary_scaling must be a RotaryScaling, not 8\.0"),
        ({"rotary_scaling": YARN, "rope_theta": 1.0}, r"rope_theta 1\.0 with rotary_scaling must be above 1"),
    ],
)
def test_a_model_with_impossible_scaling_is_refused(change, message):
    with pytest.raises(ValueError, match=f"TransformerConfig: {message}"):
        TransformerConfig(17, width=8, layers=1, heads=2, key_value_heads=1, feed_forward=8, **change)
