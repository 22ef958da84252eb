"""How long a run is, what it reads, and in which order."""

from typing import Literal, get_args

import attrs

from marin_kernels import CrossEntropyImplementation
from marin_models.checks import at_least, integer_up_to_int32, not_negative, one_of, optional, positive


@attrs.frozen
class TrainingConfig:
    """Length, batch and data order of one run.

    Attributes:
        steps: optimizer steps.
        batch: rows per step.
        length: tokens that each row predicts, at most.
        seed: of the initial parameters and of the data order.
        rows: what a row is: ``"windows"``, any ``length + 1`` neighbouring tokens of a stream, as one text; or
            ``"documents"``, whole documents packed side by side, of which none sees or predicts another one.
        micro_batches: the batch goes through the model in so many parts, one after the other, which saves memory; the
            gradients are those of the whole batch. ``batch`` must be a multiple.
        z_loss: coefficient of the squared log-normalizer in the loss.
        not_finite: what happens at a step whose loss or gradient is not finite: ``"stop"`` the run, or ``"skip"`` the
            update and go on with the next batch.
        divergence_margin: nats above the first loss that count as diverging.
        divergence_patience: that many steps in a row above the margin, or skipped, stop the run.
        evaluate_every: steps between evaluations of the held-out streams; the end is always evaluated. None: only
            the end.
        evaluation_windows: windows of each held-out stream that are evaluated, at most.
        cross_entropy: which implementation of `marin_kernels.linear_cross_entropy` runs.

    Raises:
        ValueError: naming the attribute, what was given and what is possible.
    """

    steps: int = attrs.field(validator=integer_up_to_int32(1))
    batch: int = attrs.field(validator=at_least(1))
    length: int = attrs.field(validator=at_least(1))
    seed: int = attrs.field(default=0, validator=integer_up_to_int32(0))
    rows: Literal["windows", "documents"] = attrs.field(default="windows", validator=one_of("windows", "documents"))
    micro_batches: int = attrs.field(default=1, validator=at_least(1))
    z_loss: float = attrs.field(default=1e-4, validator=not_negative)
    not_finite: Literal["stop", "skip"] = attrs.field(default="stop", validator=one_of("stop", "skip"))
    divergence_margin: float = attrs.field(default=1.0, validator=positive)
    divergence_patience: int = attrs.field(default=10, validator=at_least(1))
    evaluate_every: int | None = attrs.field(default=None, validator=optional(at_least(1)))
    evaluation_windows: int = attrs.field(default=64, validator=at_least(1))
    cross_entropy: CrossEntropyImplementation = attrs.field(
        default="chunked", validator=one_of(*get_args(CrossEntropyImplementation))
    )

    def __attrs_post_init__(self):
        if self.batch % self.micro_batches:
            raise ValueError(
                f"TrainingConfig: a batch of {self.batch} rows cannot be cut into {self.micro_batches} micro_batches "
                "of one size; make batch a multiple of micro_batches"
            )
