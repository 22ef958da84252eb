"""Which rule moves which group of parameters."""

from typing import Literal, NamedTuple

import attrs
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree
from optax.contrib import MuonDimensionNumbers, muon

from marin_models.checks import fraction, not_negative, one_of, optional, positive
from marin_models.groups import parameter_groups

OptimizerKind = Literal["adamw", "muon"]

MUON_RMS = 0.2  # Muon's updates get AdamW's usual root mean square (Liu et al. 2025, arXiv 2502.16982)
EPSILON = 1e-8


@attrs.frozen
class OptimizerConfig:
    """Optimizer, learning-rate schedule and clipping of one run.

    Attributes:
        kind: ``"adamw"`` for all parameters, or ``"muon"`` for matrices and AdamW for the rest.
        learning_rate: peak learning rate: AdamW's, or Muon's for the matrices.
        adam_learning_rate: under ``"muon"``, the peak learning rate of embedding, head and norms; None: the same.
        betas: AdamW's decay rates of the first and second moment.
        momentum: Muon's (Nesterov) momentum.
        weight_decay: decoupled, multiplied by the learning rate; matrices and the head only.
        clip: largest global gradient norm; None: no clipping.
        warmup: fraction of the steps that warm up linearly.
        decay: fraction of the steps, at the end, that decay linearly to zero.

    Raises:
        ValueError: naming the attribute, what was given and what is possible.
    """

    kind: OptimizerKind = attrs.field(validator=one_of("adamw", "muon"))
    learning_rate: float = attrs.field(validator=positive)
    adam_learning_rate: float | None = attrs.field(default=None, validator=optional(positive))
    betas: tuple[float, float] = attrs.field(default=(0.9, 0.95))
    momentum: float = attrs.field(default=0.95, validator=fraction)
    weight_decay: float = attrs.field(default=0.1, validator=not_negative)
    clip: float | None = attrs.field(default=1.0, validator=optional(positive))
    warmup: float = attrs.field(default=0.05, validator=fraction)
    decay: float = attrs.field(default=0.4, validator=fraction)

    @betas.validator
    def _check_betas(self, _, value):
        if len(value) != 2 or not all(0 <= beta < 1 for beta in value):
            raise ValueError(f"OptimizerConfig: betas must be two numbers from 0 to below 1, not {value!r}")

    def __attrs_post_init__(self):
        if self.kind == "adamw" and self.adam_learning_rate is not None:
            raise ValueError(
                "OptimizerConfig: adam_learning_rate only means something under kind='muon'; "
                "with kind='adamw' give learning_rate"
            )
        if self.warmup + self.decay > 1:
            raise ValueError(
                f"OptimizerConfig: warmup {self.warmup} and decay {self.decay} overlap; their sum must be at most 1"
            )


class Hyperparameters(NamedTuple):
    """The numbers of an `OptimizerConfig` as scalars that a compiled step takes as input.

    Two runs that differ only in these share one compiled program.
    """

    learning_rate: Float[Array, ""]
    adam_learning_rate: Float[Array, ""]
    beta_one: Float[Array, ""]
    beta_two: Float[Array, ""]
    momentum: Float[Array, ""]
    weight_decay: Float[Array, ""]
    clip: Float[Array, ""]
    warmup: Float[Array, ""]
    decay: Float[Array, ""]

    @classmethod
    def of(cls, config: OptimizerConfig) -> "Hyperparameters":
        """The scalars of ``config`` in fp32; no clipping becomes infinity."""
        adam = config.learning_rate if config.adam_learning_rate is None else config.adam_learning_rate
        clip = float("inf") if config.clip is None else config.clip
        numbers = (config.learning_rate, adam, *config.betas, config.momentum, config.weight_decay, clip)
        return cls(*(jnp.asarray(x, jnp.float32) for x in (*numbers, config.warmup, config.decay)))


def optimizer(
    kind: OptimizerKind, hyperparameters: Hyperparameters, factor: float | Float[Array, ""] = 1.0
) -> optax.GradientTransformation:
    """The update rule of each parameter group.

    Args:
        kind: as in `OptimizerConfig`.
        hyperparameters: may be traced: build the rule inside the compiled step.
        factor: the schedule's factor on both learning rates at this step.

    Returns:
        A transformation for models whose parameters all carry a group; its ``init`` raises ``TypeError`` otherwise.
        Clipping is not part of it (`clip_by_norm`).
    """
    h = hyperparameters

    def adamw(rate: Array, weight_decay: float | Array) -> optax.GradientTransformation:
        return optax.adamw(factor * rate, h.beta_one, h.beta_two, EPSILON, weight_decay=weight_decay)

    matrices = (
        adamw(h.learning_rate, h.weight_decay)
        if kind == "adamw"
        else muon(
            factor * h.learning_rate,
            beta=h.momentum,
            weight_decay=h.weight_decay,
            muon_weight_dimension_numbers=_stacked_matrices,
            consistent_rms=MUON_RMS,
        )
    )
    rules = {
        "matrix": matrices,
        "head": adamw(h.adam_learning_rate, h.weight_decay),
        "embedding": adamw(h.adam_learning_rate, 0.0),
        "norm": adamw(h.adam_learning_rate, 0.0),
        "router": adamw(h.adam_learning_rate, h.weight_decay),
        "bias": adamw(h.adam_learning_rate, 0.0),
    }
    return optax.partition(rules, parameter_groups)


def _stacked_matrices(parameters: PyTree) -> PyTree:
    """Every leaf is a stack of [in, out] matrices: axes before the last two are orthogonalised independently."""
    return jax.tree.map(lambda _: MuonDimensionNumbers(reduction_axis=-2, output_axis=-1), parameters)


def clip_by_norm(gradients: PyTree, largest: float | Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
    """The gradients, scaled down if their global norm is above ``largest``, and that norm before clipping."""
    norm = optax.tree.norm(gradients)
    scale = jnp.minimum(1.0, largest / norm)
    return jax.tree.map(lambda gradient: gradient * scale, gradients), norm
