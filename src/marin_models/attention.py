"""Self-attention with rotary positions, grouped key/value heads and normalized queries and keys."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from marin_kernels import attention_logit_peaks, causal_attention
from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.mesh import BATCH, SHARDS, axis_sizes, per_shard, product, put, spec
from marin_models.normalization import RMSNorm
from marin_models.rotary import RotaryTable, rotate
from marin_models.transformer_config import TransformerConfig


class Attention(eqx.Module):
    """Causal self-attention; queries and keys are normalized before they are rotated (as in Qwen3).

    Source of the gate on heads: Qiu et al. 2025, "Gated Attention for Large Language Models" (arXiv 2505.06708).
    """

    query: Float[Array, "*layers width query_width"] = parameter("matrix", (SHARDS, "model"))
    key: Float[Array, "*layers width key_value_width"] = parameter("matrix", (SHARDS, "model"))
    value: Float[Array, "*layers width key_value_width"] = parameter("matrix", (SHARDS, "model"))
    output: Float[Array, "*layers query_width width"] = parameter("matrix", ("model", SHARDS))
    query_norm: RMSNorm | None
    key_norm: RMSNorm | None
    query_bias: Float[Array, "*layers query_width"] | None = parameter("bias", ("model",))
    key_bias: Float[Array, "*layers key_value_width"] | None = parameter("bias", ("model",))
    value_bias: Float[Array, "*layers key_value_width"] | None = parameter("bias", ("model",))
    gate: Float[Array, "*layers width heads"] | None = parameter("router", (SHARDS, "model"))
    config: TransformerConfig = eqx.field(static=True)

    def __init__(self, config: TransformerConfig, *, key: Key[Array, ""]):
        keys = jax.random.split(key, 4)
        width, queries, shared = (
            config.width,
            config.heads * config.head_size,
            config.key_value_heads * config.head_size,
        )
        self.query = initial_matrix(keys[0], width, queries, scale=config.initial_scale)
        self.key = initial_matrix(keys[1], width, shared, scale=config.initial_scale)
        self.value = initial_matrix(keys[2], width, shared, scale=config.initial_scale)
        self.output = initial_matrix(keys[3], queries, width, scale=config.output_scale)
        normalized = {"head": (config.head_size,) * 2, "projection": (queries, shared), "none": (None, None)}
        self.query_norm, self.key_norm = (
            None if size is None else RMSNorm(size, config.norm_epsilon) for size in normalized[config.qk_norm]
        )
        self.query_bias, self.key_bias, self.value_bias = (
            jnp.zeros(size) if config.attention_bias else None for size in (queries, shared, shared)
        )
        self.gate = jnp.zeros((width, config.heads)) if config.attention_gate else None
        self.config = config

    def __call__(
        self,
        x: Float[Array, "batch length width"],
        table: RotaryTable,
        segment_ids: Int[Array, "batch length"] | None = None,
        *,
        window: int | None = None,
        peaks: bool = False,
    ) -> tuple[Float[Array, "batch length width"], Float[Array, " heads"] | None]:
        """Mix information between the positions of each row.

        Args:
            x: normalized input.
            table: the angles of its positions.
            segment_ids: the document of each token in packed rows; None: each row is one document.
            window: how many positions a token sees, itself included; None: the whole past.
            peaks: the largest logits of the heads are measured.

        Returns:
            What is added to the residual stream, and the largest logit of each query head over the batch, fp32 (see
            `marin_kernels.attention_logit_peaks`); None: not measured.
        """
        query, key, value = self.project(x, table)
        attend = functools.partial(causal_attention, window=window, implementation=self.config.attention)
        heads, rows = spec(BATCH, None, "model", None), spec(BATCH, None)
        attended = per_shard(attend, (heads, heads, heads, rows), heads)(query, key, value, segment_ids)
        found = self.peaks(query, key, segment_ids, window=window) if peaks else None
        return self.combine(x, attended), found

    def peaks(
        self,
        query: Float[Array, "batch length heads head_size"],
        key: Float[Array, "batch length key_value_heads head_size"],
        segment_ids: Int[Array, "batch length"] | None,
        *,
        window: int | None,
    ) -> Float[Array, " heads"]:
        """The largest logit of each query head over the whole batch, wherever its rows lie; arguments as above."""
        split = tuple(axis for axis in BATCH if axis in axis_sizes())
        measure = functools.partial(attention_logit_peaks, window=window, axes=split)
        heads, rows = spec(BATCH, None, "model", None), spec(BATCH, None)
        return per_shard(measure, (heads, heads, rows), spec("model"))(query, key, segment_ids)

    def project(
        self, x: Float[Array, "batch length width"], table: RotaryTable
    ) -> tuple[
        Float[Array, "batch length heads head_size"],
        Float[Array, "batch length key_value_heads head_size"],
        Float[Array, "batch length key_value_heads head_size"],
    ]:
        """Queries, keys and values of each position; queries and keys normalized and rotated."""
        query = self._projected(x, self.query, self.query_bias, self.query_norm)
        key = self._projected(x, self.key, self.key_bias, self.key_norm)
        return rotate(query, table), rotate(key, table), self._projected(x, self.value, self.value_bias, None)

    def _projected(self, x: Array, matrix: Array, bias: Array | None, norm: RMSNorm | None) -> Array:
        projected = product(x, put(matrix.astype(x.dtype), None, "model"))
        if bias is not None:
            projected = projected + put(bias.astype(x.dtype), "model")
        if norm is not None and self.config.qk_norm == "projection":
            projected = norm(projected)
        # Left to infer, a single head would leave its own axis whole, and split its entries instead.
        split = spec(BATCH, None, "model", None) if axis_sizes() else None
        heads = jnp.reshape(projected, (*x.shape[:2], -1, self.config.head_size), out_sharding=split)
        return norm(heads) if norm is not None and self.config.qk_norm == "head" else heads

    def combine(
        self, x: Float[Array, "batch length width"], attended: Float[Array, "batch length heads head_size"]
    ) -> Float[Array, "batch length width"]:
        """What the heads found, gated by the input, put together for the residual stream."""
        if self.gate is not None:
            gate = jax.nn.sigmoid(product(x, put(self.gate.astype(x.dtype), None, "model")).astype(jnp.float32))
            attended = (attended * (2 * gate[..., None])).astype(x.dtype)
        split = spec(BATCH, None, "model") if axis_sizes() else None
        together = jnp.reshape(attended, (*x.shape[:2], -1), out_sharding=split)
        return product(together, put(self.output.astype(x.dtype), "model", None), BATCH, None, None)
