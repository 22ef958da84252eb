"""Rows spread out so that each group begins at a tile of its own: kernels on them need neither masks nor metadata."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels.grouped_matmul.operations import Sizes


class Alignment(NamedTuple):
    """How rows are spread out over tiles.

    Attributes:
        source: the row that each place holds; out of range where it holds none.
        place: where each row is; out of range for rows of no group.
        group: the group of each tile; any group for tiles that hold nothing.
        first: the first tile of each group.
        tiles: how many tiles each group has.
    """

    source: Int[Array, " places"]
    place: Int[Array, " rows"]
    group: Int[Array, " tiles"]
    first: Int[Array, " groups"]
    tiles: Int[Array, " groups"]


def align(rows: int, height: int, sizes: Sizes) -> Alignment:
    """Spread ``rows`` out over ``rows // height + groups`` tiles, which always suffice."""
    groups, count = len(sizes), rows // height + len(sizes)
    ends, tiles = jnp.cumsum(sizes), -(-sizes // height)
    below = jnp.cumsum(tiles)
    first = below - tiles
    group = jnp.minimum(jnp.sum(below[None] <= jnp.arange(count)[:, None], axis=1), groups - 1)
    places, tile = jnp.arange(count * height), jnp.repeat(jnp.arange(count), height)
    within = places - first[group[tile]] * height
    held = (within < sizes[group[tile]]) & (tile < below[-1])
    source = jnp.where(held, (ends - sizes)[group[tile]] + within, rows)
    row = jnp.arange(rows)
    owner = jnp.minimum(jnp.sum(ends[None] <= row[:, None], axis=1), groups - 1)
    place = jnp.where(row < ends[-1], first[owner] * height + row - (ends - sizes)[owner], len(places))
    return Alignment(source, place, *(x.astype(jnp.int32) for x in (group, first, tiles)))


def taken(array: Float[Array, "rows width"], places: Int[Array, " taken"]) -> Float[Array, "taken width"]:
    """Rows at some places, zero where a place is out of range."""
    return array.at[places].get(mode="fill", fill_value=0)
