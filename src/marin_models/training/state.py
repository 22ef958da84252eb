"""All that a training step reads and writes, as one tree of arrays."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from marin_models.balancing import BalancingState, initial_balancing
from marin_models.mesh import axis_sizes, parameter_specs
from marin_models.optimizers import Hyperparameters, Rule, optimizer
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig


class TrainingState(NamedTuple):
    """All that a step reads and writes; which data comes next follows from ``step``.

    Attributes:
        model: the parameters, fp32.
        optimizer: the optimizer's moments.
        step: 0-based index of the next step.
        key: what everything random in the model is drawn from; the initial parameters were.
        average: exponential moving average of the parameters, if one is kept.
        balancing: biases of the routers, in force and pending, if balancing moves any.
    """

    model: Transformer
    optimizer: PyTree
    step: Int[Array, ""]
    key: Key[Array, ""]
    average: Transformer | None = None
    balancing: BalancingState | None = None

    @property
    def bias(self) -> Float[Array, "layers experts"] | None:
        """The biases in force, which the last step was routed by, and evaluation is."""
        return None if self.balancing is None else self.balancing.in_force


@functools.partial(jax.jit, static_argnames="config")
def initial_model(seed: int | Int[Array, ""], *, config: TransformerConfig) -> Transformer:
    """Fresh parameters drawn from ``seed``, in pieces over the mesh in force, if one is."""
    model = Transformer(config, key=jax.random.key(seed))
    if not axis_sizes():
        return model
    return jax.tree.map(jax.sharding.reshard, model, parameter_specs(model, jax.sharding.get_abstract_mesh()))


@functools.partial(jax.jit, static_argnames=("config", "rule", "averaged"))
def initial_state(
    seed: int | Int[Array, ""],
    hyperparameters: Hyperparameters,
    *,
    config: TransformerConfig,
    rule: Rule,
    averaged: bool = False,
) -> TrainingState:
    """The state before the first step of a run; on the mesh in force, moments lie where their parameters do.

    Args:
        seed: of the parameters.
        hyperparameters: of the optimizer.
        config: shape of the model.
        rule: what moves the parameters.
        averaged: an average of the parameters is kept.
    """
    model = initial_model(seed, config=config)
    moments = optimizer(rule, hyperparameters).init(model)
    average = jax.tree.map(jnp.copy, model) if averaged else None
    mixture = config.mixture
    biased = mixture is not None and mixture.biased
    balancing = initial_balancing(config.routed_layers, mixture.experts) if biased else None
    return TrainingState(model, moments, jnp.zeros((), jnp.int32), jax.random.key(seed), average, balancing)
