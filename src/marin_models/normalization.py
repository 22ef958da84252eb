"""Root-mean-square normalization."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marin_models.groups import parameter


class RMSNorm(eqx.Module):
    """``x / sqrt(mean(x**2) + epsilon) * scale`` over the last axis, in fp32.

    Source: Zhang & Sennrich 2019 (arXiv 1910.07467).
    """

    scale: Float[Array, " size"] = parameter("norm")
    epsilon: float = eqx.field(static=True)

    def __init__(self, size: int, epsilon: float):
        self.scale = jnp.ones(size)
        self.epsilon = epsilon

    def __call__(self, x: Float[Array, "*rows size"]) -> Float[Array, "*rows size"]:
        """Normalize the last axis; the result has the dtype of ``x``."""
        exact = x.astype(jnp.float32)
        mean_square = jnp.mean(exact**2, axis=-1, keepdims=True)
        return (exact * jax.lax.rsqrt(mean_square + self.epsilon) * self.scale).astype(x.dtype)
