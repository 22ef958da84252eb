"""The loop that feeds compiled steps and watches them."""

import contextlib
import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import jax
import numpy as np
from jax.sharding import Mesh

from marin_models.checkpoints import Checkpoints
from marin_models.divergence import DivergenceGuard
from marin_models.evaluation import held_out_windows, window_loss
from marin_models.optimizers import OptimizerConfig
from marin_models.parameters import flatten
from marin_models.query_key_clip import check_clippable
from marin_models.training.config import TrainingConfig
from marin_models.training.feed import VOCABULARY_ADVICE, chunk_batches, feed_of
from marin_models.training.record import Record, Timing, Trained
from marin_models.training.state import TrainingState, initial_state
from marin_models.training.step import Batch, Program, Run, StepMetrics, train_chunk
from marin_models.transformer import TransformerConfig
from marin_models.windows import Mixture, check_stream, check_vocabulary, described_stream

CHUNK = 10  # steps per compiled call: long enough to hide Python, short enough to show progress and stop

Step = Callable[..., tuple[TrainingState, StepMetrics]]

_compiling = threading.Lock()  # runs that start together on threads compile once, not each


def train(
    model_config: TransformerConfig,
    optimizer_config: OptimizerConfig,
    training_config: TrainingConfig,
    mixture: Mixture,
    *,
    held_out: Mapping[str, np.ndarray] | None = None,
    checkpoints: Checkpoints | None = None,
    mesh: Mesh | None = None,
    on_progress: Callable[[int, float, int], None] | None = None,
    check: Callable[[], None] | None = None,
) -> Trained:
    """Train a transformer from scratch, or go on from the last checkpoint.

    Args:
        model_config: its shape; ``vocabulary`` must be above every token of the mixture.
        optimizer_config: how it moves.
        training_config: how long, on how much, in which order.
        mixture: what it reads.
        held_out: streams of tokens that are evaluated on the way, by name.
        checkpoints: where they are written and, if there is one, where training goes on from: the parameters and the
            curve are then, bit for bit, those of a run that was never interrupted. They are closed at the end. None:
            none.
        mesh: devices (see `marin_models.mesh.make_mesh`); None: one device.
        on_progress: called as ``on_progress(steps_done, loss, tokens_done)`` after every few steps.
        check: called at the same moments; whatever it raises ends the training.

    Returns:
        Parameters, curve and counts, bitwise equal for equal arguments on one machine; and measured times.

    Raises:
        Diverged: the loss was not finite, or stayed above the first loss plus the margin.
        ValueError: a stream is shorter than a window or holds no tokens, a drawn or held-out token is outside the
            vocabulary, or queries and keys are to be clipped that the model normalizes.
        CheckpointDamaged: the last checkpoint is not what was written.
        CheckpointMismatch: the last checkpoint is of another run.
        OSError: a checkpoint cannot be written.
    """
    config = training_config
    if optimizer_config.query_key_clip is not None:
        check_clippable(model_config)
    feed = feed_of(mixture, config)
    for name, stream in (held_out or {}).items():
        check_stream(f"train: the held-out stream {name!r}", stream)
    texts = {
        name: held_out_windows(stream, length=config.length, windows=config.evaluation_windows)
        for name, stream in (held_out or {}).items()
    }
    for name, text in texts.items():
        where = f"in the held-out stream {name!r}"
        check_vocabulary("train", where, text, model_config.vocabulary, advice=VOCABULARY_ADVICE)
    batches = functools.partial(chunk_batches, feed, config, model_config.vocabulary, chunk=CHUNK, mesh=mesh)
    identity = described_run(model_config, optimizer_config, config, mixture, held_out or {})
    with contextlib.ExitStack() as stack:
        if mesh is not None:
            stack.enter_context(jax.set_mesh(mesh))
        if checkpoints is not None:
            stack.callback(checkpoints.close)
        step, fresh, compile_seconds = _compiled(model_config, optimizer_config, config, batches(range(0)))
        begin, first, record = _restored(fresh, checkpoints, identity, tuple(texts), mesh)
        for done, state, loss in _chunks(step, begin, batches, _spans(first, config, checkpoints), config, record):
            _evaluate(state, texts, config, done, record)
            if checkpoints is not None and done < config.steps and checkpoints.due(done):
                checkpoints.save(done, state, record.columns(), run=identity)
            if on_progress is not None:
                on_progress(done, loss, record.tokens())
            if check is not None:
                check()
        parameters = flatten(state.model)
        average = None if state.average is None else flatten(state.average)
        bias = None if state.bias is None else np.asarray(state.bias)
    written = () if checkpoints is None else tuple(checkpoints.written)
    timing = Timing(record.seconds(), compile_seconds, first, written)
    sources = feed.source_tokens(config.steps)
    return Trained(parameters, average, bias, record.curve(), record.evaluations(), sources, timing)


def _chunks(
    step: Step,
    state: TrainingState,
    batches: Callable[[range], Batch],
    spans: Iterable[range],
    config: TrainingConfig,
    record: Record,
) -> Iterator[tuple[int, TrainingState, float]]:
    """After each span of steps, which are recorded: how many were done, the state, and the last loss."""
    guard = DivergenceGuard(config.divergence_margin, config.divergence_patience)
    before = record.curve()
    guard.look(0, before.loss, before.learning_rate, before.skipped)
    clock = _Clock(record.seconds())
    for span in spans:
        state, found = jax.block_until_ready(step(state, batches(span), len(span)))
        metrics = first_of(found, len(span))
        record.add_steps(metrics, clock.spread(len(span)))
        guard.look(span.start, metrics.loss, metrics.learning_rate, metrics.skipped)
        yield span.stop, state, float(metrics.loss[-1])


def described_run(
    model_config: TransformerConfig,
    optimizer_config: OptimizerConfig,
    training_config: TrainingConfig,
    mixture: Mixture,
    held_out: Mapping[str, np.ndarray],
) -> dict[str, Any]:
    """What tells a run from others, as JSON; a checkpoint is only taken up by the run that it describes."""
    configs = {"model": model_config, "optimizer": optimizer_config, "training": training_config}
    found = {
        f"{name}.{attribute}": value
        for name, config in configs.items()
        for attribute, value in attrs.asdict(config).items()
    }
    streams = {"tokens": mixture.streams, "held-out tokens": held_out}
    if training_config.rows == "documents":
        streams["documents' ends"] = mixture.offsets or {}
    found |= {
        f"{kind} of {name}": described_stream(np.asarray(stream))
        for kind, named in streams.items()
        for name, stream in named.items()
    }
    found |= {f"weight of {name}": weight for name, weight in mixture.weights.items()}
    return json.loads(json.dumps(found))


def first_of(metrics: StepMetrics, count: int) -> StepMetrics:
    """The metrics of the first so many steps, in memory of the host."""
    return jax.tree.map(lambda values: np.asarray(values)[:count], metrics)


class _Clock:
    """Wall time of training, which goes on where an earlier attempt stopped."""

    def __init__(self, seconds: np.ndarray) -> None:
        self._last = float(seconds[-1]) if len(seconds) else 0.0
        self._began = time.perf_counter() - self._last

    def spread(self, steps: int) -> np.ndarray:
        """The moments at which the last so many steps were done, as if each had taken the same time."""
        before, self._last = self._last, time.perf_counter() - self._began
        return np.linspace(before, self._last, steps + 1)[1:]


def _spans(first: int, config: TrainingConfig, checkpoints: Checkpoints | None) -> Iterator[range]:
    """Steps that are made in one go: none goes over a moment at which something else is to be done."""
    intervals = (CHUNK, config.evaluate_every, checkpoints.every_steps if checkpoints else None)
    while first < config.steps:
        end = min([config.steps, *((first // interval + 1) * interval for interval in intervals if interval)])
        yield range(first, end)
        first = end


def _compiled(
    model_config: TransformerConfig,
    optimizer_config: OptimizerConfig,
    training_config: TrainingConfig,
    batches: Batch,
) -> tuple[Step, TrainingState, float]:
    """The compiled ``step(state, batches, count)`` of a run, its first state, and the seconds that this took."""
    run = Run.of(optimizer_config, training_config)
    step = functools.partial(train_chunk, run=run, program=Program.of(optimizer_config, training_config))
    began = time.perf_counter()
    with _compiling:
        state = initial_state(
            training_config.seed,
            run.hyperparameters,
            config=model_config,
            rule=optimizer_config.rule,
            averaged=optimizer_config.average is not None,
        )
        state, _ = jax.block_until_ready(step(state, batches, 0))
    return step, state, time.perf_counter() - began


def _restored(
    state: TrainingState,
    checkpoints: Checkpoints | None,
    identity: Mapping[str, Any],
    held_out: tuple[str, ...],
    mesh: Mesh | None,
) -> tuple[TrainingState, int, Record]:
    """The state to go on from, how many steps have led to it, and what is known of them."""
    if checkpoints is None:
        return state, 0, Record(held_out)
    like = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=None if mesh is None else x.sharding), state
    )
    found = checkpoints.restore(like, run=identity)
    checkpoints.reserve(state if found is None else found.state)
    if found is None:
        return state, 0, Record(held_out)
    return found.state, found.step, Record(held_out, found.records)


def _evaluate(
    state: TrainingState, texts: Mapping[str, np.ndarray], config: TrainingConfig, step: int, record: Record
) -> None:
    """Note how well the held-out streams are predicted, if it is time to; nothing of the state changes."""
    every = config.evaluate_every or config.steps
    if texts and (step % every == 0 or step == config.steps):
        losses = {name: window_loss(state.model, tokens, bias=state.bias) for name, tokens in texts.items()}
        record.add_evaluation(step, losses)
