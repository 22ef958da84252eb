"""What is known of a run: typed tables of arrays."""

import attrs
import numpy as np


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
    """

    step: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    learning_rate: np.ndarray
    skipped: np.ndarray


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
