"""Laws of the router and of balancing: they hold for all logits, biases, paddings and shards."""

import functools
import math

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_devices import on_devices

from marin_models.balancing import measured_bias, upper_quantiles
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.router import route

TOKENS, EXPERTS = 24, 6
CONFIG = MixtureOfExpertsConfig(EXPERTS, 2, 8, balance_on="logits")
CONFIGS = [CONFIG, attrs.evolve(CONFIG, top_k=EXPERTS - 1, scoring="softmax", balance_on="scores")]


@functools.partial(jax.jit, static_argnames="config")
def routed(logits, bias, valid, *, config):
    """What the router does, and what balancing by quantiles makes of it."""
    found = route(logits, bias, valid, config=config)
    load = jnp.sum((found.experts[..., None] == jnp.arange(config.experts)) & valid[:, None, None], (0, 1), jnp.int32)
    return found, load, measured_bias(found, load, bias, valid, config=config)


def eighths(size, low, high):
    """Arrays of multiples of 1/8: sums of them are exact, and many are equal."""
    numbers = st.integers(8 * low, 8 * high)
    return st.lists(numbers, min_size=size, max_size=size).map(lambda found: jnp.array(found, jnp.float32) / 8)


logits = eighths(TOKENS * EXPERTS, -2, 2).map(lambda found: found.reshape(TOKENS, EXPERTS))
biases = eighths(EXPERTS, -1, 1)
paddings = st.lists(st.booleans(), min_size=TOKENS, max_size=TOKENS).map(jnp.array)
configs = st.sampled_from(CONFIGS)


@given(logits, biases, paddings, configs)
def test_the_choice_is_the_start_of_a_stable_sort(logits, bias, valid, config):
    found, load, _ = routed(logits, bias, valid, config=config)
    order = np.argsort(-(found.preferences + bias), axis=-1, stable=True)
    if config.balance_on == "logits":  # exact, ties included
        np.testing.assert_array_equal(found.experts, order[:, : config.top_k])
    biased = np.sort(found.preferences + bias)[:, ::-1]
    np.testing.assert_allclose(found.threshold, biased[:, config.top_k], rtol=1e-6, atol=1e-6)
    assert all(len(set(row)) == config.top_k for row in np.asarray(found.experts))
    assert load.sum() == config.top_k * valid.sum()


@given(logits, biases, st.integers(-4, 4))
def test_a_constant_added_to_the_bias_changes_nothing(logits, bias, constant):
    valid = jnp.ones(TOKENS, bool)
    found, load, after = routed(logits, bias, valid, config=CONFIG)
    shifted, same_load, same_after = routed(logits, bias + constant, valid, config=CONFIG)
    np.testing.assert_array_equal(found.experts, shifted.experts)
    np.testing.assert_array_equal(found.weights, shifted.weights)
    np.testing.assert_array_equal(load, same_load)
    np.testing.assert_allclose(after, same_after, atol=1e-5)


@given(logits, biases, paddings, configs, st.randoms(use_true_random=False))
def test_the_order_of_tokens_does_not_matter(logits, bias, valid, config, random):
    order = np.array(random.sample(range(TOKENS), TOKENS))
    found, load, after = routed(logits, bias, valid, config=config)
    turned, same_load, same_after = routed(logits[order], bias, valid[order], config=config)
    np.testing.assert_array_equal(found.experts[order], turned.experts)
    np.testing.assert_array_equal(found.weights[order], turned.weights)
    np.testing.assert_array_equal(load, same_load)
    np.testing.assert_array_equal(after, same_after)


@given(st.integers(0, 2**32 - 1), paddings, st.permutations(range(EXPERTS)))
def test_renumbered_experts_are_chosen_by_their_new_numbers(seed, valid, order):
    random, order = np.random.default_rng(seed), np.array(order)
    drawn = random.standard_normal((TOKENS + 1, EXPERTS)).astype(np.float32)  # without ties
    logits, bias = jnp.asarray(drawn[1:]), jnp.asarray(drawn[0])
    found, load, after = routed(logits, bias, valid, config=CONFIG)
    renumbered, other_load, other_after = routed(logits[:, order], bias[order], valid, config=CONFIG)
    np.testing.assert_array_equal(found.experts, order[renumbered.experts])
    np.testing.assert_array_equal(load[order], other_load)
    np.testing.assert_allclose(after[order], other_after, atol=1e-6)


@given(logits, biases, paddings, configs, st.integers(-50, 50))
def test_what_padding_holds_does_not_matter(logits, bias, valid, config, garbage):
    found, load, after = routed(logits, bias, valid, config=config)
    other, same_load, same_after = routed(jnp.where(valid[:, None], logits, garbage), bias, valid, config=config)
    np.testing.assert_array_equal(found.weights, other.weights)
    np.testing.assert_array_equal(load, same_load)
    np.testing.assert_array_equal(after, same_after)


@given(logits, biases, paddings, configs)
def test_a_next_bias_has_mean_zero(logits, bias, valid, config):
    after = routed(logits, bias - jnp.mean(bias), valid, config=config)[2]
    np.testing.assert_allclose(jnp.mean(after), 0, atol=1e-6)


BINS = 100
by_histogram = jax.jit(functools.partial(upper_quantiles, bins=BINS))
exact = jax.jit(functools.partial(upper_quantiles, bins=None))


def plain_histogram(values, share):
    """The quantile of one expert from a histogram that is built."""
    low, extent = values.min(), values.max() - values.min()
    places = np.clip(((values - low) / (extent or np.float32(1)) * BINS).astype(int), 0, BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    above, target = np.cumsum(counts[::-1])[::-1], share * len(values)
    found = np.flatnonzero(above >= target)[-1]
    return low + extent / BINS * (found + (above[found] - target) / counts[found])


@given(st.integers(0, 2**32 - 1), paddings, st.floats(0.01, 0.99), st.sampled_from([1e-3, 1.0, 1e3]), st.booleans())
def test_a_quantile_by_histogram_is_within_one_bin_of_the_exact_one(seed, valid, share, spread, even):
    random = np.random.default_rng(seed)
    values = spread * random.standard_normal((TOKENS, EXPERTS)) ** (1 if even else 3) + 5 * random.standard_normal(
        EXPERTS
    )
    values = jnp.asarray(values, jnp.float32)
    found, wanted = by_histogram(values, valid, share), exact(values, valid, share)
    if not valid.any():
        assert np.isnan(found).all()
        assert np.isnan(wanted).all()
        return
    kept = np.asarray(values)[np.asarray(valid)]
    one_bin = (kept.max(0) - kept.min(0)) / BINS
    rounding = 1e-5 * np.abs(kept).max()
    assert np.all(np.abs(found - wanted) <= one_bin + rounding)
    built = [plain_histogram(column, np.float32(share)) for column in kept.T]
    close = np.abs(found - np.array(built)) <= one_bin + rounding
    assert close.all()
    assert np.mean(np.abs(found - np.array(built)) <= rounding) >= 0.5  # all but those where rounding moves a bin


@on_devices(8)
def any_number_of_shards_measures_the_same_bias(seed, valid_of_shards):
    from marin_models.mesh import make_mesh

    random = np.random.default_rng(seed)
    logits = 3 * random.standard_normal((256, EXPERTS)).astype(np.float32) + random.standard_normal(EXPERTS)
    valid = np.concatenate([np.arange(32) < count for count in valid_of_shards])
    bias = jnp.asarray(random.standard_normal(EXPERTS), jnp.float32)
    wanted = routed(jnp.asarray(logits, jnp.float32), bias, valid, config=CONFIG)
    for sizes in ({}, {"expert": 2}, {"data": 2, "expert": 2}, {"replica": 2, "data": 2, "expert": 2}):
        mesh = make_mesh(jax.devices()[: math.prod(sizes.values())], **sizes)
        with jax.set_mesh(mesh):
            spec = jax.P(("replica", "data", "expert"))
            placed = (jax.device_put(of, spec) for of in (logits.astype(np.float32), valid))
            found = routed(next(placed), bias, next(placed), config=CONFIG)
        jax.tree.map(np.testing.assert_array_equal, found, wanted)


@pytest.mark.parametrize(
    "valid_of_shards", [[32] * 8, [32, 1, 17, 5, 30, 2, 9, 31], [0, 32, 0, 0, 3, 0, 0, 7], [0] * 8], ids=str
)
def test_the_next_bias_is_bitwise_the_same_on_1_2_4_and_8_shards(valid_of_shards):
    any_number_of_shards_measures_the_same_bias(len(valid_of_shards), valid_of_shards)
