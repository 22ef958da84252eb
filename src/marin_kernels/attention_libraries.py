"""Causal attention by others' kernels: JAX's splash attention for TPUs, and the library tokamax."""

import math
from importlib import import_module
from importlib.util import find_spec

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels.implementations import platform
from marin_kernels.precision import precision

LANES = 128


def has_tokamax() -> bool:
    """Whether tokamax is installed."""
    return find_spec("tokamax") is not None


def tokamax_obstacle(query: Array, window: int | Array | None) -> str | None:
    """Why tokamax's attention cannot run."""
    if not has_tokamax():
        return "tokamax is not installed: pip install tokamax"
    return _traced(window)


def splash_obstacle(query: Array, window: int | Array | None) -> str | None:
    """Why JAX's kernel for TPUs cannot run."""
    if (here := platform(query)) != "tpu":
        return f"it is written for TPUs, and this program is for a {here}"
    _, length, _, size = query.shape
    if length % LANES or size % LANES:
        return f"length and head size must be multiples of {LANES}, and they are {length} and {size}"
    rounding = "it rounds the factors of fp32 products to bf16" if query.dtype == jnp.float32 else None
    return _traced(window) or rounding


def _traced(window):
    if window is None or isinstance(window, int):
        return None
    return "its window must be a number known when the program is traced, and this one is an array"


def tokamax_attention(
    query: Float[Array, "batch length heads head_size"],
    key: Float[Array, "batch length key_value_heads head_size"],
    value: Float[Array, "batch length key_value_heads head_size"],
    segment_ids: Int[Array, "batch length"] | None,
    window: int | None,
) -> Float[Array, "batch length heads head_size"]:
    """As `marin_kernels.causal_attention`, by tokamax's choice of kernel."""
    same = None if segment_ids is None else (segment_ids[:, :, None] == segment_ids[:, None, :])[:, None]
    attend = import_module("tokamax").dot_product_attention
    past = None if window is None else (window - 1, 0)
    exact = precision(query.dtype)
    found = attend(query, key, value, mask=same, is_causal=True, local_window_size=past, precision=exact)
    return found.astype(query.dtype)


def splash_attention(
    query: Float[Array, "batch length heads head_size"],
    key: Float[Array, "batch length key_value_heads head_size"],
    value: Float[Array, "batch length key_value_heads head_size"],
    segment_ids: Int[Array, "batch length"] | None,
    window: int | None,
    *,
    interpret: bool = False,
) -> Float[Array, "batch length heads head_size"]:
    """As `marin_kernels.causal_attention`, by JAX's splash attention."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    length, heads, size = query.shape[1:]
    square = (length, length)
    mask = masks.CausalMask(square) if window is None else masks.LocalMask(square, (window - 1, 0), 0)
    attend = splash.make_splash_mha(
        masks.MultiHeadMask([mask] * heads), head_shards=1, q_seq_shards=1, interpret=interpret
    )
    scaled = (query / math.sqrt(size)).astype(query.dtype)
    arrays = [x.swapaxes(1, 2) for x in (scaled, key, value)]
    ids = None if segment_ids is None else splash.SegmentIds(*[segment_ids.astype(jnp.int32)] * 2)
    return jax.vmap(attend)(*arrays, ids).swapaxes(1, 2)
