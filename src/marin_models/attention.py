"""Self-attention with rotary positions, grouped key/value heads and normalized queries and keys."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from marin_kernels import AttentionImplementation, causal_attention
from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.normalization import RMSNorm
from marin_models.rotary import RotaryTable, rotate


class Attention(eqx.Module):
    """Causal self-attention; queries and keys are normalized per head before they are rotated (as in Qwen3)."""

    query: Float[Array, "*layers width query_width"] = parameter("matrix")
    key: Float[Array, "*layers width key_value_width"] = parameter("matrix")
    value: Float[Array, "*layers width key_value_width"] = parameter("matrix")
    output: Float[Array, "*layers query_width width"] = parameter("matrix")
    query_norm: RMSNorm
    key_norm: RMSNorm
    implementation: AttentionImplementation = eqx.field(static=True)

    def __init__(
        self,
        width: int,
        heads: int,
        key_value_heads: int,
        head_size: int,
        *,
        epsilon: float,
        scale: float,
        output_scale: float,
        implementation: AttentionImplementation,
        key: Key[Array, ""],
    ):
        keys = jax.random.split(key, 4)
        self.query = initial_matrix(keys[0], width, heads * head_size, scale=scale)
        self.key = initial_matrix(keys[1], width, key_value_heads * head_size, scale=scale)
        self.value = initial_matrix(keys[2], width, key_value_heads * head_size, scale=scale)
        self.output = initial_matrix(keys[3], heads * head_size, width, scale=output_scale)
        self.query_norm = RMSNorm(head_size, epsilon)
        self.key_norm = RMSNorm(head_size, epsilon)
        self.implementation = implementation

    def __call__(
        self,
        x: Float[Array, "batch length width"],
        table: RotaryTable,
        segment_ids: Int[Array, "batch length"] | None = None,
    ) -> Float[Array, "batch length width"]:
        """Mix information between the positions of each row."""
        query, key, value = self.project(x, table)
        attended = causal_attention(query, key, value, segment_ids, implementation=self.implementation)
        return self.combine(x, attended)

    def project(
        self, x: Float[Array, "batch length width"], table: RotaryTable
    ) -> tuple[
        Float[Array, "batch length heads head_size"],
        Float[Array, "batch length key_value_heads head_size"],
        Float[Array, "batch length key_value_heads head_size"],
    ]:
        """Queries, keys and values of each position, normalized and rotated."""
        head_size = 2 * table.cosine.shape[-1]
        projected = (x @ matrix.astype(x.dtype) for matrix in (self.query, self.key, self.value))
        query, key, value = (part.reshape(*x.shape[:2], -1, head_size) for part in projected)
        return rotate(self.query_norm(query), table), rotate(self.key_norm(key), table), value

    def combine(
        self, x: Float[Array, "batch length width"], attended: Float[Array, "batch length heads head_size"]
    ) -> Float[Array, "batch length width"]:
        """What the heads found, put together for the residual stream."""
        return jnp.reshape(attended, (*x.shape[:2], -1)) @ self.output.astype(x.dtype)
