"""Steps on the hyperball: each matrix keeps its Frobenius norm, so that the learning rate is an angle."""

import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST = 1e-10


def radius(matrices: Float[Array, "*stack rows columns"]) -> Float[Array, "*stack 1 1"]:
    """The Frobenius norm of each matrix, in fp32.

    A sum of squares: ``jnp.linalg.norm`` of an array that is split over devices has been wrong on some of them.
    """
    return jnp.sqrt(jnp.sum(jnp.square(matrices.astype(jnp.float32)), (-2, -1), keepdims=True))


def step_on_sphere(
    matrices: Float[Array, "*stack rows columns"],
    direction: Float[Array, "*stack rows columns"],
    rate: float | Float[Array, ""],
    norm: Float[Array, "*stack 1 1"],
) -> Float[Array, "*stack rows columns"]:
    """What to add to each matrix so that it moves against ``direction`` and stays on its sphere.

    Args:
        matrices: each of norm ``norm``. One that is all zeros never moves.
        direction: of any length.
        rate: the step before it is projected back, as a part of ``norm``.
        norm: see `radius`.
    """
    moved = matrices - rate * direction * (norm / jnp.maximum(radius(direction), SMALLEST))
    return moved * (norm / jnp.maximum(radius(moved), SMALLEST)) - matrices
