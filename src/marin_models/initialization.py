"""How matrices begin."""

import jax
from jaxtyping import Array, Float, Key


def initial_matrix(
    key: Key[Array, ""], inputs: int, outputs: int, *, scale: float = 1.0
) -> Float[Array, "{inputs} {outputs}"]:
    """Normal numbers, cut at three deviations, of standard deviation ``scale / sqrt(inputs)``."""
    return scale / inputs**0.5 * jax.random.truncated_normal(key, -3, 3, (inputs, outputs))
