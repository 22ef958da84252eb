"""Rotary position embedding; the two members of a pair lie half a head apart ("split halves")."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from marin_models.rotary_scaling import RotaryScaling, scaled_frequencies


class RotaryTable(NamedTuple):
    """Cosines and sines of each position's angles, the same for all rows or each row's own.

    Attributes:
        cosine: ``cos(position * theta**(-2 i / rotated_size))`` for pair ``i``.
        sine: the same with ``sin``.
    """

    cosine: Float[Array, "*batch length half"]
    sine: Float[Array, "*batch length half"]


def rotary_table(length: int, rotated_size: int, theta: float, scaling: RotaryScaling | None = None) -> RotaryTable:
    """The angles of positions ``0 .. length - 1``, in fp32, for heads of which ``rotated_size`` entries are rotated.

    Args:
        length: positions.
        rotated_size: entries of a head that are rotated, even.
        theta: base of the frequencies.
        scaling: how the context was extended, if it was; ``amplitude`` of it multiplies cosines and sines.

    Source: Su et al. 2021, "RoFormer" (arXiv 2104.09864).
    """
    frequencies = theta ** (-jnp.arange(0, rotated_size, 2, dtype=jnp.float32) / rotated_size)
    if scaling is not None:
        frequencies = scaled_frequencies(frequencies, theta, scaling)
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * frequencies
    table = RotaryTable(jnp.cos(angles), jnp.sin(angles))
    return table if scaling is None else RotaryTable(*(scaling.amplitude * part for part in table))


def rotate(
    x: Float[Array, "batch length heads head_size"], table: RotaryTable
) -> Float[Array, "batch length heads head_size"]:
    """Turn pair ``(x[i], x[i + half])`` of every head by its position's angle ``i``; what lies beyond stays."""
    cosine, sine = (part[..., None, :].astype(x.dtype) for part in table)
    half = cosine.shape[-1]
    first, second, *rest = jnp.split(x, [half, 2 * half] if 2 * half < x.shape[-1] else 2, axis=-1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine, *rest], axis=-1)
