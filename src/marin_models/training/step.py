"""One optimizer step as a pure function, and compiled runs of them."""

import functools
from typing import NamedTuple

import attrs
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from marin_kernels import CrossEntropyImplementation
from marin_models.averaging import moving_average
from marin_models.balancing import begin_step, end_step
from marin_models.mixture_of_experts import RouterStatistics, merged
from marin_models.optimizers import Hyperparameters, OptimizerConfig, Rule, clip_by_norm, optimizer
from marin_models.packing import PADDING
from marin_models.query_key_clip import check_clippable, clip_attention
from marin_models.schedules import schedule_factor
from marin_models.training.config import TrainingConfig
from marin_models.training.loss import mean_cross_entropy
from marin_models.training.state import TrainingState
from marin_models.transformer import Transformer


class Batch(NamedTuple):
    """Rows of tokens; each but the last of a row predicts the one after it.

    Attributes:
        tokens: the model reads ``[..., :-1]`` and predicts ``[..., 1:]``.
        segment_ids: the document of each token; `PADDING` marks what is none. A token sees and predicts its own
            document only. None: each row is one document.
    """

    tokens: Int[Array, "*steps batch length_and_one"]
    segment_ids: Int[Array, "*steps batch length_and_one"] | None = None


class RouterMetrics(NamedTuple):
    """What the routed layers report of a step; attributes as in `marin_models.mixture_of_experts.RouterStatistics`."""

    max_violation: Float[Array, "*steps layers"]
    load_entropy: Float[Array, "*steps layers"]
    auxiliary_loss: Float[Array, "*steps layers"]
    z_loss: Float[Array, "*steps layers"]
    dropped_by_sender: Int[Array, "*steps layers"]
    dropped_by_receiver: Int[Array, "*steps layers"]


class StepMetrics(NamedTuple):
    """What a step reports.

    Attributes:
        loss: cross-entropy of the batch before the update, nats per predicted token.
        gradient_norm: before clipping.
        learning_rate: of the matrices.
        skipped: the loss or the gradient was not finite, and nothing was updated.
        tokens: that the batch predicts.
        router: of the routed layers; None if there are none.
        attention_peak: the largest logit of attention in any head of any layer, before the update; None: not
            measured (see `marin_models.OptimizerConfig.query_key_clip`).
    """

    loss: Float[Array, "*steps"]
    gradient_norm: Float[Array, "*steps"]
    learning_rate: Float[Array, "*steps"]
    skipped: Bool[Array, "*steps"]
    tokens: Int[Array, "*steps"]
    router: RouterMetrics | None
    attention_peak: Float[Array, "*steps"] | None = None


class Run(NamedTuple):
    """The numbers of one run; inputs of the compiled step, so that runs which differ only here share a program."""

    hyperparameters: Hyperparameters
    steps: Int[Array, ""]
    z_loss: Float[Array, ""]

    @classmethod
    def of(cls, optimizer_config: OptimizerConfig, training_config: TrainingConfig) -> "Run":
        """The numbers that the configs of a run hold."""
        return cls(
            Hyperparameters.of(optimizer_config),
            jnp.asarray(training_config.steps, jnp.int32),
            jnp.asarray(training_config.z_loss, jnp.float32),
        )


@attrs.frozen
class Program:
    """What of a run is compiled in.

    Attributes:
        rule: what moves the parameters.
        cross_entropy: which implementation of the loss runs.
        micro_batches: parts in which a batch goes through the model.
        skip_not_finite: a step whose loss or gradient is not finite updates nothing.
    """

    rule: Rule
    cross_entropy: CrossEntropyImplementation = "chunked"
    micro_batches: int = 1
    skip_not_finite: bool = False

    @classmethod
    def of(cls, optimizer_config: OptimizerConfig, training_config: TrainingConfig) -> "Program":
        """What the configs of a run compile in."""
        config = training_config
        return cls(optimizer_config.rule, config.cross_entropy, config.micro_batches, config.not_finite == "skip")


def prediction_weights(segment_ids: Int[Array, "batch length_and_one"]) -> Float[Array, "batch length"]:
    """1 where the next token is of the same document, 0 where it is of another one, or none."""
    before, after = segment_ids[:, :-1], segment_ids[:, 1:]
    return ((before == after) & (after != PADDING)).astype(jnp.float32)


def predicted_tokens(batch: Batch) -> Int[Array, ""]:
    """How many tokens a batch predicts."""
    if batch.segment_ids is None:
        return jnp.asarray(batch.tokens[:, 1:].size, jnp.int32)
    return jnp.sum(prediction_weights(batch.segment_ids), dtype=jnp.int32)


class BatchGradients(NamedTuple):
    """What a batch says of a model.

    Attributes:
        loss: cross-entropy alone, nats per predicted token.
        router: what the routed layers say; None if there are none.
        gradients: of the whole loss, z-loss and the routers' losses included.
        peaks: the largest logit of each head of attention over the whole batch; None: not measured.
    """

    loss: Float[Array, ""]
    router: RouterStatistics | None
    gradients: Transformer
    peaks: Float[Array, "layers heads"] | None = None


def batch_gradients(
    model: Transformer, batch: Batch, run: Run, program: Program, bias: Float[Array, "layers experts"] | None = None
) -> BatchGradients:
    """Loss and gradients of a batch; the same for any number of micro-batches.

    Each predicted token of the batch counts the same, wherever it stands. Only the auxiliary losses of routers, and
    biases measured by quantiles, are means of those of the micro-batches.

    Args:
        model: its parameters.
        batch: rows.
        run: numbers of the run.
        program: what is compiled in.
        bias: of the routers, in force; None: zeros.
    """

    def objective(model: Transformer, part: Batch) -> tuple[Array, tuple[Array, RouterStatistics | None, Array | None]]:
        weights = None if part.segment_ids is None else prediction_weights(part.segment_ids)
        segments = None if part.segment_ids is None else part.segment_ids[:, :-1]
        passed = model.forward(part.tokens[:, :-1], segments, bias=bias, peaks=program.rule.query_key_clip)
        found = mean_cross_entropy(
            passed.hidden,
            model.head,
            part.tokens[:, 1:],
            weights,
            z_loss=run.z_loss,
            implementation=program.cross_entropy,
        )
        loss = found.loss if passed.router is None else found.loss + jnp.sum(passed.router.loss)
        return loss, (found.cross_entropy, passed.router, passed.peaks)

    def gradients(part: Batch) -> BatchGradients:
        (_, (loss, router, peaks)), found = jax.value_and_grad(objective, has_aux=True)(model, part)
        return BatchGradients(loss, router, found, peaks)

    if program.micro_batches == 1:
        return gradients(batch)

    def add(total: PyTree, part: tuple[Batch, Array]) -> tuple[PyTree, tuple[RouterStatistics | None, Array | None]]:
        found = gradients(part[0])
        total = jax.tree.map(lambda one, other: one + part[1] * other, total, (found.loss, found.gradients))
        return total, (found.router, found.peaks)

    parts = jax.tree.map(lambda rows: _parts(rows, program.micro_batches), batch)
    zeros = jax.tree.map(jnp.zeros_like, (jnp.zeros((), jnp.float32), model))
    (loss, total), (router, peaks) = jax.lax.scan(add, zeros, (parts, _shares(parts, program.micro_batches)))
    mixture = model.config.mixture
    router = None if mixture is None else merged(router, bias, mixture)
    return BatchGradients(loss, router, total, None if peaks is None else jnp.max(peaks, axis=0))


def _parts(rows: Int[Array, "batch length"], count: int) -> Int[Array, "{count} part length"]:
    """Every ``count``-th row makes a part, so that rows sharded over devices stay where they are."""
    return rows.reshape(-1, count, rows.shape[1]).swapaxes(0, 1)


def _shares(parts: Batch, count: int) -> Float[Array, " {count}"]:
    """Of all predicted tokens, how many are in each part."""
    if parts.segment_ids is None:
        return jnp.full(count, 1 / count, jnp.float32)
    predicted = jnp.sum(jax.vmap(prediction_weights)(parts.segment_ids), axis=(1, 2))
    return predicted / jnp.maximum(jnp.sum(predicted), 1)


def train_step(state: TrainingState, batch: Batch, run: Run, *, program: Program) -> tuple[TrainingState, StepMetrics]:
    """One optimizer step on one batch; biases of routers that were pending are in force from its beginning.

    Raises:
        ValueError: queries and keys are to be clipped, and the model normalizes them.
    """
    if program.rule.query_key_clip:
        check_clippable(state.model.config)
    balancing = None if state.balancing is None else begin_step(state.balancing)
    bias = None if balancing is None else balancing.in_force
    loss, router, gradients, peaks = batch_gradients(state.model, batch, run, program, bias)
    hyperparameters = run.hyperparameters
    gradients, norm = clip_by_norm(gradients, hyperparameters.clip)
    factor = schedule_factor(program.rule.schedule, hyperparameters.schedule, state.step, run.steps)
    move = optimizer(program.rule, hyperparameters, factor)
    updates, moments = move.update(gradients, state.optimizer, state.model)
    model = optax.apply_updates(state.model, updates)
    if peaks is not None:
        model = clip_attention(model, peaks, hyperparameters.query_key_clip)
    average = None if state.average is None else moving_average(state.average, model, hyperparameters.average)
    if balancing is not None and router is not None:
        balancing = end_step(balancing, router.next_bias)
    new = state._replace(model=model, optimizer=moments, average=average, balancing=balancing)
    skipped = ~(jnp.isfinite(loss) & jnp.isfinite(norm))
    if program.skip_not_finite:
        new = jax.tree.map(lambda before, after: jnp.where(skipped, before, after), state, new)
    else:
        skipped = jnp.zeros_like(skipped)
    rate = factor * hyperparameters.learning_rate
    peak = None if peaks is None else jnp.max(peaks)
    metrics = StepMetrics(loss, norm, rate, skipped, predicted_tokens(batch), _router_metrics(router), peak)
    return new._replace(step=state.step + 1), metrics


def _router_metrics(router: RouterStatistics | None) -> RouterMetrics | None:
    return None if router is None else RouterMetrics(*(getattr(router, name) for name in RouterMetrics._fields))


@functools.partial(jax.jit, static_argnames="program", donate_argnames=("state",))
def train_chunk(
    state: TrainingState, batches: Batch, count: int | Int[Array, ""], run: Run, *, program: Program
) -> tuple[TrainingState, StepMetrics]:
    """Steps on the first ``count`` of ``batches``; one program for every count, 0 included.

    Returns:
        The state after them, and metrics of as many steps as there are batches, of which the first ``count`` are
        meaningful.
    """
    step = functools.partial(train_step, run=run, program=program)

    def body(index: Array, carry: tuple[TrainingState, StepMetrics]) -> tuple[TrainingState, StepMetrics]:
        state, metrics = carry
        state, new = step(state, jax.tree.map(lambda each: each[index], batches))
        return state, jax.tree.map(lambda filled, one: filled.at[index].set(one), metrics, new)

    one = jax.eval_shape(step, state, jax.tree.map(lambda each: each[0], batches))[1]
    length = batches.tokens.shape[0]
    empty = jax.tree.map(lambda value: jnp.zeros((length, *value.shape), value.dtype), one)
    return jax.lax.fori_loop(0, count, body, (state, empty))
