"""Causal attention with grouped key/value heads, in fp32 softmax, behind one function."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marin_kernels import attention_libraries
from marin_kernels.attention_blockwise import blockwise_attention
from marin_kernels.implementations import Obstacle, choose
from marin_kernels.precision import exact_product

AttentionImplementation = Literal["default", "reference", "folded", "blockwise", "tokamax", "splash"]

LONG = 1024
"""Up to this length the probabilities of all pairs are held; the scores of longer rows are computed in blocks."""

_OBSTACLES: dict[str, Obstacle] = {
    **dict.fromkeys(("reference", "folded", "blockwise"), lambda query, window: None),
    "tokamax": attention_libraries.tokamax_obstacle,
    "splash": attention_libraries.splash_obstacle,
}

_MASKED = -1e30  # finite: a row always sees itself, and infinities turn into NaN in gradients


def causal_attention(
    query: Float[Array, "batch length heads head_size"],
    key: Float[Array, "batch length key_value_heads head_size"],
    value: Float[Array, "batch length key_value_heads head_size"],
    segment_ids: Int[Array, "batch length"] | None = None,
    *,
    window: int | Int[Array, ""] | None = None,
    implementation: AttentionImplementation = "default",
) -> Float[Array, "batch length heads head_size"]:
    """Each position attends to itself and to earlier positions of its own segment.

    Args:
        query: queries; consecutive groups of ``heads // key_value_heads`` heads share one key/value head.
        key: keys.
        value: values.
        segment_ids: the document that each token belongs to; tokens of different documents do not see each
            other. None: all tokens of a row are one document.
        window: how many positions a token sees at most, itself included; it may be traced, so that the layers of a
            scanned stack can differ. None: the whole past.
        implementation: ``"reference"`` is the plain formula, differentiable in every mode. ``"folded"`` folds the
            heads of a group into the rows of one matrix product and keeps the probabilities
            (``batch * heads * length**2`` numbers) for a hand-written reverse pass; about twice as fast on a CPU.
            ``"blockwise"`` never holds more than a block of them, and passes over blocks outside the window.
            ``"tokamax"`` is that library's; ``"splash"`` is JAX's kernel for TPUs, which is for bf16. ``"default"`` is
            ``"splash"`` on a TPU, ``"tokamax"`` on a GPU that has it, else ``"folded"`` up to a length of `LONG`, then
            ``"blockwise"``; where the first two cannot take the arguments, a
            `marin_kernels.implementations.FallbackWarning` says why.

    Returns:
        The attended values, in the dtype of ``query``; scores and softmax are computed in fp32.

    Raises:
        ValueError: the heads do not divide into groups, the window is empty, or the implementation named is unknown
            or cannot run here.

    Source: Ainslie et al. 2023, "GQA" (arXiv 2305.13245).
    """
    check_heads("causal_attention", query.shape[2], key.shape[2])
    check_window("causal_attention", window)
    name = choose("causal_attention", implementation, _OBSTACLES, _order(query.shape[1]), query, window)
    compute = {
        "reference": _reference,
        "folded": _folded,
        "blockwise": blockwise_attention,
        "tokamax": attention_libraries.tokamax_attention,
        "splash": attention_libraries.splash_attention,
    }[name]
    return compute(query, key, value, segment_ids, window)


def check_heads(function: str, heads: int, key_value_heads: int) -> None:
    """Raise ``ValueError`` in the name of ``function`` if query heads cannot share key/value heads equally."""
    if heads % key_value_heads:
        raise ValueError(
            f"{function}: {heads} query heads cannot share {key_value_heads} key/value heads equally; "
            "make the number of heads a multiple of the number of key/value heads"
        )


def check_window(function: str, window: int | Array | None) -> None:
    """Raise ``ValueError`` in the name of ``function`` if a window is known to be empty."""
    if isinstance(window, int) and window < 1:
        raise ValueError(
            f"{function}: a window of {window} positions leaves a token nothing to see; "
            "it includes the token itself: give at least 1, or None for the whole past"
        )


def _order(length: int) -> dict[str, tuple[str, ...]]:
    """The usual implementations by platform."""
    plain = ("folded" if length <= LONG else "blockwise",)
    gpu = ("tokamax", *plain) if attention_libraries.has_tokamax() else plain
    return {"cpu": plain, "gpu": gpu, "tpu": ("splash", *plain)}


def visible(
    length: int,
    segment_ids: Int[Array, "batch length"] | None = None,
    window: int | Int[Array, ""] | None = None,
) -> Bool[Array, "rows length length"]:
    """Which keys (last axis) a query sees: itself and the past, inside its own segment and its window.

    The first axis, ``rows``, is the batch where there are segments, else 1.
    """
    causal = jnp.tril(jnp.ones((1, length, length), bool))
    if window is not None:
        positions = jnp.arange(length)
        causal &= positions[:, None] - positions[None] < window
    return causal if segment_ids is None else causal & (segment_ids[:, :, None] == segment_ids[:, None, :])


def _reference(query, key, value, segment_ids, window):
    batch, length, heads, head_size = query.shape
    grouped = query.reshape(batch, length, key.shape[2], -1, head_size).astype(jnp.float32)
    scores = exact_product("btkgd,bskd->bkgts", grouped, key.astype(jnp.float32)) / math.sqrt(head_size)
    mask = visible(length, segment_ids, window)[:, None, None]
    probabilities = jax.nn.softmax(jnp.where(mask, scores, _MASKED), axis=-1)
    attended = exact_product("bkgts,bskd->btkgd", probabilities, value.astype(jnp.float32))
    return attended.reshape(batch, length, heads, head_size).astype(query.dtype)


def _fold(x: Array, key_value_heads: int) -> Array:
    """[batch, length, heads, size] -> [batch * key_value_heads, group * length, size]."""
    batch, length, heads, size = x.shape
    grouped = x.reshape(batch, length, key_value_heads, heads // key_value_heads, size)
    return grouped.transpose(0, 2, 3, 1, 4).reshape(batch * key_value_heads, -1, size)


def _unfold(x: Array, batch: int, length: int) -> Array:
    """The inverse of `_fold`."""
    key_value_heads, group, size = x.shape[0] // batch, x.shape[1] // length, x.shape[2]
    grouped = x.reshape(batch, key_value_heads, group, length, size).transpose(0, 3, 1, 2, 4)
    return grouped.reshape(batch, length, key_value_heads * group, size)


@jax.custom_vjp
def _folded(query, key, value, segment_ids, window):
    return _folded_forward(query, key, value, segment_ids, window)[0]


def _folded_forward(query, key, value, segment_ids, window):
    (batch, length, heads, head_size), key_value_heads = query.shape, key.shape[2]
    rows, keys, values = (_fold(x, key_value_heads) for x in (query / math.sqrt(head_size), key, value))
    mask = visible(length, segment_ids, window)[:, None, None]
    mask = jnp.broadcast_to(mask, (batch, key_value_heads, heads // key_value_heads, length, length))
    scores = jnp.where(mask.reshape(*rows.shape[:2], length), exact_product("ntd,nsd->nts", rows, keys), _MASKED)
    exponentials = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    probabilities = (exponentials / jnp.sum(exponentials, axis=-1, keepdims=True)).astype(query.dtype)
    attended = exact_product("nts,nsd->ntd", probabilities, values)
    output = _unfold(attended.astype(query.dtype), batch, length)
    return output, (rows, keys, values, attended, probabilities)


def _folded_backward(saved, cotangent):
    rows, keys, values, attended, probabilities = saved
    batch, length, _, head_size = cotangent.shape
    pulled = _fold(cotangent, keys.shape[0] // batch)
    d_probabilities = exact_product("ntd,nsd->nts", pulled, values)
    d_scores = probabilities * (d_probabilities - jnp.sum(pulled * attended, axis=-1, keepdims=True))
    d_scores = d_scores.astype(probabilities.dtype)
    d_values = exact_product("nts,ntd->nsd", probabilities, pulled)
    d_keys = exact_product("nts,ntd->nsd", d_scores, rows)
    d_rows = exact_product("nts,nsd->ntd", d_scores, keys) / math.sqrt(head_size)
    gradients = (_unfold(x.astype(cotangent.dtype), batch, length) for x in (d_rows, d_keys, d_values))
    return (*gradients, None, None)


_folded.defvjp(_folded_forward, _folded_backward)
