"""One training step: micro-batches, masks of documents, mixed precision, and steps that are skipped."""

import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import ADAMW, SHORT, TINY, tiny_model

from marin_models.training import (
    PADDING,
    Batch,
    Program,
    Run,
    batch_gradients,
    initial_state,
    prediction_weights,
    train_step,
)

ONE = attrs.evolve(TINY, layers=1)
RUN = Run.of(ADAMW, SHORT)
TOKENS = np.random.default_rng(0).integers(0, 17, (4, 7)).astype(np.int32)
SEGMENTS = np.array([[0] * 7, [0, 0, 1, 1, 1, 2, 2], [0, 0, 0, 0, PADDING, PADDING, PADDING], [0, 1, 1, 1, 2, 2, 2]])

gradients = jax.jit(batch_gradients, static_argnums=3)
step = jax.jit(train_step, static_argnames="program")


def packed(segments=SEGMENTS):
    return Batch(jnp.asarray(TOKENS), jnp.asarray(segments, jnp.int32))


@functools.cache
def first_state(config=ONE):
    return initial_state(3, RUN.hyperparameters, config=config, rule=ADAMW.rule)


def close(one, other, rtol=2e-5):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        peak = float(np.abs(right).max())
        np.testing.assert_allclose(left, right, rtol=0, atol=rtol * max(peak, 1e-6))


@pytest.mark.parametrize("batch", [Batch(jnp.asarray(TOKENS)), packed()], ids=["windows", "documents"])
def test_micro_batches_give_the_loss_and_gradients_of_the_whole_batch(batch):
    whole = gradients(tiny_model(config=ONE), batch, RUN, Program(ADAMW.rule))
    close(gradients(tiny_model(config=ONE), batch, RUN, Program(ADAMW.rule, micro_batches=2)), whole)


def test_the_loss_is_the_mean_over_tokens_that_predict_inside_their_document():
    logits = np.asarray(tiny_model(config=ONE)(jnp.asarray(TOKENS[:, :-1]), jnp.asarray(SEGMENTS[:, :-1])), np.float64)
    chosen = np.take_along_axis(logits, TOKENS[:, 1:, None].astype(int), axis=-1)[..., 0]
    nats = np.log(np.exp(logits).sum(-1)) - chosen
    wanted = [[1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1], [1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 1, 1]]
    weights = np.asarray(prediction_weights(jnp.asarray(SEGMENTS)))
    np.testing.assert_array_equal(weights, wanted)
    loss = gradients(tiny_model(config=ONE), packed(), RUN, Program(ADAMW.rule)).loss
    np.testing.assert_allclose(loss, (nats * weights).sum() / weights.sum(), rtol=1e-5)


def test_documents_packed_side_by_side_give_the_gradients_of_documents_in_rows_of_their_own():
    side_by_side = Batch(jnp.asarray(TOKENS[1:2]), jnp.asarray(SEGMENTS[1:2], jnp.int32))
    apart = np.zeros((3, 7), np.int32), np.full((3, 7), PADDING, np.int32)
    for row, (begin, end) in enumerate(((0, 2), (2, 5), (5, 7))):
        apart[0][row, : end - begin], apart[1][row, : end - begin] = TOKENS[1, begin:end], row
    program = Program(ADAMW.rule)
    together = gradients(tiny_model(config=ONE), side_by_side, RUN, program)
    close(gradients(tiny_model(config=ONE), Batch(*map(jnp.asarray, apart)), RUN, program), together)


def test_a_batch_without_a_prediction_changes_no_gradient_to_nan():
    nothing = packed(np.full_like(SEGMENTS, PADDING))
    for count in (1, 2):
        loss, _, found, _ = gradients(tiny_model(config=ONE), nothing, RUN, Program(ADAMW.rule, micro_batches=count))
        assert loss == 0
        assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(found))


def test_in_mixed_precision_parameters_moments_and_gradients_stay_fp32_and_the_loss_is_near():
    config = attrs.evolve(ONE, dtype="bfloat16")
    model = tiny_model(config=config)
    assert model.hidden(jnp.asarray(TOKENS[:, :-1])).dtype == jnp.bfloat16
    loss, _, found, _ = gradients(model, packed(), RUN, Program(ADAMW.rule))
    full = gradients(tiny_model(config=ONE), packed(), RUN, Program(ADAMW.rule)).loss
    assert {leaf.dtype for leaf in jax.tree.leaves((model, found))} == {jnp.dtype(jnp.float32)}
    np.testing.assert_allclose(loss, full, rtol=2e-2)


def test_a_step_that_is_not_finite_is_skipped_and_the_next_one_is_made():
    state, program = first_state(), Program(ADAMW.rule, skip_not_finite=True)
    broken = RUN._replace(z_loss=jnp.asarray(jnp.inf))
    skipped, metrics = step(state, packed(), broken, program=program)
    assert bool(metrics.skipped)
    assert not np.isfinite(metrics.gradient_norm)
    assert int(skipped.step) == 1
    for before, after in zip(
        jax.tree.leaves((state.model, state.optimizer)),
        jax.tree.leaves((skipped.model, skipped.optimizer)),
        strict=True,
    ):
        np.testing.assert_array_equal(before, after)
    _, metrics = step(skipped, packed(), RUN, program=program)
    assert not bool(metrics.skipped)
    assert np.isfinite(metrics.gradient_norm)


def test_a_step_compiles_from_shapes_alone():
    state = jax.eval_shape(
        functools.partial(initial_state, config=ONE, rule=ADAMW.rule),
        jax.ShapeDtypeStruct((), jnp.int32),
        RUN.hyperparameters,
    )
    batch = Batch(jax.ShapeDtypeStruct((4, 7), jnp.int32))
    lowered = step.lower(state, batch, jax.eval_shape(lambda: RUN), program=Program(ADAMW.rule))
    assert jax.tree.map(lambda leaf: leaf.shape, lowered.out_info[0]) == jax.tree.map(lambda leaf: leaf.shape, state)
