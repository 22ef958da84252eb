"""MuonClip: queries and keys whose logits have grown too large are scaled back, for models without QK-norm."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from marin_models.attention import Attention
from marin_models.mesh import put
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig


def clip_queries_and_keys(
    query: Float[Array, "*layers width query_width"],
    key: Float[Array, "*layers width key_width"],
    peaks: Float[Array, "*layers heads"],
    largest: float | Float[Array, ""],
) -> tuple[Float[Array, "*layers width query_width"], Float[Array, "*layers width key_width"]]:
    """Scale the projections so that no attention logit of the measured batch is above ``largest``.

    The logits of each head are multiplied by ``min(1, largest / peak)`` exactly, those of other heads stay: a key head
    that several query heads share is scaled by the square root of the smallest of their factors, and each query head
    by the rest of its own. Peaks have a sign: a head whose logits are all below zero stays, however far below.

    Args:
        query: projections to ``heads`` equal parts of the last axis.
        key: projections to ``key_value_heads`` equal parts; each serves the query heads that follow each other.
        peaks: the largest logit of each head (see `marin_kernels.attention_logit_peaks`), measured before the step.
        largest: the bound; 100 is usual.

    Raises:
        ValueError: the heads do not divide the projections.

    Source: Kimi Team 2025, "Kimi K2", section 2.1 and algorithm 1 (arXiv 2507.20534), there for a key of each head.
    """
    heads, size = peaks.shape[-1], query.shape[-1] // peaks.shape[-1]
    if query.shape[-1] % heads or key.shape[-1] % size or heads % (key.shape[-1] // size):
        raise ValueError(
            f"clip_queries_and_keys: {heads} heads do not divide queries of {query.shape[-1]} and keys of "
            f"{key.shape[-1]} columns; give the peak of every query head of the model that these belong to"
        )
    shared = key.shape[-1] // size
    factors = jnp.minimum(1.0, largest / jnp.maximum(peaks, jnp.finfo(peaks.dtype).tiny))
    grouped = factors.reshape(*factors.shape[:-1], shared, heads // shared)
    of_keys = jnp.sqrt(jnp.min(grouped, axis=-1))
    of_queries = (grouped / of_keys[..., None]).reshape(factors.shape)
    return query * _columns(of_queries, size), key * _columns(of_keys, size)


def _columns(factors: Array, size: int) -> Array:
    return jnp.repeat(factors, size, axis=-1)[..., None, :]


def clip_attention(
    model: Transformer, peaks: Float[Array, "layers heads"], largest: float | Float[Array, ""]
) -> Transformer:
    """The model with queries and keys of every layer clipped, biases included; the rest is as it was.

    Args:
        model: without QK-norm (see `check_clippable`).
        peaks: as `Transformer.forward` measures them.
        largest: the bound; groups of heads that share a key and are all at or below it stay bit for bit.
    """
    peaks = put(peaks, None, None)  # a few numbers, which every device needs whole
    dense = model.config.dense_layers
    if model.dense_blocks is not None:
        clipped = _clipped(model.dense_blocks.attention, peaks[:dense], largest)
        model = eqx.tree_at(lambda tree: tree.dense_blocks.attention, model, clipped)
    return eqx.tree_at(
        lambda tree: tree.blocks.attention, model, _clipped(model.blocks.attention, peaks[dense:], largest)
    )


def _clipped(attention: Attention, peaks: Array, largest: float | Array) -> Attention:
    """The attention of a stack of layers, clipped."""
    pair = clip_queries_and_keys(attention.query, attention.key, peaks, largest)
    attention = eqx.tree_at(lambda each: (each.query, each.key), attention, pair)
    if attention.query_bias is None or attention.key_bias is None:
        return attention
    # A bias is a projection of the number one.
    rows = (bias[..., None, :] for bias in (attention.query_bias, attention.key_bias))
    biases = tuple(row[..., 0, :] for row in clip_queries_and_keys(*rows, peaks, largest))
    return eqx.tree_at(lambda each: (each.query_bias, each.key_bias), attention, biases)


def check_clippable(config: TransformerConfig) -> None:
    """Raise ``ValueError`` for a model whose logits do not follow the size of its queries and keys."""
    if config.qk_norm != "none":
        raise ValueError(
            f"query_key_clip is for models without QK-norm, and this one has qk_norm={config.qk_norm!r}: queries and "
            "keys are normalized after they are projected, so that scaling the projections changes no logit, and the "
            "norms keep logits small already; leave query_key_clip out of the OptimizerConfig, or make the "
            "TransformerConfig with qk_norm='none'"
        )
