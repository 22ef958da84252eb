"""Causal attention in blocks of queries and keys: never more scores at once than one block of each has.

The forward pass keeps a running peak and sum of exponentials for each query (Milakov & Gimelshein 2018, arXiv
1805.02867); the reverse pass computes the scores again from the kept log-sums (Dao et al. 2022, arXiv 2205.14135).
Blocks of keys that no query of a block can see, being later or before the window, are passed over.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marin_kernels.manual_axes import equally_varying, zeros_like_varying
from marin_kernels.precision import exact_product

BLOCK = 512
"""Queries, and keys, of a block."""

_MASKED = -1e30  # finite: the difference of two infinities is NaN


class Sequences(NamedTuple):
    """Padded arrays in blocks: [batch, key_value_heads, blocks, ...]; queries are scaled, their heads in groups."""

    query: Float[Array, "batch key_value_heads blocks group block head_size"]
    key: Float[Array, "batch key_value_heads blocks block head_size"]
    value: Float[Array, "batch key_value_heads blocks block head_size"]
    segments: Int[Array, "batch blocks block"] | None


def _split(x: Array, block: int) -> Array:
    """[batch, length, heads, size] -> [batch, heads, blocks, block, size], zeros added at the end."""
    batch, length, heads, size = x.shape
    padded = jnp.pad(x, ((0, 0), (0, -length % block), (0, 0), (0, 0)))
    return padded.reshape(batch, -1, block, heads, size).transpose(0, 3, 1, 2, 4)


def _join(x: Array, length: int) -> Array:
    """The inverse of `_split`."""
    batch, heads, _, _, size = x.shape
    return x.transpose(0, 2, 3, 1, 4).reshape(batch, -1, heads, size)[:, :length]


def _grouped(x: Array, key_value_heads: int) -> Array:
    """[batch, heads, blocks, block, size] -> [batch, key_value_heads, blocks, group, block, size]."""
    batch, heads, *rest = x.shape
    return x.reshape(batch, key_value_heads, heads // key_value_heads, *rest).swapaxes(2, 3)


def _ungrouped(x: Array) -> Array:
    """The inverse of `_grouped`."""
    x = x.swapaxes(2, 3)
    return x.reshape(x.shape[0], -1, *x.shape[3:])


def _in_blocks(query, key, value, segment_ids):
    block = min(BLOCK, query.shape[1])
    scaled = (query / math.sqrt(query.shape[-1])).astype(query.dtype)
    segments = segment_ids
    if segment_ids is not None:
        missing = -segment_ids.shape[1] % block
        segments = jnp.pad(segment_ids, ((0, 0), (0, missing))).reshape(len(segment_ids), -1, block)
    return Sequences(_grouped(_split(scaled, block), key.shape[2]), _split(key, block), _split(value, block), segments)


def _block(x: Array, i: Int[Array, ""], axis: int) -> Array:
    return jax.lax.dynamic_index_in_dim(x, i, axis, keepdims=False)


def in_reach(
    i: Int[Array, ""], j: Int[Array, ""], block: int, window: int | Int[Array, ""] | None
) -> Bool[Array, "{block} {block}"]:
    """Which keys of block ``j`` are not after the queries of block ``i`` (first axis), nor before their window."""
    distance = (i - j) * block + jnp.arange(block)[:, None] - jnp.arange(block)
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)


def _visible(sequences: Sequences, i, j, window) -> Bool[Array, "batch 1 1 block block"]:
    """Which keys of block ``j`` the queries of block ``i`` see."""
    seen = in_reach(i, j, sequences.key.shape[3], window)
    if sequences.segments is None:
        return seen[None, None, None]
    own, other = _block(sequences.segments, i, 1), _block(sequences.segments, j, 1)
    return (seen & (own[:, :, None] == other[:, None, :]))[:, None, None]


def _scores(sequences, i, j, window):
    scores = exact_product("bkgtd,bksd->bkgts", _block(sequences.query, i, 2), _block(sequences.key, j, 2))
    return jnp.where(_visible(sequences, i, j, window), scores, _MASKED)


def first_seen(i: Int[Array, ""], block: int, window: int | Int[Array, ""] | None) -> int | Int[Array, ""]:
    """The first block of keys that queries of block ``i`` see."""
    return 0 if window is None else jnp.maximum(i * block - window + 1, 0) // block


def _end_seeing(j, blocks, block, window):
    """One more than the last block of queries that see keys of block ``j``."""
    return blocks if window is None else jnp.minimum((j * block + block - 2 + window) // block + 1, blocks)


def _attended(sequences, window):
    """Attended values in blocks, fp32, and each query's log-sum of exponentials."""
    batch, heads, blocks, group, block, size = sequences.query.shape

    def of_queries(i):
        def over_keys(j, state):
            peak, total, sums = state
            scores = _scores(sequences, i, j, window)
            higher = jnp.maximum(peak, jnp.max(scores, axis=-1))
            # A block may hold nothing for a query: its peak stays `_MASKED`, and what it adds is scaled away later.
            weights, fade = jnp.exp(scores - higher[..., None]), jnp.exp(peak - higher)
            values = _block(sequences.value, j, 2)
            sums = sums * fade[..., None] + exact_product("bkgts,bksd->bkgtd", weights.astype(values.dtype), values)
            return higher, total * fade + jnp.sum(weights, axis=-1), sums

        zeros = zeros_like_varying((batch, heads, group, block, size), jnp.float32, sequences.query)
        start = (zeros[..., 0] + _MASKED, zeros[..., 0], zeros)
        peak, total, sums = jax.lax.fori_loop(first_seen(i, block, window), i + 1, over_keys, start)
        return sums / total[..., None], peak + jnp.log(total)

    attended, logarithms = jax.lax.map(of_queries, jnp.arange(blocks))
    return jnp.moveaxis(attended, 0, 2), jnp.moveaxis(logarithms, 0, 2)


@jax.custom_vjp
def _attention(query, key, value, segment_ids, window):
    return _forward(query, key, value, segment_ids, window)[0]


def _forward(query, key, value, segment_ids, window):
    attended, logarithms = _attended(_in_blocks(query, key, value, segment_ids), window)
    output = _join(_ungrouped(attended), query.shape[1]).astype(query.dtype)
    return output, (query, key, value, segment_ids, window, output, logarithms)


def _backward(saved, cotangent):
    query, key, value, segment_ids, window, output, logarithms = saved
    sequences = _in_blocks(query, key, value, segment_ids)
    heads, block = key.shape[2], sequences.key.shape[3]
    pulled = _grouped(_split(cotangent, block), heads)
    products = jnp.sum(cotangent.astype(jnp.float32) * output.astype(jnp.float32), axis=-1, keepdims=True)
    products = _grouped(_split(products, block), heads)[..., 0]
    gradients = partial(_pair_gradients, sequences, pulled, products, logarithms, window)
    d_query, (d_key, d_value) = _sum_over_pairs(sequences, gradients, window)
    d_query = _join(_ungrouped(d_query), query.shape[1]) / math.sqrt(query.shape[-1])
    d_key, d_value = (_join(x, query.shape[1]) for x in (d_key, d_value))
    return d_query.astype(query.dtype), d_key.astype(key.dtype), d_value.astype(value.dtype), None, None


def _pair_gradients(sequences, pulled, products, logarithms, window, i, j):
    """What queries of block ``i`` and keys of block ``j`` add to the gradients of both."""
    scores = _scores(sequences, i, j, window)
    weights = jnp.exp(scores - _block(logarithms, i, 2)[..., None])
    cotangent = _block(pulled, i, 2)
    d_weights = exact_product("bkgtd,bksd->bkgts", cotangent, _block(sequences.value, j, 2))
    d_scores = weights * (d_weights - _block(products, i, 2)[..., None])
    weights, d_scores = (x.astype(cotangent.dtype) for x in (weights, d_scores))
    d_query = exact_product("bkgts,bksd->bkgtd", d_scores, _block(sequences.key, j, 2))
    d_key = exact_product("bkgts,bkgtd->bksd", d_scores, _block(sequences.query, i, 2))
    return d_query, d_key, exact_product("bkgts,bkgtd->bksd", weights, cotangent)


def _sum_over_pairs(sequences, gradients, window):
    """Blocks of keys one after another; the queries' gradients are summed in place."""
    _, _, blocks, _, block, _ = sequences.query.shape

    def of_keys(d_query, j):
        def over_queries(i, state):
            d_query, d_key, d_value = state
            more, more_key, more_value = gradients(i, j)
            d_query = jax.lax.dynamic_update_index_in_dim(d_query, _block(d_query, i, 2) + more, i, 2)
            return d_query, d_key + more_key, d_value + more_value

        shape = sequences.key.shape
        zeros = zeros_like_varying((*shape[:2], *shape[3:]), jnp.float32, sequences.query)
        end = _end_seeing(j, blocks, block, window)
        d_query, d_key, d_value = jax.lax.fori_loop(j, end, over_queries, (d_query, zeros, zeros))
        return d_query, (d_key, d_value)

    start = zeros_like_varying(sequences.query.shape, jnp.float32, sequences.query)
    d_query, d_keys = jax.lax.scan(of_keys, start, jnp.arange(blocks))
    return d_query, tuple(jnp.moveaxis(x, 0, 2) for x in d_keys)


_attention.defvjp(_forward, _backward)


def blockwise_attention(
    query: Float[Array, "batch length heads head_size"],
    key: Float[Array, "batch length key_value_heads head_size"],
    value: Float[Array, "batch length key_value_heads head_size"],
    segment_ids: Int[Array, "batch length"] | None,
    window: int | Int[Array, ""] | None,
) -> Float[Array, "batch length heads head_size"]:
    """As `marin_kernels.causal_attention`, holding scores of ``batch * heads * BLOCK**2`` pairs at once."""
    query, key, value = equally_varying(query, key, value)
    return _attention(query, key, value, segment_ids, window)
