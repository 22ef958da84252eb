"""The loop that feeds compiled steps and watches them."""

import functools
import threading
import time
from collections.abc import Callable

import jax
import numpy as np

from marin_models.divergence import DivergenceGuard
from marin_models.optimizers import OptimizerConfig
from marin_models.parameters import flatten
from marin_models.training.config import TrainingConfig
from marin_models.training.record import Curve, Timing, Trained
from marin_models.training.state import TrainingState, initial_state
from marin_models.training.step import Batch, Program, Run, StepMetrics, train_chunk
from marin_models.transformer_config import TransformerConfig
from marin_models.windows import Mixture, check_streams_hold, window_sources, windows

CHUNK = 10  # steps per compiled call: long enough to hide Python, short enough to show progress and stop

_compiling = threading.Lock()  # runs that start together on threads compile once, not each


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
    feed = functools.partial(_chunk_batches, mixture, training_config, model_config.vocabulary)
    step, state, compile_seconds = _compiled(model_config, optimizer_config, training_config, feed(0))
    guard = DivergenceGuard(training_config.divergence_margin, training_config.divergence_patience)
    chunks, seconds = [], [np.zeros(1)]
    began = time.perf_counter()
    for first in range(0, training_config.steps, CHUNK):
        done = min(first + CHUNK, training_config.steps)
        state, metrics = jax.block_until_ready(step(state, feed(first), done - first))
        seconds.append(np.linspace(seconds[-1][-1], time.perf_counter() - began, done - first + 1)[1:])
        chunks.append(StepMetrics(*(np.asarray(values)[: done - first] for values in metrics)))
        guard.look(first, chunks[-1].loss, chunks[-1].learning_rate, chunks[-1].skipped)
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
    batches: Batch,
) -> tuple[Callable, TrainingState, float]:
    """The compiled ``step(state, batches, count)`` of a run, its first state, and the seconds that this took."""
    run = Run.of(optimizer_config, training_config)
    step = functools.partial(train_chunk, run=run, program=Program.of(optimizer_config, training_config))
    began = time.perf_counter()
    with _compiling:
        state = initial_state(
            training_config.seed, run.hyperparameters, config=model_config, kind=optimizer_config.kind
        )
        state, _ = jax.block_until_ready(step(state, batches, 0))
    return step, state, time.perf_counter() - began


def _chunk_batches(mixture: Mixture, config: TrainingConfig, vocabulary: int, first: int) -> Batch:
    """The batches of `CHUNK` steps from ``first``; zeros after the last step."""
    tokens = np.zeros((CHUNK, config.batch, config.length + 1), np.int32)
    for step in range(first, min(first + CHUNK, config.steps)):
        tokens[step - first] = windows(mixture, seed=config.seed, step=step, batch=config.batch, length=config.length)
    if tokens.max() >= vocabulary:
        raise ValueError(
            f"train: token {tokens.max()} in the mixture is outside the model's vocabulary of {vocabulary}; "
            "train with the vocabulary of the tokenizer that made the streams"
        )
    return Batch(jax.numpy.asarray(tokens))


def _source_tokens(mixture: Mixture, config: TrainingConfig) -> dict[str, int]:
    rows = np.zeros(len(mixture.names), np.int64)
    for step in range(config.steps):
        sources = window_sources(mixture, seed=config.seed, step=step, batch=config.batch)
        rows += np.bincount(sources, minlength=len(rows))
    return {name: int(count) * config.length for name, count in zip(mixture.names, rows, strict=True)}


def _curve(config: TrainingConfig, *columns: np.ndarray) -> Curve:
    step = np.arange(1, config.steps + 1)
    return Curve(step, step * config.batch * config.length, *columns)
