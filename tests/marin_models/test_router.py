import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixtures import SIX, plain_weights, popular_logits

from marin_models.router import Router, route, router_z_loss

ALL = jnp.ones(16, bool)
GLM = attrs.evolve(SIX, scale=2.5)
QWEN = attrs.evolve(SIX, scoring="softmax", balancing="none")
OLMOE = attrs.evolve(QWEN, renormalize=False)
MARIN = attrs.evolve(SIX, balance_on="logits", scale=2.5)

logits_of_six = functools.partial(popular_logits, 16, 6)


@functools.partial(jax.jit, static_argnames="config")
def routed(logits, bias=None, valid=None, *, config):
    return route(logits, bias, valid, config=config)


@jax.jit
@functools.partial(jax.grad, argnums=(0, 1))
def weight_gradients(logits, bias, valid, direction):
    return jnp.sum(route(logits, bias, valid, config=GLM).weights * direction)


@jax.jit
def z_loss(logits, valid=None):
    return jax.value_and_grad(router_z_loss)(logits, valid)


@pytest.mark.parametrize("config", [GLM, QWEN, OLMOE, MARIN])
def test_a_biased_choice_is_weighed_by_unbiased_scores(config):
    logits, bias = logits_of_six(), jnp.array([0.3, -0.2, 0.0, 0.5, -0.5, 0.1])
    found = routed(logits, bias, config=config)
    wanted = (found.scores if config.balance_on == "scores" else logits) + bias
    np.testing.assert_array_equal(found.experts, np.argsort(-wanted, axis=-1)[:, :2])
    np.testing.assert_allclose(found.weights, plain_weights(logits, found.experts, config), rtol=1e-5)
    np.testing.assert_allclose(found.threshold, np.sort(wanted)[:, -3], rtol=1e-6)
    if config.renormalize:
        np.testing.assert_allclose(found.weights.sum(-1), config.scale, rtol=1e-6)


def test_mixtral_which_normalizes_the_chosen_logits_is_the_renormalized_softmax():
    found = routed(logits_of_six(), config=QWEN)
    chosen = np.exp(np.take_along_axis(np.asarray(logits_of_six()), np.asarray(found.experts), axis=-1))
    np.testing.assert_allclose(found.weights, chosen / chosen.sum(-1, keepdims=True), rtol=1e-5)


def test_equal_preferences_go_to_the_lowest_numbers():
    found = routed(jnp.zeros((16, 6)), config=SIX)
    np.testing.assert_array_equal(found.experts, np.broadcast_to([0, 1], (16, 2)))
    np.testing.assert_array_equal(found.threshold, np.full(16, 0.5))


@pytest.mark.parametrize("top_k", [1, 5, 6])
def test_from_one_to_all_experts_may_be_chosen(top_k):
    config = attrs.evolve(SIX, top_k=top_k, balancing="none")
    found = routed(logits_of_six(), config=config)
    np.testing.assert_array_equal(found.experts, np.argsort(-logits_of_six())[:, :top_k])
    assert np.all(np.isinf(found.threshold)) == (top_k == 6)


def test_gradients_flow_through_the_weights_and_not_through_the_choice():
    logits, bias = logits_of_six(), jnp.linspace(-0.4, 0.4, 6)
    direction = jnp.asarray(np.random.default_rng(1).standard_normal((16, 2)), jnp.float32)
    fixed = routed(logits, bias, config=GLM).experts

    @jax.jit
    @jax.grad
    def of_fixed_choice(logits):
        scores = jnp.take_along_axis(jax.nn.sigmoid(logits), fixed, axis=-1)
        return jnp.sum(2.5 * scores / scores.sum(-1, keepdims=True) * direction)

    of_logits, of_bias = weight_gradients(logits, bias, ALL, direction)
    np.testing.assert_allclose(of_logits, of_fixed_choice(logits), rtol=1e-4, atol=1e-6)
    assert np.count_nonzero(of_logits) == 16 * 2
    np.testing.assert_array_equal(of_bias, 0)


def test_no_gradient_flows_through_what_balancing_measures():
    @jax.jit
    @jax.grad
    def gradient(logits):
        found = route(logits, jnp.ones(6), config=MARIN)
        return jnp.sum(found.preferences) + jnp.sum(found.threshold)

    np.testing.assert_array_equal(gradient(logits_of_six()), 0)


def test_padding_has_no_weight_and_no_gradient():
    valid = ALL.at[3].set(False)
    found = routed(logits_of_six(), None, valid, config=GLM)
    whole = routed(logits_of_six(), config=GLM)
    np.testing.assert_array_equal(found.weights[3], 0)
    np.testing.assert_array_equal(found.weights[valid], whole.weights[valid])
    gradient, _ = weight_gradients(logits_of_six(), jnp.zeros(6), valid, jnp.ones((16, 2)).at[:, 0].set(0))
    np.testing.assert_array_equal(np.any(gradient != 0, axis=-1), valid)


def test_scores_that_all_vanish_give_weights_that_are_numbers():
    found = routed(jnp.full((16, 6), -200.0), config=GLM)
    np.testing.assert_array_equal(found.weights, 0)


def test_the_router_computes_in_float32_whatever_it_is_given():
    random = np.random.default_rng(1)
    shapes = jax.eval_shape(lambda key: Router(SIX, 32, scale=1.0, key=key), jax.random.key(0))
    router = jax.tree.map(lambda leaf: jnp.asarray(random.standard_normal(leaf.shape), jnp.float32), shapes)
    x = jnp.asarray(random.standard_normal((16, 32)), jnp.bfloat16)
    found = jax.jit(lambda router, x: router(x))(router, x)
    assert {leaf.dtype for leaf in found[1:]} == {jnp.dtype(jnp.float32)}
    exact = np.asarray(x, np.float64) @ np.asarray(router.weight, np.float64)
    np.testing.assert_allclose(found.logits, exact, rtol=1e-5, atol=1e-5)


def test_the_z_loss_is_the_mean_squared_normalizer_of_valid_tokens():
    logits, valid = logits_of_six(), ALL.at[:5].set(False)
    squares = np.log(np.exp(np.asarray(logits, np.float64)).sum(-1)) ** 2
    np.testing.assert_allclose(z_loss(logits)[0], squares.mean(), rtol=1e-5)
    found, gradient = z_loss(logits, valid)
    np.testing.assert_allclose(found, squares[5:].mean(), rtol=1e-5)
    np.testing.assert_array_equal(gradient[:5], 0)
    assert z_loss(logits, ~ALL)[0] == 0
