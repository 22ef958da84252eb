"""MuonClip: queries and keys whose logits have grown too large are scaled back, for models without QK-norm."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def clip_queries_and_keys(
    query: Float[Array, "*layers width query_width"],
    key: Float[Array, "*layers width key_width"],
    peaks: Float[Array, "*layers heads"],
    largest: float | Float[Array, ""],
) -> tuple[Float[Array, "*layers width query_width"], Float[Array, "*layers width key_width"]]:
    """Scale the projections so that no attention logit of the measured batch is above ``largest``.

    The logits of each head are multiplied by ``min(1, largest / peak)`` exactly, those of other heads stay: a key head
    that several query heads share is scaled by the square root of the smallest of their factors, and each query head
    by the rest of its own.

    Args:
        query: projections to ``heads`` equal parts of the last axis.
        key: projections to ``key_value_heads`` equal parts; each serves the query heads that follow each other.
        peaks: the largest absolute logit of each head, measured before the step.
        largest: the bound; 100 is usual.

    Raises:
        ValueError: the heads do not divide the projections.

    Source: Kimi Team 2025, "Kimi K2", section 2.1 (arXiv 2507.20534).
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
