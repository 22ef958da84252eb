"""The plan of one dispatch: integers alone, the same on every shard, decided before a row moves.

Letters in shapes: ``shards`` are the members of one expert axis, ``experts`` all experts. A source is a shard as the
home of tokens, a receiver is a shard as the home of experts. Within a source, the assignments to one expert are ranked
by token; those of the lowest ranks are kept.
"""

from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from marin_kernels.expert_parallel.extent import Extent, share
from marin_kernels.expert_parallel.movement import NOWHERE, inverse

WORD = 32
"""Bits of the integers that are sorted; JAX has no wider ones unless it is told so."""


class Assignments(NamedTuple):
    """The assignments of one source, sorted by expert.

    Attributes:
        experts: the expert of each, or the number of experts where there is none.
        places: the place of each in the sorted order; what is no assignment comes last.
        order: the flat assignment at each place, the inverse of ``places``.
        ranks: how many assignments to the same expert come before it.
        counts: assignments to each expert.
        starts: the place of the first assignment to each expert.
    """

    experts: Int[Array, "tokens top_k"]
    places: Int[Array, "tokens top_k"]
    order: Int[Array, " assignments"]
    ranks: Int[Array, "tokens top_k"]
    counts: Int[Array, " experts"]
    starts: Int[Array, " experts"]


def sort_assignments(
    experts: Int[Array, "tokens top_k"], count: int, counted: Bool[Array, "tokens #top_k"] | None = None
) -> Assignments:
    """Sort assignments by expert, stably.

    Args:
        experts: expert ids; one outside of ``[0, count)`` is no assignment.
        count: number of experts.
        counted: False where an assignment is not to count: it gets the id ``count``. None: all count.
    """
    real = (experts >= 0) & (experts < count)
    real = real if counted is None else real & counted
    experts = jnp.where(real, experts, count).astype(jnp.int32)
    ids, order = stable_order(experts.reshape(-1), count)
    bounds = jnp.searchsorted(ids, jnp.arange(count + 1, dtype=jnp.int32)).astype(jnp.int32)
    places = inverse(order, experts.size).reshape(experts.shape)
    return Assignments(experts, places, order, places - bounds[experts], jnp.diff(bounds), bounds[:-1])


def stable_order(ids: Int[Array, " items"], largest: int) -> tuple[Int[Array, " items"], Int[Array, " items"]]:
    """Items in the order of their ids, equal ones as they were: the ids in that order, and the number of each item.

    An id and a number that fit into one word together are sorted as one, which computes and compiles several times as
    fast as to sort pairs.

    Args:
        ids: numbers in ``[0, largest]``.
        largest: of all ids.
    """
    numbers = jnp.arange(ids.size, dtype=jnp.uint32)
    bits = (ids.size - 1).bit_length()
    if bits + largest.bit_length() > WORD:
        return jax.lax.sort((ids, numbers.astype(jnp.int32)), num_keys=1, is_stable=True)
    words = jnp.sort((ids.astype(jnp.uint32) << bits) | numbers, stable=False)
    return (words >> bits).astype(jnp.int32), (words & ((1 << bits) - 1)).astype(jnp.int32)


def count_assignments(
    experts: Int[Array, "tokens top_k"], counted: Bool[Array, "tokens #top_k"] | None, count: int
) -> Int[Array, " experts"]:
    """Assignments to each expert."""
    hits = experts[..., None] == jnp.arange(count, dtype=jnp.int32)
    return jnp.sum(hits if counted is None else hits & counted[..., None], (0, 1), dtype=jnp.int32)


def waterfill(demand: Int[Array, "*pools members"], room: Int[Array, "*#pools"]) -> Int[Array, "*pools members"]:
    """Share the room of each pool among its members, one each in turn until it is used up.

    Who asks for less than the common level gets all of it; what cannot be divided goes to the first ones.
    """
    members = demand.shape[-1]
    ascending = jnp.sort(demand, axis=-1)
    before = jnp.cumsum(ascending, axis=-1) - ascending
    left = members - jnp.arange(members, dtype=jnp.int32)
    satisfied = jnp.sum(before + ascending * left <= room[..., None], axis=-1, dtype=jnp.int32)
    at = jnp.minimum(satisfied, members - 1)[..., None]
    rest = room[..., None] - jnp.take_along_axis(before, at, axis=-1)
    level, extra = jnp.divmod(rest, left[at])
    unsatisfied = (demand > level) & (satisfied < members)[..., None]
    turn = jnp.cumsum(unsatisfied, axis=-1, dtype=jnp.int32) - unsatisfied
    granted = jnp.where(unsatisfied, level + (turn < extra), demand)
    return granted.astype(jnp.int32)


def exclusive_sum(values: Int[Array, "..."], axis: int = -1) -> Int[Array, "..."]:
    """The sum of what comes before each value along an axis."""
    return jnp.cumsum(values, axis=axis, dtype=jnp.int32) - values


class Plan(NamedTuple):
    """What is kept and where it lies at its receiver; the same on every shard.

    A receiver's rows are ordered by expert, then by source, then by rank; its experts begin at multiples of the tile.

    Attributes:
        sent: assignments of each source to each expert, as the receivers see them.
        kept: how many of those have room: the ones of lowest rank.
        offsets: the row, in the buffer of the expert's receiver, of the first kept assignment.
        sizes: rows of each expert in its receiver's buffer, a multiple of the tile.
    """

    sent: Int[Array, "shards experts"]
    kept: Int[Array, "shards experts"]
    offsets: Int[Array, "shards experts"]
    sizes: Int[Array, " experts"]


def plan_receivers(sent: Int[Array, "shards experts"], extent: Extent) -> Plan:
    """Divide the room of each receiver among its experts, that of each expert among the sources, and lay out the rows.

    With a capacity factor, the room of a receiver follows the real assignments, so padding changes nothing.
    """
    sent = sent.astype(jnp.int32)
    return lay_out(sent, _fair(sent, extent), extent)


def _fair(sent: Array, extent: Extent) -> Array:
    by_receiver = sent.sum(0, dtype=jnp.int32).reshape(extent.shards, -1)
    granted = waterfill(by_receiver, jnp.full(extent.shards, room(sent.sum(dtype=jnp.int32), extent)))
    return waterfill(sent.T, granted.reshape(-1)).T


def room(real: Int[Array, "*shape"], extent: Extent) -> Int[Array, "*shape"]:
    """Assignments that each receiver has room for, when so many are real over all sources."""
    return limit(real, extent.room, Fraction(1, extent.shards), extent)


def limit(real: Int[Array, "*shape"], most: int, even: Fraction, extent: Extent) -> Int[Array, "*shape"]:
    """Room that follows what is real: the capacity factor times a share ``even`` of it, at most ``most``."""
    if extent.capacity_factor is None:
        return jnp.full_like(real, most)
    return jnp.minimum(share(real, extent.capacity_factor * even), most)


def lay_out(sent: Int[Array, "shards experts"], kept: Int[Array, "shards experts"], extent: Extent) -> Plan:
    """Where the kept assignments lie at their receivers."""
    totals = kept.sum(0, dtype=jnp.int32)
    sizes = -(-totals // extent.tile) * extent.tile
    starts = exclusive_sum(sizes.reshape(extent.shards, -1)).reshape(-1)
    return Plan(sent, kept, starts + exclusive_sum(kept, axis=0), sizes)


def addresses(
    plan: Plan, assignments: Assignments, source: int | Int[Array, ""], extent: Extent
) -> Int[Array, "tokens top_k"]:
    """Where each assignment of a source goes: ``receiver * rows + row``, or `NOWHERE` when it is dropped."""
    experts = jnp.minimum(assignments.experts, extent.experts - 1)
    kept = (assignments.experts < extent.experts) & (assignments.ranks < plan.kept[source][experts])
    row = plan.offsets[source][experts] + assignments.ranks
    return jnp.where(kept, experts // extent.local_experts * extent.rows + row, NOWHERE)


def at_receiver(address: Int[Array, "*shape"], receiver: int | Int[Array, ""], extent: Extent) -> Int[Array, "*shape"]:
    """The rows of the addresses that lie at one receiver, `NOWHERE` for all others."""
    row = address - receiver * extent.rows
    return jnp.where((address >= 0) & (row >= 0) & (row < extent.rows), row, NOWHERE)


def local_sizes(plan: Plan, receiver: int | Int[Array, ""], extent: Extent) -> Int[Array, " local_experts"]:
    """Rows of each expert of one receiver."""
    return plan.sizes.reshape(extent.shards, -1)[receiver]


def tile_map(sizes: Int[Array, " local_experts"], extent: Extent) -> Int[Array, " tiles"]:
    """The local expert of each tile of a receiver's buffer; the number of local experts where a tile is unused."""
    tiles = jnp.arange(extent.rows // extent.tile, dtype=jnp.int32)
    return jnp.searchsorted(jnp.cumsum(sizes // extent.tile), tiles, side="right").astype(jnp.int32)
