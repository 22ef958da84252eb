"""Two hops: a token crosses to each host once, and is passed on inside of it; outputs are summed before they return."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from marin_kernels.expert_parallel.axis import ExpertAxis, hosts_and_lanes
from marin_kernels.expert_parallel.copies import Copies, copy_once
from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.movement import NOWHERE, collect, inverse, spread, token_of
from marin_kernels.expert_parallel.planner import (
    addresses,
    at_receiver,
    count_assignments,
    limit,
    local_sizes,
    plan_receivers,
    sort_assignments,
)
from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported, real_tokens, transported


def hierarchical(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """Between hosts each token travels once per host, among the shards of equal lane; inside of a host, as in `ring`.

    Source: the order of hops is that of DeepEP (github.com/deepseek-ai/DeepEP).
    """
    across, inside = hosts_and_lanes(shard.extent.shards, shard.extent.lanes)
    return send_once(x, routing, experts, shard, across, inside)


def ring_dedup(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """Each token travels once to each shard that it needs, and the sum of what its experts there made of it returns."""
    return send_once(x, routing, experts, shard, shard.axis, ExpertAxis())


def send_once(
    x: Float[Array, "tokens width"],
    routing: Routing,
    experts: Experts,
    shard: Shard,
    across: ExpertAxis,
    inside: ExpertAxis,
) -> Transported:
    """Tokens once to each group of shards over ``across``; within a group, over ``inside``, to all of its shards."""
    extent, me, top_k = shard.extent, shard.axis.index(), shard.extent.top_k
    real = _real(routing, extent)
    copies = _copies(routing, real, extent, across.size)
    assignments = sort_assignments(routing.experts, extent.experts, copies.counted)
    plan = plan_receivers(shard.axis.all_gather(assignments.counts), extent)
    address = addresses(plan, assignments, me, extent)
    source = token_of(copies.origin, top_k)

    def sent(values: Array) -> Array:
        arrived = across.all_to_all(values.reshape(across.size, -1, values.shape[1]))
        return inside.all_gather(arrived).reshape(-1, values.shape[1])

    tokens, weights = (sent(spread(values, source, copies.places)) for values in (x, routing.weights))
    places = at_receiver(sent(_rows_of(address, source)), me, extent)
    origin = inverse(places, extent.rows)
    rows = spread(tokens, token_of(origin, top_k), places)
    rows = shard.feed_forward(rows, local_sizes(plan, me, extent), experts)
    partial = collect(rows, weights, places, origin).reshape(inside.size, across.size, -1, x.shape[1])
    returned = across.all_to_all(inside.reduce_scatter(partial, x.dtype).astype(x.dtype))
    ones = jnp.ones(copies.places.shape, jnp.float32)
    output = collect(returned.reshape(-1, x.shape[1]), ones, copies.places, copies.origin)
    return transported(output, count_assignments(routing.experts, real, extent.experts), plan, me)


def _real(routing: Routing, extent: Extent) -> Bool[Array, "tokens top_k"]:
    real = (routing.experts >= 0) & (routing.experts < extent.experts)
    return real if routing.valid is None else real & real_tokens(routing)


def _copies(routing: Routing, real: Array, extent: Extent, destinations: int) -> Copies:
    tokens = jnp.sum(jnp.any(real, axis=1), dtype=jnp.int32)
    most = extent.copies(destinations)
    room = limit(tokens, most, extent.hit(destinations), extent)
    return copy_once(routing.experts // (extent.experts // destinations), real, destinations, room, most)


def _rows_of(address: Array, source: Array) -> Array:
    return jnp.where(source[:, None] == NOWHERE, NOWHERE, address[source])
