"""Where rows lie when they travel in aligned chunks: at home, sorted by expert; away, in tiles of one expert each.

A chunk is what one source has for one expert. Its length and both its places are multiples of the alignment that the
memory of a TPU asks for. Away, an expert's chunks are ordered by how far around the ring their source is, so that what
arrives first is multiplied first; its region ends at a multiple of the tile.
"""

from typing import NamedTuple

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Int

from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.planner import exclusive_sum


@attrs.frozen
class Grain:
    """Sizes that places are multiples of.

    Attributes:
        chunk: rows; the memory alignment of a row.
        tile: rows that are multiplied at once, a multiple of ``chunk``.
    """

    chunk: int
    tile: int

    def __attrs_post_init__(self) -> None:
        if self.chunk < 1 or self.tile % self.chunk:
            raise ValueError(f"a tile of {self.tile} rows is no multiple of a chunk of {self.chunk} rows")


def home_rows(extent: Extent, grain: Grain) -> int:
    """Rows of the buffer that a shard sends from."""
    spread_out = extent.assignments + min(extent.experts, extent.assignments) * (grain.chunk - 1)
    return _ceiling(max(spread_out, 1), grain.chunk)


def away_rows(extent: Extent, grain: Grain) -> int:
    """Rows of the buffer that a shard receives in."""
    chunks = min(extent.shards * extent.local_experts, extent.room)
    rows = extent.room + chunks * (grain.chunk - 1) + extent.local_experts * (grain.tile - grain.chunk)
    return _ceiling(rows, grain.tile)


class Layout(NamedTuple):
    """What one shard needs to know of its chunks, as flat arrays; ``k`` is the distance back around the ring.

    Attributes:
        sent: rows of this shard's chunk for each expert.
        home: the first row of that chunk in this shard's own buffer.
        away: the first row of that chunk in the buffer of the expert's shard.
        received: at ``expert * shards + k``, rows of the chunk from the shard ``k`` before this one.
        place: at the same index, the first row of that chunk in this shard's buffer.
        origin: at the same index, the first row of that chunk in the buffer of the shard that it came from.
        tile_expert: the local expert of each tile; the number of local experts where a tile is unused.
        tile_rows: how many rows of each tile belong to its expert.
        tiles: how many tiles are used.
    """

    sent: Int[Array, " experts"]
    home: Int[Array, " experts"]
    away: Int[Array, " experts"]
    received: Int[Array, " chunks"]
    place: Int[Array, " chunks"]
    origin: Int[Array, " chunks"]
    tile_expert: Int[Array, " most_tiles"]
    tile_rows: Int[Array, " most_tiles"]
    tiles: Int[Array, " 1"]


def lay_out(kept: Int[Array, "shards experts"], shard: int | Int[Array, ""], extent: Extent, grain: Grain) -> Layout:
    """Place all chunks; every shard computes the same places from the same counts.

    Args:
        kept: assignments of each source to each expert.
        shard: which shard's view to return.
        extent: the sizes of the call.
        grain: what places are multiples of.
    """
    shards, local = extent.shards, extent.local_experts
    chunks = _ceiling(kept.astype(jnp.int32), grain.chunk)
    home = exclusive_sum(chunks, axis=1)
    lengths = chunks.sum(0, dtype=jnp.int32)
    regions = _ceiling(lengths, grain.tile).reshape(shards, local)
    distance = (jnp.arange(extent.experts) // local - jnp.arange(shards)[:, None]) % shards
    by_distance = _reorder(chunks, distance)
    places = exclusive_sum(regions, axis=1).reshape(-1) + exclusive_sum(by_distance, axis=0)
    mine = shard * local + jnp.arange(local)
    sources = (shard - jnp.arange(shards)[:, None]) % shards
    return Layout(
        chunks[shard],
        home[shard],
        jnp.take_along_axis(places, distance[shard][None], axis=0)[0],
        by_distance[:, mine].T.reshape(-1),
        places[:, mine].T.reshape(-1),
        home[sources, mine].T.reshape(-1),
        *_tiles(regions[shard], lengths[mine], away_rows(extent, grain) // grain.tile, grain.tile),
    )


def _ceiling(value, step: int):
    return -(-value // step) * step


def _reorder(chunks: Array, distance: Array) -> Array:
    """From a row for each source to a row for each distance; distances count from the expert's own shard."""
    shards = distance.shape[0]
    sources = (distance[:1] - jnp.arange(shards)[:, None]) % shards
    return jnp.take_along_axis(chunks, sources, axis=0)


def _tiles(regions: Array, lengths: Array, most: int, tile: int) -> tuple[Array, Array, Array]:
    ends = jnp.cumsum(regions, dtype=jnp.int32)
    starts = jnp.arange(most, dtype=jnp.int32) * tile
    expert = jnp.searchsorted(ends, starts, side="right").astype(jnp.int32)
    known = jnp.minimum(expert, regions.shape[0] - 1)
    rows = jnp.clip((ends - regions + lengths)[known] - starts, 0, tile)
    return expert, jnp.where(expert < regions.shape[0], rows, 0).astype(jnp.int32), ends[-1:] // tile
