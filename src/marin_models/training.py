"""Training: state, compiled steps, and the loop that feeds them."""

import functools
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from marin_kernels import CrossEntropyImplementation, linear_cross_entropy
from marin_models.checks import at_least, not_negative, one_of, positive
from marin_models.divergence import DivergenceGuard
from marin_models.optimizers import Hyperparameters, OptimizerConfig, Rule, clip_by_norm, optimizer
from marin_models.parameters import flatten
from marin_models.schedules import schedule_factor
from marin_models.transformer import Transformer, TransformerConfig
from marin_models.windows import Mixture, check_streams_hold, window_sources, windows

CHUNK = 10  # steps per compiled call: long enough to hide Python, short enough to show progress and stop

_compiling = threading.Lock()  # runs that start together on threads compile once, not each


@attrs.frozen
class TrainingConfig:
    """Length, batch and data order of one run.

    Attributes:
        steps: optimizer steps.
        batch: windows per step.
        length: tokens that each window predicts.
        seed: of the initial parameters and of the data order.
        z_loss: coefficient of the squared log-normalizer in the loss.
        divergence_margin: nats above the first loss that count as diverging.
        divergence_patience: that many steps in a row above the margin stop the run; a loss that is not finite
            stops it at once.
        cross_entropy: which implementation of `marin_kernels.linear_cross_entropy` runs.

    Raises:
        ValueError: naming the attribute, what was given and what is possible.
    """

    steps: int = attrs.field(validator=at_least(1))
    batch: int = attrs.field(validator=at_least(1))
    length: int = attrs.field(validator=at_least(1))
    seed: int = attrs.field(default=0, validator=at_least(0))
    z_loss: float = attrs.field(default=1e-4, validator=not_negative)
    divergence_margin: float = attrs.field(default=1.0, validator=positive)
    divergence_patience: int = attrs.field(default=10, validator=at_least(1))
    cross_entropy: CrossEntropyImplementation = attrs.field(default="chunked", validator=one_of("reference", "chunked"))


@attrs.frozen(eq=False)
class Curve:
    """One point per step; equal arguments give equal bits on one machine.

    Attributes:
        step: 1-based, int64.
        tokens: predicted so far, int64.
        loss: cross-entropy of the step's batch before its update, nats per token, fp32.
        gradient_norm: before clipping, fp32.
        learning_rate: of the matrices, fp32.
    """

    step: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    learning_rate: np.ndarray


@attrs.frozen(eq=False)
class Timing:
    """What differs from one run to the next.

    Attributes:
        seconds: wall time since training began, one per step, compilation excluded; fp64. Measured at the end of
            each compiled chunk of steps and spread evenly over its steps.
        compile_seconds: wall time of compiling, or of waiting for another thread that compiled the same.
    """

    seconds: np.ndarray
    compile_seconds: float


@attrs.frozen(eq=False)
class Trained:
    """The result of `train`.

    Attributes:
        parameters: by dotted name (see `marin_models.unflatten`), fp32.
        curve: what happened at each step.
        source_tokens: predicted tokens drawn from each stream of the mixture.
        timing: measured times; the only part that is not deterministic.
    """

    parameters: dict[str, np.ndarray]
    curve: Curve
    source_tokens: dict[str, int]
    timing: Timing


class TrainingState(NamedTuple):
    """All that a step reads and writes.

    Attributes:
        model: the parameters.
        optimizer: the optimizer's moments.
        step: 0-based index of the next step.
    """

    model: Transformer
    optimizer: PyTree
    step: Int[Array, ""]


class StepMetrics(NamedTuple):
    """What a step reports; see `Curve`."""

    loss: Float[Array, "*steps"]
    gradient_norm: Float[Array, "*steps"]
    learning_rate: Float[Array, "*steps"]


class Run(NamedTuple):
    """The numbers of one run; inputs of the compiled step, so that runs which differ only here share a program."""

    hyperparameters: Hyperparameters
    steps: Int[Array, ""]
    z_loss: Float[Array, ""]


@functools.partial(jax.jit, static_argnames="config")
def initial_model(seed: int | Int[Array, ""], *, config: TransformerConfig) -> Transformer:
    """Fresh parameters drawn from ``seed``."""
    return Transformer(config, key=jax.random.key(seed))


@functools.partial(jax.jit, static_argnames="rule")
def initial_moments(model: Transformer, hyperparameters: Hyperparameters, *, rule: Rule) -> PyTree:
    """The state of an optimizer that has seen nothing."""
    return optimizer(rule, hyperparameters).init(model)


def initial_state(
    seed: int, hyperparameters: Hyperparameters, *, config: TransformerConfig, rule: Rule
) -> TrainingState:
    """The state before the first step of a run."""
    model = initial_model(seed, config=config)
    return TrainingState(model, initial_moments(model, hyperparameters, rule=rule), jnp.zeros((), jnp.int32))


def train_step(
    state: TrainingState,
    tokens: Int[Array, "batch length_and_one"],
    run: Run,
    *,
    rule: Rule,
    cross_entropy: CrossEntropyImplementation,
) -> tuple[TrainingState, StepMetrics]:
    """One optimizer step on one batch of windows."""

    def objective(model: Transformer) -> tuple[Array, Array]:
        hidden = model.hidden(tokens[:, :-1]).reshape(-1, model.config.width)
        return linear_cross_entropy(
            hidden, model.head, tokens[:, 1:].reshape(-1), z_loss=run.z_loss, implementation=cross_entropy
        )

    (_, loss), gradients = jax.value_and_grad(objective, has_aux=True)(state.model)
    hyperparameters = run.hyperparameters
    gradients, norm = clip_by_norm(gradients, hyperparameters.clip)
    factor = schedule_factor(rule.schedule, hyperparameters.schedule, state.step, run.steps)
    updates, moments = optimizer(rule, hyperparameters, factor).update(gradients, state.optimizer, state.model)
    model = optax.apply_updates(state.model, updates)
    return TrainingState(model, moments, state.step + 1), StepMetrics(
        loss, norm, factor * hyperparameters.learning_rate
    )


@functools.partial(jax.jit, static_argnames=("rule", "cross_entropy"), donate_argnames=("state",))
def train_chunk(
    state: TrainingState,
    tokens: Int[Array, "chunk batch length_and_one"],
    count: int | Int[Array, ""],
    run: Run,
    *,
    rule: Rule,
    cross_entropy: CrossEntropyImplementation,
) -> tuple[TrainingState, StepMetrics]:
    """Steps on the first ``count`` batches of ``tokens``; one program for every count, 0 included.

    Returns:
        The state after them, and metrics of length ``chunk`` of which the first ``count`` are meaningful.
    """

    def body(index: Array, carry: tuple[TrainingState, StepMetrics]) -> tuple[TrainingState, StepMetrics]:
        state, metrics = carry
        state, new = train_step(state, tokens[index], run, rule=rule, cross_entropy=cross_entropy)
        return state, jax.tree.map(lambda filled, one: filled.at[index].set(one), metrics, new)

    empty = StepMetrics(*(jnp.zeros(tokens.shape[0], jnp.float32) for _ in StepMetrics._fields))
    return jax.lax.fori_loop(0, count, body, (state, empty))


def train(
    model_config: TransformerConfig,
    optimizer_config: OptimizerConfig,
    training_config: TrainingConfig,
    mixture: Mixture,
    *,
    on_progress: Callable[[int, float, int], None] | None = None,
    check: Callable[[], None] | None = None,
) -> Trained:
    """Train a transformer from scratch.

    Args:
        model_config: its shape; ``vocabulary`` must be above every token of the mixture.
        optimizer_config: how it moves.
        training_config: how long, on how much, in which order.
        mixture: what it reads.
        on_progress: called as ``on_progress(steps_done, loss, tokens_done)`` after every few steps.
        check: called at the same moments; whatever it raises ends the training.

    Returns:
        Parameters, curve and counts, bitwise equal for equal arguments on one machine; and measured times.

    Raises:
        Diverged: the loss was not finite, or stayed above the first loss plus the margin.
        ValueError: a stream is shorter than a window, or a drawn token is outside the vocabulary.
    """
    check_streams_hold(mixture, training_config.length)
    feed = functools.partial(_chunk_tokens, mixture, training_config, model_config.vocabulary)
    step, state, compile_seconds = _compiled(model_config, optimizer_config, training_config, feed(0))
    guard = DivergenceGuard(training_config.divergence_margin, training_config.divergence_patience)
    chunks, seconds = [], [np.zeros(1)]
    began = time.perf_counter()
    for first in range(0, training_config.steps, CHUNK):
        done = min(first + CHUNK, training_config.steps)
        state, metrics = jax.block_until_ready(step(state, feed(first), done - first))
        seconds.append(np.linspace(seconds[-1][-1], time.perf_counter() - began, done - first + 1)[1:])
        chunks.append(StepMetrics(*(np.asarray(values)[: done - first] for values in metrics)))
        guard.look(first, chunks[-1].loss, chunks[-1].learning_rate)
        if on_progress is not None:
            on_progress(done, float(chunks[-1].loss[-1]), done * training_config.batch * training_config.length)
        if check is not None:
            check()
    return Trained(
        parameters=flatten(state.model),
        curve=_curve(training_config, *map(np.concatenate, zip(*chunks, strict=True))),
        source_tokens=_source_tokens(mixture, training_config),
        timing=Timing(np.concatenate(seconds[1:]), compile_seconds),
    )


def _compiled(
    model_config: TransformerConfig,
    optimizer_config: OptimizerConfig,
    training_config: TrainingConfig,
    tokens: np.ndarray,
) -> tuple[Callable, TrainingState, float]:
    """The compiled ``step(state, tokens, count)`` of a run, its first state, and the seconds that this took."""
    rule, hyperparameters = optimizer_config.rule, Hyperparameters.of(optimizer_config)
    run = Run(
        hyperparameters,
        jnp.asarray(training_config.steps, jnp.int32),
        jnp.asarray(training_config.z_loss, jnp.float32),
    )
    step = functools.partial(train_chunk, run=run, rule=rule, cross_entropy=training_config.cross_entropy)
    began = time.perf_counter()
    with _compiling:
        state = initial_state(training_config.seed, hyperparameters, config=model_config, rule=rule)
        state, _ = jax.block_until_ready(step(state, tokens, 0))
    return step, state, time.perf_counter() - began


def _chunk_tokens(mixture: Mixture, config: TrainingConfig, vocabulary: int, first: int) -> np.ndarray:
    """[CHUNK, batch, length + 1] tokens of the steps from ``first``; zeros after the last step."""
    tokens = np.zeros((CHUNK, config.batch, config.length + 1), np.int32)
    for step in range(first, min(first + CHUNK, config.steps)):
        tokens[step - first] = windows(mixture, seed=config.seed, step=step, batch=config.batch, length=config.length)
    if tokens.max() >= vocabulary:
        raise ValueError(
            f"train: token {tokens.max()} in the mixture is outside the model's vocabulary of {vocabulary}; "
            "train with the vocabulary of the tokenizer that made the streams"
        )
    return tokens


def _source_tokens(mixture: Mixture, config: TrainingConfig) -> dict[str, int]:
    rows = np.zeros(len(mixture.names), np.int64)
    for step in range(config.steps):
        sources = window_sources(mixture, seed=config.seed, step=step, batch=config.batch)
        rows += np.bincount(sources, minlength=len(rows))
    return {name: int(count) * config.length for name, count in zip(mixture.names, rows, strict=True)}


def _curve(config: TrainingConfig, loss: np.ndarray, gradient_norm: np.ndarray, learning_rate: np.ndarray) -> Curve:
    step = np.arange(1, config.steps + 1)
    return Curve(step, step * config.batch * config.length, loss, gradient_norm, learning_rate)
