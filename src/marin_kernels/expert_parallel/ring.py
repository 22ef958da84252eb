"""All tokens to all shards, and the sum of what they made of them back."""

from jaxtyping import Array, Float

from marin_kernels.expert_parallel.movement import collect, inverse, spread, token_of
from marin_kernels.expert_parallel.planner import (
    addresses,
    at_receiver,
    local_sizes,
    plan_receivers,
    sort_assignments,
)
from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported, real_tokens, transported


def ring(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """All-gather of tokens, reduce-scatter of outputs: least latency, and bytes that do not depend on ``top_k``."""
    axis, extent = shard.axis, shard.extent
    assignments = sort_assignments(routing.experts, extent.experts, real_tokens(routing))
    plan = plan_receivers(axis.all_gather(assignments.counts), extent)
    address = axis.all_gather(addresses(plan, assignments, axis.index(), extent))
    places = at_receiver(address, axis.index(), extent).reshape(-1, extent.top_k)
    tokens = axis.all_gather(x).reshape(-1, x.shape[1])
    weights = axis.all_gather(routing.weights).reshape(-1, extent.top_k)
    origin = inverse(places, extent.rows)
    rows = spread(tokens, token_of(origin, extent.top_k), places)
    rows = shard.feed_forward(rows, local_sizes(plan, axis.index(), extent), experts)
    partial = collect(rows, weights, places, origin).reshape(extent.shards, *x.shape)
    return transported(axis.reduce_scatter(partial, x.dtype), assignments.counts, plan, axis.index())
