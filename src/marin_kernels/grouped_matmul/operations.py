"""The three products that an implementation of the grouped matmul consists of."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Rows = Float[Array, "rows inner"]
Results = Float[Array, "rows outer"]
Matrices = Float[Array, "groups inner outer"]
Sizes = Int[Array, " groups"]


class Operations(NamedTuple):
    """Forward and both reverse products. Sizes sum to at most ``rows``; nothing is known of the rows after their sum.

    Attributes:
        product: ``rows @ matrices[group of the row]``, zero after the last group, in the dtype of ``rows``.
        transposed_product: ``results @ matrices[group of the row].T``, zero after the last group, in the dtype of
            ``results``.
        outer_product: ``rows[group].T @ results[group]`` of each group, zero for an empty one, in the dtype of
            ``rows``.
    """

    product: Callable[[Rows, Matrices, Sizes], Results]
    transposed_product: Callable[[Results, Matrices, Sizes], Rows]
    outer_product: Callable[[Rows, Results, Sizes], Matrices]


def membership(rows: int, sizes: Sizes) -> Bool[Array, "groups rows"]:
    """Whether a row belongs to a group."""
    ends = jnp.cumsum(sizes)
    position = jnp.arange(rows)
    return (position >= (ends - sizes)[:, None]) & (position < ends[:, None])
