import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixtures import SIX, loads, plain_scores, popular_logits, routed

from marin_models.balancing import (
    auxiliary_loss,
    begin_step,
    end_step,
    initial_balancing,
    load_entropy,
    max_violation,
    measured_bias,
    sign_bias,
    upper_quantiles,
)
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.router import route

MANY = MixtureOfExpertsConfig(64, 4, 8, balance_on="logits")
ALL = jnp.ones(8192, bool)


def violations(batches, config):
    """MaxVio of each batch when each is routed by what the one before it asked for."""
    bias, found = jnp.zeros(config.experts), []
    for logits in batches:
        _, load, bias = routed(logits, bias, jnp.ones(len(logits), bool), config=config)
        found.append(float(max_violation(load)))
    return found


def test_one_update_by_quantiles_balances_the_same_batch():
    """The anchors of Su's method: 5.9 before, below 0.35 after one update, below 0.15 after two."""
    random = [popular_logits(8192, 64, seed) for seed in (1, 3)]
    for logits in random:
        before, once, twice, *_, last = violations([logits] * 6, MANY)
        assert before > 3
        assert once < 0.35
        assert twice < 0.15
        assert last < 0.06


def test_a_bias_by_quantiles_has_a_mean_of_zero():
    _, _, bias = routed(popular_logits(8192, 64, 1), jnp.zeros(64), ALL, config=MANY)
    assert abs(float(jnp.mean(bias))) < 1e-5 < float(jnp.max(jnp.abs(bias)))


def test_a_fresh_batch_is_balanced_by_the_one_before_it():
    logits = popular_logits(4 * 8192, 64, 1).reshape(4, 8192, 64)
    before, once, twice, thrice = violations(logits, MANY)
    assert before > 3
    assert once < 0.4
    assert max(twice, thrice) < 0.2


@pytest.mark.parametrize("scoring", ["sigmoid", "softmax"])
def test_quantiles_of_scores_balance_too(scoring):
    config = attrs.evolve(MANY, balance_on="scores", scoring=scoring)
    *_, last = violations([popular_logits(8192, 64, 1)] * 5, config)
    assert last < 0.3


def test_small_steps_against_the_excess_balance_in_the_long_run():
    config = attrs.evolve(MANY, balancing="sign", sign_step=0.1)
    before, *_, last = violations([popular_logits(8192, 64, 1)] * 40, config)
    assert before > 3
    assert last < 0.5


def test_a_step_by_sign_moves_the_busy_down_and_the_idle_up():
    found = sign_bias(jnp.array([5, 1, 3, 3]), jnp.array([0.5, 0.1, -0.3, -0.3]), 0.25)
    np.testing.assert_allclose(found, [0.25, 0.35, -0.3, -0.3], rtol=1e-6)


@pytest.mark.parametrize("balancing", ["none", "auxiliary"])
def test_without_a_moving_bias_the_given_one_stays(balancing):
    bias = jnp.arange(6.0)
    config = attrs.evolve(SIX, balancing=balancing)
    np.testing.assert_array_equal(routed(popular_logits(16, 6), bias, ALL[:16], config=config)[2], bias)


@pytest.mark.parametrize("balancing", ["quantiles", "sign"])
def test_a_batch_of_padding_asks_for_no_change(balancing):
    bias, config = jnp.array([0.3, -0.3, 0.1, -0.1, 0.7, -0.7]), attrs.evolve(SIX, balancing=balancing)
    _, load, after = routed(popular_logits(16, 6), bias, ~ALL[:16], config=config)
    assert load.sum() == 0
    np.testing.assert_array_equal(after, bias)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_leave_the_bias_alone(bad):
    bias = jnp.array([0.3, -0.3, 0.1, -0.1, 0.7, -0.7])
    config = attrs.evolve(SIX, balance_on="logits")
    logits = popular_logits(16, 6).at[3].set(bad)
    np.testing.assert_array_equal(routed(logits, bias, ALL[:16], config=config)[2], bias)


def test_equal_logits_ask_for_no_bias():
    np.testing.assert_allclose(routed(jnp.ones((16, 6)), jnp.zeros(6), ALL[:16], config=SIX)[2], 0, atol=1e-6)


def test_with_all_experts_but_one_chosen_every_load_is_evened():
    config = attrs.evolve(SIX, top_k=5, balance_on="logits")
    assert violations([popular_logits(600, 6)] * 8, config)[-1] < 0.03


def test_no_gradient_flows_through_the_next_bias():
    @jax.jit
    @jax.grad
    def gradient(logits):
        found = route(logits, None, config=SIX)
        return jnp.sum(measured_bias(found, loads(found.experts, ALL[:16], 6), None, config=SIX) ** 2)

    np.testing.assert_array_equal(gradient(popular_logits(16, 6)), 0)


def test_exact_quantiles_are_order_statistics():
    values = jnp.asarray(np.random.default_rng(0).permutation(12).reshape(6, 2), jnp.float32)
    ranked = -np.sort(-np.asarray(values), axis=0)
    exact = jax.jit(lambda valid, share: upper_quantiles(values, valid, share, bins=None))
    np.testing.assert_array_equal(exact(ALL[:6], 1 / 3), ranked[1])
    np.testing.assert_array_equal(exact(ALL[:6], 0.34), ranked[2])
    np.testing.assert_array_equal(exact(~ALL[:6], 0.5), np.nan)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.45, 0.8])
def test_quantiles_of_a_histogram_lie_inside_of_its_bins(share):
    values = jnp.linspace(0.0, 1.0, 1001)[:, None]
    (found,) = upper_quantiles(values, None, share, bins=2)
    np.testing.assert_allclose(found, 1 - share, atol=5e-3)


@pytest.mark.parametrize("bins", [2, 5, 16, 33])
@pytest.mark.parametrize("share", [0.02, 0.25, 0.97])
def test_the_bin_that_is_searched_for_is_the_one_of_a_histogram_that_is_built(bins, share):
    values = np.random.default_rng(bins).exponential(size=997).astype(np.float32)
    counts, edges = np.histogram(values, bins)
    above = np.append(np.cumsum(counts[::-1])[::-1], 0)  # at or above each edge
    place = np.flatnonzero(above >= share * len(values))[-1]
    inside = (above[place] - share * len(values)) / counts[place]
    wanted = edges[place] + (edges[place + 1] - edges[place]) * inside
    (found,) = upper_quantiles(jnp.asarray(values[:, None]), None, share, bins=bins)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_what_is_pending_comes_into_force_with_the_next_step():
    first, second = jnp.ones((2, 4)), 2 * jnp.ones((2, 4))
    state = initial_balancing(2, 4)
    np.testing.assert_array_equal(state.in_force, 0)
    state = end_step(begin_step(state), first)
    np.testing.assert_array_equal(state.in_force, 0)
    state = begin_step(state)
    np.testing.assert_array_equal(state.in_force, first)
    state = end_step(state, second)
    np.testing.assert_array_equal((state.in_force, state.pending), (first, second))


@pytest.mark.parametrize("scoring", ["sigmoid", "softmax"])
def test_the_auxiliary_loss_is_load_times_mean_probability(scoring):
    config, valid = attrs.evolve(SIX, scoring=scoring), jnp.arange(16) > 3
    found, load, _ = routed(popular_logits(16, 6), jnp.zeros(6), valid, config=config)
    scores = plain_scores(popular_logits(16, 6), config)
    probabilities = (scores / scores.sum(-1, keepdims=True))[4:].mean(0)
    wanted = 6 * np.dot(np.asarray(load) / load.sum(), probabilities)
    loss = jax.jit(functools.partial(auxiliary_loss, config=config))
    np.testing.assert_allclose(loss(found, load, valid), wanted, rtol=1e-5)
    assert loss(found, jnp.zeros_like(load), ~ALL[:16]) == 0


@pytest.mark.parametrize("scoring", ["sigmoid", "softmax"])
def test_descending_the_auxiliary_loss_evens_the_load(scoring):
    config = attrs.evolve(SIX, scoring=scoring, balancing="auxiliary")

    @jax.jit
    @jax.grad
    def gradient(popularity):
        found = route(logits + popularity, None, config=config)
        return auxiliary_loss(found, loads(found.experts, ALL[: len(logits)], 6), config=config)

    logits, popularity = popular_logits(600, 6, 2), jnp.zeros(6)
    for _ in range(50):
        popularity -= gradient(popularity)
    before, after = (violations([logits + shift], config)[0] for shift in (0, popularity))
    assert before > 0.5
    assert after < before / 2


def test_loads_are_summed_up_by_their_largest_excess_and_their_entropy():
    loads_of_layers = jnp.array([[6, 1, 1, 0], [3, 3, 3, 3], [6, 0, 0, 0], [0, 0, 0, 0]])
    found, entropy = jax.jit(lambda load: (max_violation(load), load_entropy(load)))(loads_of_layers)
    np.testing.assert_array_equal(found, [2, 0, 3, 0])
    np.testing.assert_allclose(entropy[1:], [np.log(4), 0, 0], atol=1e-6)
