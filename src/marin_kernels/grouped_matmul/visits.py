"""Which tile of rows meets which group: the schedule of kernels whose tiles are aligned to the rows, not to groups."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from marin_kernels.grouped_matmul.operations import Sizes


class Visits(NamedTuple):
    """Meetings in order of groups, and so of tiles. Rows after the last group are met as one group more.

    Each tile is met, and each group, an empty one with no rows; what remains of the arrays repeats the last meeting's
    tile and group with no rows.

    Attributes:
        tile: the tile of rows.
        group: the group, or the number of groups for the rows after the last one.
        first: the first row that the tile and the group share.
        end: one more than their last common row.
        groups: how many meetings are with groups.
        all: how many meetings there are.
    """

    tile: Int[Array, " visits"]
    group: Int[Array, " visits"]
    first: Int[Array, " visits"]
    end: Int[Array, " visits"]
    groups: Int[Array, ""]
    all: Int[Array, ""]


def visits(rows: int, height: int, sizes: Sizes) -> Visits:
    """Meet tiles of ``height`` rows (the last may be lower) with groups, whose sizes sum to at most ``rows``."""
    tiles = -(-rows // height)
    sizes = jnp.append(sizes, rows - jnp.sum(sizes)).astype(jnp.int32)
    ends = jnp.cumsum(sizes)
    starts = ends - sizes
    lowest = jnp.minimum(starts // height, tiles - 1)
    count = jnp.where(sizes > 0, (ends - 1) // height - lowest + 1, 1)
    below = jnp.cumsum(count)
    number = jnp.arange(tiles + len(sizes))
    group = jnp.sum(below[None] <= number[:, None], axis=1)
    used, group = group < len(sizes), jnp.minimum(group, len(sizes) - 1)
    tile = jnp.where(used, lowest[group] + number - (below - count)[group], tiles - 1)
    first = jnp.maximum(starts[group], tile * height)
    end = jnp.where(used, jnp.minimum(ends[group], (tile + 1) * height), first)
    return Visits(*(x.astype(jnp.int32) for x in (tile, group, first, end, below[-2], below[-1])))
