"""Exponential moving averages of parameters."""

import jax
from jaxtyping import Array, Float, PyTree


def moving_average(average: PyTree, parameters: PyTree, decay: float | Float[Array, ""]) -> PyTree:
    """The average after one more step: ``decay * average + (1 - decay) * parameters``.

    Args:
        average: so far; begin with the initial parameters.
        parameters: after this step, in a tree of the same structure.
        decay: how much of the average stays, from 0 to below 1.
    """
    return jax.tree.map(lambda old, new: old + (1 - decay) * (new - old), average, parameters)
