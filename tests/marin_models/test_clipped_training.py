"""MuonClip in the training step: what is measured, what is scaled back, and what stays as it was."""

import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulated_devices import on_devices
from test_training import same
from test_training_resumed import Stopped
from test_training_step import RUN, close, packed, step
from tiny_models import ADAMW, ROUTED, SHORT, TINY, random_model, tiny_mixture

from marin_kernels.attention import visible
from marin_models import Checkpoints, OptimizerConfig, attention, make_mesh, moving_average, train
from marin_models.mesh import parameter_shardings
from marin_models.optimizers import optimizer
from marin_models.query_key_clip import clip_attention
from marin_models.rotary import rotary_table
from marin_models.training import Batch, Program, TrainingState, train_step
from marin_models.transformer import Transformer

BARE = attrs.evolve(TINY, layers=1, qk_norm="none", attention_bias=True)
DEEP = attrs.evolve(
    ROUTED,
    layers=2,
    qk_norm="none",
    attention_bias=True,
    window=3,
    local_to_global=(1, 1),
    mixture=attrs.evolve(ROUTED.mixture, balancing="none"),
)
LOOPED = attrs.evolve(BARE, layers=5, remat="full")
CLIPPED = attrs.evolve(ADAMW, query_key_clip=0.05)
PROGRAM = Program(CLIPPED.rule, micro_batches=2, skip_not_finite=True)

forward = jax.jit(functools.partial(Transformer.forward, peaks=True))


def state_of(config):
    """A state whose parameters are all drawn anew."""
    model, move = random_model(config), optimizer(CLIPPED.rule, RUN.hyperparameters)
    return TrainingState(model, move.init(model), jnp.int32(0), jax.random.key(0), random_model(config, 6))


def run_of(bound, rate=0.02):
    rate, bound = jnp.float32(rate), jnp.float32(bound)
    numbers = {"learning_rate": rate, "adam_learning_rate": rate, "average": jnp.float32(0.9), "query_key_clip": bound}
    return RUN._replace(hyperparameters=RUN.hyperparameters._replace(**numbers))


def peaks_of(model, batch):
    return np.asarray(forward(model, batch.tokens[:, :-1], batch.segment_ids[:, :-1]).peaks)


@jax.jit
def plain_peaks(model, tokens, segments):
    """Layer by layer, from all logits at once."""
    config, length = model.config, tokens.shape[1]
    table = rotary_table(length, config.rotated_size, config.rope_theta, config.rotary_scaling)
    x, peaks = model.embedding[tokens], []
    for index, window in enumerate(config.windows):
        dense = index < config.dense_layers
        blocks, place = (model.dense_blocks, index) if dense else (model.blocks, index - config.dense_layers)
        block = jax.tree.map(lambda leaf, place=place: leaf[place], blocks)
        query, key, _ = block.attention.project(block.attention_norm(x), table)
        key = jnp.repeat(key, config.heads // config.key_value_heads, axis=2)
        logits = jnp.einsum("bthd,bshd->bhts", query, key) / np.sqrt(config.head_size)
        counted = visible(length, segments, window) & (segments >= 0)[:, :, None]
        peaks.append(jnp.where(counted[:, None], logits, -jnp.inf).max((0, 2, 3)))
        x = block(x, table, segments, window=window)[0]
    return jnp.stack(peaks)


def bitwise(one, other):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("config", [DEEP, LOOPED], ids=["mixed", "looped"])
def test_every_layer_reports_the_largest_logit_of_each_head(config):
    batch, model = packed(), random_model(config)
    wanted = plain_peaks(model, batch.tokens[:, :-1], batch.segment_ids[:, :-1])
    assert wanted.shape == (config.layers, 4)
    np.testing.assert_allclose(peaks_of(model, batch), wanted, rtol=1e-4)


def test_heads_above_the_bound_come_down_to_it_and_groups_below_it_stay_bit_for_bit():
    state, batch = state_of(BARE), packed()
    before = peaks_of(state.model, batch)
    groups = before.reshape(2, 2).max(axis=1)
    bound, low = groups.mean(), int(groups.argmin())
    assert bound > 0
    new, metrics = step(state, batch, run_of(bound, rate=0), program=PROGRAM)
    np.testing.assert_allclose(metrics.attention_peak, before.max(), rtol=1e-5)
    np.testing.assert_allclose(peaks_of(new.model, batch), np.minimum(before, bound), rtol=1e-5)
    old, found = state.model.blocks.attention, new.model.blocks.attention
    for name, width in (("query", 8), ("query_bias", 8), ("key", 4), ("key_bias", 4)):
        columns = slice(low * width, (low + 1) * width)
        one, other = np.asarray(getattr(found, name)), np.asarray(getattr(old, name))
        np.testing.assert_array_equal(one[..., columns], other[..., columns])
        assert (np.delete(one, columns, axis=-1) != np.delete(other, columns, axis=-1)).any()
    bitwise(clip_attention(new.model, jnp.zeros((1, 4)), 1.0), new.model)
    rest = [
        jax.tree.leaves((model.embedding, model.blocks.feed_forward, model.separate_head, model.final_norm))
        for model in (new.model, state.model)
    ]
    bitwise(*rest)


def test_layers_settle_from_the_bottom_one_by_each_step():
    """A layer that is clipped gives those above it other inputs: only the lowest one is at its bound at once."""
    model, batch, bound = random_model(DEEP), packed(), 0.3
    before = peaks_of(model, batch)
    assert (before.max(axis=1) > bound).all()
    for layer in range(2):
        model = clip_attention(model, jnp.asarray(peaks_of(model, batch)), bound)
        found = peaks_of(model, batch)
        assert (found[: layer + 1] <= bound * (1 + 1e-4)).all()
        if layer == 0:
            np.testing.assert_allclose(found[0], np.minimum(before[0], bound), rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("config", [DEEP, LOOPED], ids=["mixed", "looped"])
def test_steps_at_a_rate_of_zero_bring_every_layer_to_the_bound(config):
    state, batch, bound = state_of(config), packed(), 0.3
    for _ in range(config.layers):
        state, _ = step(state, batch, run_of(bound, rate=0), program=PROGRAM)
    peaks = peaks_of(state.model, batch)
    assert (peaks <= bound * (1 + 1e-4)).all()


def test_clipping_comes_after_the_update_and_leaves_the_moments_alone():
    state, batch = state_of(BARE), packed()
    peaks = jnp.asarray(peaks_of(state.model, batch))
    free, _ = step(state, batch, run_of(jnp.inf), program=PROGRAM)
    clipped, _ = step(state, batch, run_of(0.1), program=PROGRAM)
    bitwise(clipped.optimizer, free.optimizer)
    close(clipped.model, clip_attention(free.model, peaks, 0.1))
    close(clipped.average, moving_average(state.average, clipped.model, 0.9))
    bitwise(clipped.average.embedding, free.average.embedding)


def test_a_step_that_is_skipped_clips_nothing():
    state = state_of(BARE)
    new, metrics = step(state, packed(), run_of(0.01)._replace(z_loss=jnp.float32(jnp.inf)), program=PROGRAM)
    assert bool(metrics.skipped)
    assert np.isfinite(metrics.attention_peak)
    bitwise((new.model, new.average, new.optimizer), (state.model, state.average, state.optimizer))


def test_without_the_option_nothing_is_measured(monkeypatch):
    def measure(*arguments, **named):
        raise AssertionError("measured")

    monkeypatch.setattr(attention, "attention_logit_peaks", measure)
    trace = functools.partial(jax.eval_shape, functools.partial(train_step, program=Program(ADAMW.rule)))
    assert trace(state_of(BARE), packed(), RUN)[1].attention_peak is None
    with pytest.raises(AssertionError, match="measured"):
        jax.eval_shape(functools.partial(train_step, program=PROGRAM), state_of(BARE), packed(), RUN)


def test_a_run_records_its_peaks_and_goes_on_bit_for_bit(tmp_path):
    left = iter(range(1))

    def check():
        if next(left, None) is None:
            raise Stopped

    run = functools.partial(train, BARE, CLIPPED, SHORT, tiny_mixture())
    whole = run()
    assert whole.curve.attention_peak.shape == (13,)
    assert whole.curve.attention_peak.dtype == np.float32
    with pytest.raises(Stopped):
        run(checkpoints=Checkpoints(tmp_path, every_steps=3), check=check)
    resumed = run(checkpoints=Checkpoints(tmp_path))
    assert resumed.timing.resumed == 6
    same(resumed, whole)
    free = train(BARE, attrs.evolve(CLIPPED, query_key_clip=1e9), SHORT, tiny_mixture())  # the same program
    assert free.curve.attention_peak[0] == whole.curve.attention_peak[0]
    assert free.curve.attention_peak[-1] > 2 * whole.curve.attention_peak[-1]


@pytest.mark.parametrize("qk_norm", ["head", "projection"])
def test_models_with_normalized_queries_and_keys_are_refused(qk_norm):
    config = attrs.evolve(TINY, qk_norm=qk_norm)
    message = (
        f"query_key_clip is for models without QK-norm, and this one has qk_norm='{qk_norm}': .* changes no logit.*"
        "leave query_key_clip out of the OptimizerConfig, or make the TransformerConfig with qk_norm='none'"
    )
    with pytest.raises(ValueError, match=message):
        train(config, CLIPPED, SHORT, tiny_mixture())
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(functools.partial(train_step, program=PROGRAM), state_of(config), packed(), RUN)


@pytest.mark.parametrize("kind", ["muonh", "adamh"])
def test_rules_that_keep_norms_are_refused(kind):
    with pytest.raises(ValueError, match=f"kind='{kind}' keeps the norm of every matrix, .* choose kind='muon' or 'ad"):
        OptimizerConfig(kind, 0.02, query_key_clip=100.0)


def test_a_bound_is_a_number_above_zero():
    with pytest.raises(ValueError, match="query_key_clip must be a finite number above 0, not 0"):
        OptimizerConfig("muon", 0.02, query_key_clip=0)


def rows():
    random = np.random.default_rng(0)
    segments = np.sort(random.integers(0, 3, (8, 7)), axis=1)
    segments[3, 4:] = segments[6] = -1
    return Batch(jnp.asarray(random.integers(0, 18, (8, 7)), jnp.int32), jnp.asarray(segments, jnp.int32))


def on_mesh(function, model, mesh):
    with jax.set_mesh(mesh):
        placed = jax.device_put(model, parameter_shardings(model, mesh))
        return jax.device_get(jax.jit(function)(placed))


def wide():
    """A config for one device, and the same one for a mesh."""
    config = attrs.evolve(DEEP, vocabulary=18)
    return config, attrs.evolve(config, mixture=attrs.evolve(config.mixture, implementation="ring"))


@pytest.mark.long
@on_devices(8)
def test_a_step_on_a_mesh_is_the_step_on_one_device():
    alone, there = wide()

    def stepped(model):
        moments = optimizer(CLIPPED.rule, RUN.hyperparameters).init(model)
        state = TrainingState(model, moments, jnp.int32(0), jax.random.key(0))
        # At a rate of zero: Adam's first step follows signs, even of gradients that are rounding errors.
        state, metrics = train_step(state, rows(), run_of(0.2, rate=0), program=PROGRAM)
        return metrics.attention_peak, metrics.loss, metrics.gradient_norm, state.model

    wanted = jax.jit(stepped)(random_model(alone))
    found = on_mesh(stepped, random_model(there), make_mesh(data=2, expert=2, model=2))
    close(found, wanted)
