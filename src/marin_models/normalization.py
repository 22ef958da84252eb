"""Root-mean-square normalization, plain or gated."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.mesh import SHARDS, product, put


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


class GatedNorm(eqx.Module):
    """``y * 2 * sigmoid(silu(y @ down) @ up)`` of ``y = RMSNorm(x)``; begins as the plain norm.

    The gate has a low rank and lets a position quieten directions of its own state.

    Source: the gated norm of arXiv 2601.22966, with a factor of two so that it begins as 1.
    """

    norm: RMSNorm
    down: Float[Array, "*layers width rank"] = parameter("matrix", (SHARDS, None))
    up: Float[Array, "*layers rank width"] = parameter("matrix", (None, SHARDS))

    def __init__(self, width: int, rank: int, epsilon: float, *, scale: float, key: Key[Array, ""]):
        self.norm = RMSNorm(width, epsilon)
        self.down = initial_matrix(key, width, rank, scale=scale)
        self.up = jnp.zeros((rank, width))

    def __call__(self, x: Float[Array, "*rows width"]) -> Float[Array, "*rows width"]:
        """Normalize and gate the last axis; the result has the dtype of ``x``."""
        y = self.norm(x)
        down, up = (put(matrix.astype(x.dtype), None, None) for matrix in (self.down, self.up))
        gate = 2 * jax.nn.sigmoid(product(jax.nn.silu(product(y, down)), up).astype(jnp.float32))
        return (y * gate).astype(x.dtype)
