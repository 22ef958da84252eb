import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import products
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_kernels import (
    LinearCrossEntropy,
    cross_entropy,
    cross_entropy_blocked,
    linear_cross_entropy,
    token_cross_entropy,
)

EVERY = ["reference", "chunked", "blocked"]


def arrays(seed, tokens, width=5, vocabulary=11, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(seed), 4)
    hidden = jax.random.normal(keys[0], (tokens, width), dtype)
    head = jax.random.normal(keys[1], (width, vocabulary), dtype)
    targets = jax.random.randint(keys[2], (tokens,), 0, vocabulary)
    weights = jax.random.uniform(keys[3], (tokens,)) * (jnp.arange(tokens) % 3 != 1)
    return hidden, head, targets, weights


def with_gradients(hidden, head, *rest, **keywords):
    @jax.jit
    def loss_and_gradients(hidden, head):
        (value, metric), pull = jax.vjp(lambda h, w: linear_cross_entropy(h, w, *rest, **keywords), hidden, head)
        return value, metric, *pull(LinearCrossEntropy(jnp.float32(0.7), jnp.float32(1.3)))

    return loss_and_gradients(hidden, head)


def make_small(patch):
    """Chunks of four tokens; blocks of three or four tokens and four of eleven words."""
    patch.setattr(cross_entropy, "CHUNK", 4)
    patch.setattr(cross_entropy_blocked, "HELD", 44)
    patch.setattr(cross_entropy_blocked, "BLOCK", 4)


@pytest.fixture
def small_chunks(monkeypatch):
    make_small(monkeypatch)


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    tokens=st.sampled_from([1, 4, 7, 12]),
    weighted=st.booleans(),
    z_loss=st.sampled_from([0.0, 1e-2]),
    soft_cap=st.sampled_from([None, 2.0]),
)
@pytest.mark.parametrize("implementation", ["chunked", "blocked"])
def test_loss_and_gradients_equal_the_reference(implementation, seed, tokens, weighted, z_loss, soft_cap):
    hidden, head, targets, weights = arrays(seed, tokens)
    arguments = (hidden, head, targets, weights if weighted else None, z_loss)
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        found = with_gradients(*arguments, soft_cap=soft_cap, implementation=implementation)
    wanted = with_gradients(*arguments, soft_cap=soft_cap, implementation="reference")
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)


def test_targets_at_the_edges_of_blocks_are_found(small_chunks):
    hidden, head, _, _ = arrays(12, 11)
    targets = jnp.arange(11)  # the blocks begin at 0, 4 and 7; words 7 of the last one is the second one's own
    found = with_gradients(hidden, head, targets, implementation="blocked")
    for x, y in zip(found, with_gradients(hidden, head, targets, implementation="reference"), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("implementation", EVERY)
def test_the_loss_is_its_definition(implementation, small_chunks):
    hidden, head, targets, weights = arrays(3, 10)
    logits = np.asarray(hidden, np.float64) @ np.asarray(head, np.float64)
    normalizer = np.log(np.exp(logits).sum(-1))
    plain = normalizer - logits[np.arange(10), targets]
    found = linear_cross_entropy(hidden, head, targets, weights, 0.1, implementation=implementation)
    np.testing.assert_allclose(found.cross_entropy, np.average(plain, weights=weights), rtol=1e-5)
    np.testing.assert_allclose(found.loss, np.average(plain + 0.1 * normalizer**2, weights=weights), rtol=1e-5)


@pytest.mark.parametrize("implementation", EVERY)
def test_a_soft_cap_bends_the_logits(implementation, small_chunks):
    hidden, head, targets, _ = arrays(13, 10)
    logits = 3 * np.tanh(np.asarray(hidden, np.float64) @ np.asarray(head, np.float64) / 3)
    plain = np.log(np.exp(logits).sum(-1)) - logits[np.arange(10), targets]
    found = linear_cross_entropy(hidden, head, targets, soft_cap=3.0, implementation=implementation)
    np.testing.assert_allclose(found.loss, plain.mean(), rtol=1e-5)
    np.testing.assert_allclose(token_cross_entropy(hidden, head, targets, soft_cap=3.0), plain, rtol=1e-4)


def test_a_soft_cap_of_zero_is_refused():
    hidden, head, targets, _ = arrays(14, 3)
    with pytest.raises(ValueError, match=r"a soft cap of 0\.0 leaves no logits; give a positive number, or None"):
        linear_cross_entropy(hidden, head, targets, soft_cap=0.0)


@pytest.mark.parametrize("implementation", EVERY)
def test_the_reported_cross_entropy_has_no_gradient(implementation):
    hidden, head, targets, _ = arrays(4, 6)
    gradient = jax.grad(lambda h: linear_cross_entropy(h, head, targets, implementation=implementation)[1])(hidden)
    np.testing.assert_array_equal(gradient, np.zeros_like(hidden))


@pytest.mark.parametrize("implementation", EVERY)
def test_no_gradient_flows_to_weights_and_to_the_coefficient_of_the_z_loss(implementation):
    hidden, head, targets, weights = arrays(16, 6)

    def loss(weights, z_loss):
        return linear_cross_entropy(hidden, head, targets, weights, z_loss, implementation=implementation).loss

    for gradient in jax.grad(loss, (0, 1))(weights, jnp.float32(0.1)):
        np.testing.assert_array_equal(gradient, np.zeros_like(gradient))


@pytest.mark.parametrize("implementation", EVERY)
def test_tokens_of_weight_zero_change_nothing(implementation, small_chunks):
    hidden, head, targets, _ = arrays(5, 9)
    weights = jnp.ones(9).at[6:].set(0)
    changed = hidden.at[6:].set(1e3)
    a = with_gradients(hidden, head, targets, weights, implementation=implementation)
    b = with_gradients(changed, head, targets, weights, implementation=implementation)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(a[2][6:], np.zeros((3, 5)))


@pytest.mark.parametrize("implementation", EVERY)
def test_no_token_at_all_costs_nothing(implementation):
    hidden, head, targets, _ = arrays(6, 5)
    for x in with_gradients(hidden, head, targets, jnp.zeros(5), 1e-3, implementation=implementation):
        np.testing.assert_array_equal(x, np.zeros_like(x))


@pytest.mark.parametrize("implementation", EVERY)
def test_rows_without_tokens_cost_nothing(implementation):
    hidden, head, targets, _ = arrays(0, 0)
    loss, mean, d_hidden, d_head = with_gradients(hidden, head, targets, implementation=implementation)
    assert (float(loss), float(mean), d_hidden.shape) == (0.0, 0.0, (0, 5))
    np.testing.assert_array_equal(d_head, 0)


@pytest.mark.parametrize("implementation", EVERY)
def test_bfloat16_inputs_give_a_float32_loss_and_bfloat16_gradients(implementation, small_chunks):
    hidden, head, targets, weights = arrays(7, 9, dtype=jnp.bfloat16)
    exact = with_gradients(
        hidden.astype(jnp.float32), head.astype(jnp.float32), targets, weights, implementation="reference"
    )
    found = with_gradients(hidden, head, targets, weights, implementation=implementation)
    assert [x.dtype for x in found] == [jnp.float32, jnp.float32, jnp.bfloat16, jnp.bfloat16]
    for x, wanted in zip(found, exact, strict=True):
        np.testing.assert_allclose(x.astype(jnp.float32), wanted, atol=2e-2 * float(jnp.abs(wanted).max()))


@pytest.mark.parametrize(("implementation", "held"), [("chunked", "f32[4,11]"), ("blocked", "f32[3,4,4]")])
def test_the_program_never_holds_all_logits(implementation, held, small_chunks):
    hidden, head, targets, _ = arrays(8, 16)
    loss = partial(linear_cross_entropy, targets=targets, implementation=implementation)
    program = str(jax.make_jaxpr(jax.grad(lambda h, w: loss(h, w)[0], (0, 1)))(hidden, head))
    assert held in program
    assert "f32[16,11]" not in program


def test_chunks_are_equally_long_so_that_little_is_computed_of_padding(small_chunks):
    hidden, head, targets, _ = arrays(8, 9)
    for loss in (token_cross_entropy, partial(linear_cross_entropy, implementation="chunked")):
        program = str(jax.make_jaxpr(loss)(hidden, head, targets))
        assert "f32[3,11]" in program
        assert "f32[4,11]" not in program


def test_token_losses_never_hold_all_logits(small_chunks):
    hidden, head, targets, _ = arrays(8, 16)
    program = str(jax.make_jaxpr(token_cross_entropy)(hidden, head, targets))
    assert "f32[4,11]" in program
    assert "f32[16,11]" not in program


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize(("dtype", "precision"), [("bfloat16", "DEFAULT"), ("float32", "HIGHEST")])
def test_sums_are_float32_and_so_are_products_of_float32_on_every_device(
    implementation, dtype, precision, small_chunks
):
    hidden, head, targets, _ = arrays(17, 9, dtype=jnp.dtype(dtype))
    loss = partial(linear_cross_entropy, targets=targets, implementation=implementation)
    # The reverse pass of the reference is JAX's own, and so is the dtype of its products.
    function = (lambda *x: loss(*x)[0]) if implementation == "reference" else jax.grad(lambda *x: loss(*x)[0], (0, 1))
    assert products(function, hidden, head) == {(precision, "float32")}
    assert products(token_cross_entropy, hidden, head, targets) == {(precision, "float32")}


def test_the_default_holds_the_logits_of_fewer_tokens_where_the_vocabulary_is_large():
    hidden, targets = jnp.zeros((2048, 1)), jnp.zeros(2048, int)
    held = {}
    for words in (16_384, 16_385):
        program = str(jax.make_jaxpr(lambda w: linear_cross_entropy(hidden, w, targets))(jnp.zeros((1, words))))
        held[words] = "f32[1024,4096]" in program, "f32[683,4096]" in program
    assert held == {16_384: (False, False), 16_385: (False, True)}


def test_token_losses_are_the_terms_of_the_mean(small_chunks):
    hidden, head, targets, weights = arrays(9, 10)
    losses = token_cross_entropy(hidden, head, targets)
    mean = linear_cross_entropy(hidden, head, targets, weights).cross_entropy
    assert losses.shape == (10,)
    np.testing.assert_allclose(np.average(losses, weights=weights), mean, rtol=1e-5)


@pytest.mark.parametrize("implementation", EVERY)
def test_huge_logits_do_not_overflow(implementation, small_chunks):
    hidden, head, targets, weights = arrays(10, 6)
    for x in with_gradients(hidden * 1e4, head * 1e4, targets, weights, implementation=implementation):
        assert np.isfinite(np.asarray(x)).all()


@pytest.mark.parametrize("implementation", EVERY)
def test_log_normalizers_of_ten_thousand_are_exact(implementation, small_chunks):
    hidden, head, targets, _ = arrays(15, 6)
    hidden = hidden.at[:, 0].set(1e4)
    head = head.at[0].set(1.0)
    wanted = with_gradients(hidden, head, targets, None, 1e-6, implementation="reference")
    found = with_gradients(hidden, head, targets, None, 1e-6, implementation=implementation)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=2e-3)


def test_an_unknown_implementation_is_refused_with_the_known_ones():
    hidden, head, targets, _ = arrays(11, 3)
    # The run-time type checker of these tests objects first; without it the function's own message appears.
    unchecked = inspect.unwrap(linear_cross_entropy)
    with pytest.raises(
        ValueError, match="unknown implementation 'fastest'; choose one of 'default', 'reference', 'chunked'"
    ):
        unchecked(hidden, head, targets, implementation="fastest")
