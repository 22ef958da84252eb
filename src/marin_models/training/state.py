"""All that a training step reads and writes, as one tree of arrays."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key, PyTree

from marin_models.optimizers import Hyperparameters, OptimizerKind, optimizer
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig


class TrainingState(NamedTuple):
    """All that a step reads and writes; which data comes next follows from ``step``.

    Attributes:
        model: the parameters, fp32.
        optimizer: the optimizer's moments.
        step: 0-based index of the next step.
        key: what everything random in the model is drawn from; the initial parameters were.
    """

    model: Transformer
    optimizer: PyTree
    step: Int[Array, ""]
    key: Key[Array, ""]


@functools.partial(jax.jit, static_argnames="config")
def initial_model(seed: int | Int[Array, ""], *, config: TransformerConfig) -> Transformer:
    """Fresh parameters drawn from ``seed``."""
    return Transformer(config, key=jax.random.key(seed))


@functools.partial(jax.jit, static_argnames="kind")
def initial_moments(model: Transformer, hyperparameters: Hyperparameters, *, kind: OptimizerKind) -> PyTree:
    """The state of an optimizer that has seen nothing."""
    return optimizer(kind, hyperparameters).init(model)


def initial_state(
    seed: int | Int[Array, ""], hyperparameters: Hyperparameters, *, config: TransformerConfig, kind: OptimizerKind
) -> TrainingState:
    """The state before the first step of a run."""
    model = initial_model(seed, config=config)
    moments = initial_moments(model, hyperparameters, kind=kind)
    return TrainingState(model, moments, jnp.zeros((), jnp.int32), jax.random.key(seed))
