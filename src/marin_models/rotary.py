"""Rotary position embedding; the two members of a pair lie half a head apart ("split halves")."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class RotaryTable(NamedTuple):
    """Cosines and sines of each position's angles, the same for all rows or each row's own.

    Attributes:
        cosine: ``cos(position * theta**(-2 i / head_size))`` for pair ``i``.
        sine: the same with ``sin``.
    """

    cosine: Float[Array, "*batch length half"]
    sine: Float[Array, "*batch length half"]


def rotary_table(length: int, head_size: int, theta: float | Float[Array, ""]) -> RotaryTable:
    """The angles of positions ``0 .. length - 1``, in fp32.

    Source: Su et al. 2021, "RoFormer" (arXiv 2104.09864).
    """
    frequencies = theta ** (-jnp.arange(0, head_size, 2, dtype=jnp.float32) / head_size)
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * frequencies
    return RotaryTable(jnp.cos(angles), jnp.sin(angles))


def rotate(
    x: Float[Array, "batch length heads head_size"], table: RotaryTable
) -> Float[Array, "batch length heads head_size"]:
    """Turn pair ``(x[i], x[i + head_size / 2])`` of every head by its position's angle ``i``."""
    cosine, sine = (part[..., None, :].astype(x.dtype) for part in table)
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
