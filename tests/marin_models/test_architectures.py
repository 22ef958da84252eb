"""Every architecture against its plain writing out, and the laws that hold for all of them."""

import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_transformer import plain_logits
from tiny_models import ROUTED, TINY, random_model

ARCHITECTURES = {
    "qwen3": TINY,
    "llama, windows, biases, gates": attrs.evolve(
        TINY, qk_norm="none", window=3, local_to_global=(1, 1), attention_bias=True, attention_gate=True, norm_gate=2
    ),
    "projections normalized, half rotated, tied": attrs.evolve(
        TINY, layers=3, window=2, local_to_global=(2, 1), qk_norm="projection", rotary_fraction=0.5, tied_head=True
    ),
    "sigmoid scores": ROUTED,
    "latent experts": attrs.evolve(ROUTED, layers=2, mixture=attrs.evolve(ROUTED.mixture, latent=5, top_k=3)),
    "softmax scores": attrs.evolve(
        ROUTED,
        layers=2,
        dense_layers=0,
        mixture=attrs.evolve(ROUTED.mixture, scoring="softmax", renormalize=False, shared_inner=0),
    ),
}
TOKENS = jax.random.randint(jax.random.key(0), (2, 8), 0, TINY.vocabulary)
SEGMENTS = jnp.array([[0] * 8, [0, 0, 0, 1, 1, 1, -1, -1]])
REAL = np.asarray(SEGMENTS) >= 0

architectures = pytest.mark.parametrize("name", ARCHITECTURES)


@jax.jit
def logits_and_statistics(model, tokens, bias):
    hidden, statistics, _ = model.forward(tokens, SEGMENTS, bias=bias)
    return hidden @ model.head, statistics


@functools.cache
def given(name):
    """A model of this architecture, all parameters away from their beginnings, and a bias for its routers."""
    config = ARCHITECTURES[name]
    bias = None if config.mixture is None else 0.2 * jax.random.normal(jax.random.key(3), (config.routed_layers, 4))
    return random_model(config), bias


@architectures
def test_logits_equal_the_architecture_written_out(name):
    model, bias = given(name)
    found, _ = logits_and_statistics(model, TOKENS, bias)
    for row, tokens, segments in zip(found, np.asarray(TOKENS), np.asarray(SEGMENTS), strict=True):
        wanted = plain_logits(model, tokens, segments, None if bias is None else np.asarray(bias, np.float64))
        np.testing.assert_allclose(row[segments >= 0], wanted[segments >= 0], rtol=2e-4, atol=2e-4)


@architectures
def test_no_logit_depends_on_a_later_token(name):
    model, bias = given(name)
    before, _ = logits_and_statistics(model, TOKENS, bias)
    after, _ = logits_and_statistics(model, TOKENS.at[:, 5:].set(0), bias)
    np.testing.assert_array_equal(after[:, :5], before[:, :5])
    assert np.abs(after - before)[0, 5:].max() > 0.01


@architectures
def test_no_logit_depends_on_another_document_or_on_padding(name):
    model, bias = given(name)
    before, counted = logits_and_statistics(model, TOKENS, bias)
    after, counted_after = logits_and_statistics(model, TOKENS.at[1, :3].set(0).at[1, 6:].set(1), bias)
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_array_equal(after[1, 3:6], before[1, 3:6])
    after, counted_after = logits_and_statistics(model, TOKENS.at[1, 6:].set(1), bias)
    np.testing.assert_array_equal(np.asarray(after)[REAL], np.asarray(before)[REAL])
    for one, other in zip(jax.tree.leaves(counted_after), jax.tree.leaves(counted), strict=True):
        np.testing.assert_array_equal(one, other)


def test_routers_report_layer_by_layer_and_dense_models_nothing():
    model, bias = given("sigmoid scores")
    _, statistics = logits_and_statistics(model, TOKENS, bias)
    assert statistics.load.shape == statistics.next_bias.shape == (ROUTED.routed_layers, 4)
    np.testing.assert_array_equal(statistics.load.sum(axis=1), ROUTED.mixture.top_k * REAL.sum())
    assert (statistics.loss > 0).all()
    assert logits_and_statistics(*given("qwen3")[:1], TOKENS, None)[1] is None


def test_the_bias_in_force_moves_choices_and_none_is_zero():
    model, _ = given("sigmoid scores")
    zero = jnp.zeros((ROUTED.routed_layers, 4))
    plain, statistics = logits_and_statistics(model, TOKENS, None)
    np.testing.assert_array_equal(plain, logits_and_statistics(model, TOKENS, zero)[0])
    _, pushed = logits_and_statistics(model, TOKENS, zero.at[1, 2].set(9.0))
    np.testing.assert_array_equal(pushed.load[0], statistics.load[0])
    assert pushed.load[1, 2] == REAL.sum()


def gradients(config):
    model, (_, bias) = random_model(config), given("sigmoid scores")

    def loss(model):
        hidden, statistics, _ = model.forward(TOKENS, SEGMENTS, bias=bias)
        return jnp.sum(jnp.where(SEGMENTS[..., None] < 0, 0, hidden) ** 3) + jnp.sum(statistics.loss)

    return loss, model


@functools.cache
def products(remat, latent=0):
    """Matrix products in the program of a gradient."""
    mixture = attrs.evolve(ROUTED.mixture, grouped_matmul="ragged_dot", latent=latent)
    loss, model = gradients(attrs.evolve(ROUTED, remat=remat, mixture=mixture))
    text = str(jax.make_jaxpr(jax.grad(loss))(model))
    return text.count("dot_general[")  # ragged ones too


def test_rematerialization_computes_again_what_it_does_not_keep():
    nothing, experts, everything = (products(remat) for remat in ("none", "save_moe", "full"))
    assert nothing < experts < everything


def test_what_is_kept_of_experts_saves_the_products_of_their_latent_space_too():
    nothing, experts, everything = (products(kind, 5) - products(kind) for kind in ("none", "save_moe", "full"))
    assert nothing == experts == 6 < everything


@pytest.mark.long
@pytest.mark.parametrize("remat", ["full", "save_moe"])
def test_rematerialization_changes_no_gradient(remat):
    kept, again = (
        jax.jit(jax.grad(loss))(model)
        for loss, model in (gradients(attrs.evolve(ROUTED, remat=kind)) for kind in ("none", remat))
    )
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(kept), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
