"""What is known of a run: typed tables of arrays, and how they grow."""

from collections.abc import Mapping

import attrs
import numpy as np

from marin_models.checkpoints import Written
from marin_models.training.step import StepMetrics


@attrs.frozen(eq=False)
class RouterCurve:
    """What the routed layers reported at each step.

    Attributes:
        max_violation: by how much the busiest expert exceeded the mean load (MaxVio), fp32 of shape [steps, layers].
        load_entropy: of the shares of load, nats; likewise.
        auxiliary_loss: before its coefficient; 1 when all is even; likewise.
        z_loss: before its coefficient; likewise.
        dropped: assignments that were dropped, int64 of shape [steps, layers].
    """

    max_violation: np.ndarray
    load_entropy: np.ndarray
    auxiliary_loss: np.ndarray
    z_loss: np.ndarray
    dropped: np.ndarray


@attrs.frozen(eq=False)
class Curve:
    """One point per step; equal arguments give equal bits on one machine.

    Attributes:
        step: 1-based, int64.
        tokens: predicted so far, int64.
        loss: cross-entropy of the step's batch before its update, nats per token, fp32.
        gradient_norm: before clipping, fp32.
        learning_rate: of the matrices, fp32.
        skipped: steps that updated nothing, because the loss or the gradient was not finite; bool.
        router: of the routed layers; None if there are none.
        attention_peak: the largest logit of attention in the step's batch before its update, in any head of any layer,
            fp32; None: not measured (see `OptimizerConfig.query_key_clip`).
    """

    step: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    learning_rate: np.ndarray
    skipped: np.ndarray
    router: RouterCurve | None = None
    attention_peak: np.ndarray | None = None


@attrs.frozen(eq=False)
class Evaluations:
    """How well held-out streams were predicted on the way.

    Attributes:
        step: after how many steps, int64.
        loss: nats per token by stream, fp64, of the length of ``step``.
    """

    step: np.ndarray
    loss: dict[str, np.ndarray]


@attrs.frozen(eq=False)
class Timing:
    """What differs from one run to the next.

    Attributes:
        seconds: wall time that training has taken, one per step, compilation excluded; fp64. Measured at the end of
            each compiled chunk of steps and spread evenly over its steps. What a killed attempt had done after its
            last checkpoint is not counted.
        compile_seconds: wall time of compiling, or of waiting for another thread that compiled the same.
        resumed: after how many steps this attempt went on from a checkpoint; 0: it began anew.
        checkpoints: those that this attempt has written.
    """

    seconds: np.ndarray
    compile_seconds: float
    resumed: int = 0
    checkpoints: tuple[Written, ...] = ()


@attrs.frozen(eq=False)
class Trained:
    """The result of `train`.

    Attributes:
        parameters: by dotted name (see `marin_models.unflatten`), fp32.
        average: exponential moving average of the parameters, by the same names; None: none was kept.
        router_bias: the biases of the routers in force, fp32 of shape [layers, experts]; None: balancing moves none.
        curve: what happened at each step.
        evaluations: of the held-out streams.
        source_tokens: predicted tokens drawn from each stream of the mixture.
        timing: measured times; the only part that is not deterministic.
    """

    parameters: dict[str, np.ndarray]
    average: dict[str, np.ndarray] | None
    router_bias: np.ndarray | None
    curve: Curve
    evaluations: Evaluations
    source_tokens: dict[str, int]
    timing: Timing


class Record:
    """The tables of a run so far.

    Args:
        held_out: names of the streams that are evaluated.
        columns: what `columns` gave when a checkpoint was taken; None: nothing has happened yet.
    """

    def __init__(self, held_out: tuple[str, ...], columns: Mapping[str, np.ndarray] | None = None) -> None:
        self._held_out = held_out
        self._parts = {name: [column] for name, column in (columns or {}).items()}

    def add_steps(self, metrics: StepMetrics, seconds: np.ndarray) -> None:
        """Note what some steps reported, and when each of them was done."""
        router = {} if metrics.router is None else metrics.router._asdict()
        reported = metrics._replace(router=None)._asdict() | {f"router.{name}": each for name, each in router.items()}
        for name, values in {**reported, "seconds": seconds}.items():
            if values is not None:
                self._parts.setdefault(name, []).append(np.asarray(values))

    def add_evaluation(self, step: int, losses: Mapping[str, float]) -> None:
        """Note the losses of the held-out streams after a step."""
        for name, value in {"step": np.int64(step), **{f"loss.{name}": loss for name, loss in losses.items()}}.items():
            self._parts.setdefault(f"evaluations.{name}", []).append(np.asarray([value]))

    def columns(self) -> dict[str, np.ndarray]:
        """All columns, as a checkpoint keeps them."""
        self._parts = {name: [np.concatenate(parts)] for name, parts in self._parts.items()}
        return {name: parts[0] for name, parts in self._parts.items()}

    def curve(self) -> Curve:
        """One point per step so far."""
        columns = self.columns()
        nothing = {name: np.zeros(0, np.float32) for name in ("loss", "gradient_norm", "learning_rate")}
        columns = {**nothing, "skipped": np.zeros(0, bool), "tokens": np.zeros(0, np.int64), **columns}
        measured = (columns[name] for name in ("loss", "gradient_norm", "learning_rate", "skipped"))
        tokens = np.cumsum(columns["tokens"], dtype=np.int64)
        steps, peak = np.arange(1, len(tokens) + 1), columns.get("attention_peak")
        return Curve(steps, tokens, *measured, router=self._router(), attention_peak=peak)

    def _router(self) -> RouterCurve | None:
        found = {
            name.removeprefix("router."): column
            for name, column in self.columns().items()
            if name.startswith("router.")
        }
        if not found:
            return None
        dropped = found["dropped_by_sender"].astype(np.int64) + found["dropped_by_receiver"]
        reported = (found[name] for name in ("max_violation", "load_entropy", "auxiliary_loss", "z_loss"))
        return RouterCurve(*reported, dropped)

    def evaluations(self) -> Evaluations:
        """One point per evaluation so far."""
        columns = self.columns()
        return Evaluations(
            columns.get("evaluations.step", np.zeros(0, np.int64)),
            {name: columns.get(f"evaluations.loss.{name}", np.zeros(0)) for name in self._held_out},
        )

    def seconds(self) -> np.ndarray:
        """When each step so far was done."""
        return self.columns().get("seconds", np.zeros(0))

    def tokens(self) -> int:
        """Tokens predicted so far."""
        return int(np.sum(self.columns().get("tokens", np.zeros(0, np.int64)), dtype=np.int64))
