"""How large the logits of attention become: what clipping of queries and keys looks at."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels.attention import check_heads, check_window
from marin_kernels.attention_blockwise import BLOCK, first_seen, in_reach
from marin_kernels.manual_axes import equally_varying, zeros_like_varying
from marin_kernels.precision import exact_product

_NO_SEGMENT = -1  # what is added to the end of a row is padding


def attention_logit_peaks(
    query: Float[Array, "batch length heads head_size"],
    key: Float[Array, "batch length key_value_heads head_size"],
    segment_ids: Int[Array, "batch length"] | None = None,
    *,
    window: int | Int[Array, ""] | None = None,
    axes: Sequence[str] = (),
) -> Float[Array, " heads"]:
    """The largest logit of each query head over all pairs of a batch that `marin_kernels.causal_attention` looks at.

    Logits are ``query @ key / sqrt(head_size)`` in fp32. The largest one counts with its sign: a softmax can only be
    saturated from above, and a head whose logits are all far below zero attends as one with logits near zero. Never
    more than ``batch * heads * BLOCK**2`` logits are held at once, and no gradient flows.

    Args:
        query: queries; consecutive groups of ``heads // key_value_heads`` heads share one key head.
        key: keys.
        segment_ids: the document of each token, as for `marin_kernels.causal_attention`; queries of tokens with a
            negative number, which is padding, do not count. None: all tokens of a row are one document.
        window: how many positions a token sees at most, itself included; it may be traced. None: the whole past.
        axes: inside `jax.shard_map`, the mesh axes that split the batch; the maximum is then over their devices too.

    Returns:
        fp32; minus infinity where nothing counts.

    Raises:
        ValueError: the heads do not divide into groups, or the window is empty.

    Source: Kimi Team 2025, "Kimi K2", section 2.1, where the maximum is signed likewise (arXiv 2507.20534).
    """
    check_heads("attention_logit_peaks", query.shape[2], key.shape[2])
    check_window("attention_logit_peaks", window)
    query, key = (jax.lax.stop_gradient(x) for x in equally_varying(query, key))
    peaks = _peaks(query, key, segment_ids, window) / math.sqrt(query.shape[-1])
    return jax.lax.pmax(peaks, tuple(axes)) if axes else peaks


def _peaks(query: Array, key: Array, segment_ids: Array | None, window: int | Array | None) -> Float[Array, " heads"]:
    batch, length, heads, size = query.shape
    block, shared = min(BLOCK, length), key.shape[2]
    segments = jnp.zeros((batch, length), jnp.int32) if segment_ids is None else segment_ids
    queries = _in_blocks(query.reshape(batch, length, shared, -1, size), block)
    keys, ids = _in_blocks(key, block), _in_blocks(segments, block, _NO_SEGMENT)
    nothing = zeros_like_varying((shared, heads // shared), jnp.float32, query, segments) - jnp.inf

    def of_pair(i: Array, j: Array, peaks: Array) -> Array:
        scores = exact_product("btkgd,bskd->bkgts", queries[i], keys[j])
        own = ids[i][:, :, None]
        counted = in_reach(i, j, block, window) & (own == ids[j][:, None]) & (own >= 0)
        found = jnp.max(jnp.where(counted[:, None, None], scores, -jnp.inf), axis=(0, 3, 4))
        return jnp.maximum(peaks, found)

    def of_queries(i: Array) -> Array:
        return jax.lax.fori_loop(first_seen(i, block, window), i + 1, lambda j, peaks: of_pair(i, j, peaks), nothing)

    if len(ids) == 1:  # no loop: short rows are the usual ones, and loops keep a compiler from fusing
        return of_pair(jnp.int32(0), jnp.int32(0), nothing).reshape(heads)
    return jnp.max(jax.lax.map(of_queries, jnp.arange(len(ids))), axis=0).reshape(heads)


def _in_blocks(x: Array, block: int, padding: int = 0) -> Array:
    """[batch, length, ...] -> [blocks, batch, block, ...]; the last block is filled up."""
    missing = ((0, 0), (0, -x.shape[1] % block), *[(0, 0)] * (x.ndim - 2))
    padded = jnp.pad(x, missing, constant_values=padding)
    return jnp.moveaxis(padded.reshape(x.shape[0], -1, block, *x.shape[2:]), 1, 0)
