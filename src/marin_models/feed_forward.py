"""The gated feed-forward block."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.mesh import BATCH, SHARDS, product, put


class SwiGLU(eqx.Module):
    """``(silu(x @ gate) * (x @ up)) @ down``.

    Source: Shazeer 2020, "GLU Variants Improve Transformer" (arXiv 2002.05202).
    """

    gate: Float[Array, "*layers width inner"] = parameter("matrix", (SHARDS, "model"))
    up: Float[Array, "*layers width inner"] = parameter("matrix", (SHARDS, "model"))
    down: Float[Array, "*layers inner width"] = parameter("matrix", ("model", SHARDS))

    def __init__(self, width: int, inner: int, *, scale: float, output_scale: float, key: Key[Array, ""]):
        keys = jax.random.split(key, 3)
        self.gate = initial_matrix(keys[0], width, inner, scale=scale)
        self.up = initial_matrix(keys[1], width, inner, scale=scale)
        self.down = initial_matrix(keys[2], inner, width, scale=output_scale)

    def __call__(self, x: Float[Array, "*rows width"]) -> Float[Array, "*rows width"]:
        """Transform each position by itself."""
        gate, up = (put(matrix.astype(x.dtype), None, "model") for matrix in (self.gate, self.up))
        down = put(self.down.astype(x.dtype), "model", None)
        return product(jax.nn.silu(product(x, gate)) * product(x, up), down, BATCH, *[None] * (x.ndim - 1))
