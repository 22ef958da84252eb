"""All experts on the shard of their tokens: sort, multiply by group, sum back."""

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Float

from marin_kernels.expert_parallel.movement import collect, inverse, spread, token_of
from marin_kernels.expert_parallel.planner import addresses, plan_receivers, sort_assignments
from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported, real_tokens


def local(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """Never drops; capacity does not apply."""
    extent = attrs.evolve(shard.extent, capacity_factor=None)
    assignments = sort_assignments(routing.experts, extent.experts, real_tokens(routing))
    plan = plan_receivers(assignments.counts[None], extent)
    places = addresses(plan, assignments, 0, extent)
    origin = inverse(places, extent.rows)
    rows = spread(x, token_of(origin, extent.top_k), places)
    rows = shard.feed_forward(rows, plan.sizes, experts)
    zero = jnp.int32(0)
    return Transported(collect(rows, routing.weights, places, origin), assignments.counts, zero, zero)
