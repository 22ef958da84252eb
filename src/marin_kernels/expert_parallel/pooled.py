"""A pool of fixed size for each pair of source and receiver, sent in waves: few drops without a ragged collective."""

from fractions import Fraction
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.movement import NOWHERE, collect, inverse, spread, token_of
from marin_kernels.expert_parallel.planner import (
    Assignments,
    Plan,
    exclusive_sum,
    lay_out,
    limit,
    local_sizes,
    plan_receivers,
    sort_assignments,
    waterfill,
)
from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported, real_tokens, transported

WAVES = 2
"""All-to-alls in each direction: the products of one wave can hide the transport of the next."""


class Wave(NamedTuple):
    """One wave of a source's assignments.

    Attributes:
        places: the row ``receiver * room + rank`` in what is sent, or `NOWHERE`.
        rows: the row in the receiver's buffer of this wave, or `NOWHERE`.
        plan: the layout of that buffer.
    """

    places: Int[Array, "tokens top_k"]
    rows: Int[Array, "tokens top_k"]
    plan: Plan


def pooled(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """Senders divide each pool fairly among its experts; receivers divide their room as in all transports.

    A pool has room for an even share of its source's real assignments, times the capacity factor. Rows and where they
    go travel apart, so that no id is rounded.
    """
    axis, extent, me = shard.axis, shard.extent, shard.axis.index()
    assignments = sort_assignments(routing.experts, extent.experts, real_tokens(routing))
    plan = plan_pools(axis.all_gather(assignments.counts), extent)
    output = jnp.zeros(x.shape, jnp.float32)
    for number in range(WAVES):
        wave = plan_wave(number, plan, assignments, me, extent)
        output += _sent(x, routing.weights, wave, experts, shard)
    return transported(output, assignments.counts, plan, me)


def plan_pools(counts: Int[Array, "shards experts"], extent: Extent) -> Plan:
    """What senders send and receivers keep; its layout is that of a single wave."""
    shards = extent.shards
    rooms = limit(jnp.sum(counts, axis=1, dtype=jnp.int32), extent.pool, Fraction(1, shards), extent)
    sent = waterfill(counts.reshape(shards, shards, -1), jnp.broadcast_to(rooms[:, None], (shards, shards)))
    return plan_receivers(sent.reshape(shards, -1), extent)


def pool_room(extent: Extent) -> int:
    """Rows of one pool in one wave."""
    return -(-extent.pool // WAVES)


def wave_rows(extent: Extent) -> int:
    """Rows of a receiver's buffer in one wave: those of all pools, which are hardly more than its share of the room."""
    return extent.aligned(extent.shards * pool_room(extent))


def plan_wave(number: int, plan: Plan, assignments: Assignments, source: Int[Array, ""], extent: Extent) -> Wave:
    """The kept assignments of each pool, in order of expert, go to the waves in turn."""
    first = exclusive_sum(plan.kept.reshape(extent.shards, extent.shards, -1)).reshape(plan.kept.shape)
    before = _in_wave(first, number)
    layout = lay_out(plan.sent, _in_wave(first + plan.kept, number) - before, extent)
    expert = jnp.minimum(assignments.experts, extent.experts - 1)
    rank = first[source][expert] + assignments.ranks
    taken = (assignments.experts < extent.experts) & (assignments.ranks < plan.kept[source][expert])
    taken &= rank % WAVES == number
    place = expert // extent.local_experts * pool_room(extent) + rank // WAVES
    row = layout.offsets[source][expert] + rank // WAVES - before[source][expert]
    return Wave(jnp.where(taken, place, NOWHERE), jnp.where(taken, row, NOWHERE), layout)


def _in_wave(ranks: Array, number: int) -> Array:
    """How many of the first so many ranks go to a wave."""
    return (ranks + WAVES - 1 - number) // WAVES


def _sent(x: Array, weights: Array, wave: Wave, experts: Experts, shard: Shard) -> Array:
    axis, extent = shard.axis, shard.extent
    pools = (extent.shards, pool_room(extent))
    origin = inverse(wave.places, pools[0] * pools[1])
    rows = jnp.where(origin == NOWHERE, NOWHERE, wave.rows.reshape(-1)[origin])
    rows = axis.all_to_all(rows.reshape(pools)).reshape(-1, 1)
    tokens = spread(x, token_of(origin, extent.top_k), wave.places)
    tokens = axis.all_to_all(tokens.reshape(*pools, -1)).reshape(-1, x.shape[1])
    pool_row = inverse(rows, wave_rows(extent))
    made = spread(tokens, pool_row, rows)
    made = shard.feed_forward(made, local_sizes(wave.plan, axis.index(), extent), experts)
    made = spread(made, rows[:, 0], pool_row[:, None])
    returned = axis.all_to_all(made.reshape(*pools, -1)).reshape(-1, x.shape[1])
    return collect(returned, weights, wave.places, origin)
