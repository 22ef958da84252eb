"""A cell of fixed size for each pair of source and expert: dense products, and an all-to-all for each local expert."""

from fractions import Fraction

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marin_kernels.expert_parallel.movement import NOWHERE, collect, inverse, spread, token_of
from marin_kernels.expert_parallel.planner import limit, sort_assignments
from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported, real_tokens
from marin_kernels.precision import exact_product


def fixed(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """Drops what does not fit into its cell; the compiler can overlap one expert's transport with another's products.

    A cell has room for an even share of its source's real assignments, times the capacity factor.
    """
    axis, extent = shard.axis, shard.extent
    assignments = sort_assignments(routing.experts, extent.experts, real_tokens(routing))
    real = jnp.sum(assignments.counts, dtype=jnp.int32)
    room = limit(real, extent.cell, Fraction(1, extent.experts), extent)
    kept = (assignments.experts < extent.experts) & (assignments.ranks < room)
    receiver, expert = jnp.divmod(assignments.experts, extent.local_experts)
    cell = expert * extent.shards + receiver
    places = jnp.where(kept, cell * extent.cell + assignments.ranks, NOWHERE)
    origin = inverse(places, extent.experts * extent.cell)
    cells = spread(x, token_of(origin, extent.top_k), places)
    cells = cells.reshape(extent.local_experts, extent.shards, extent.cell, x.shape[1])
    made = [
        axis.all_to_all(_feed_forward(axis.all_to_all(cells[e]), *(matrix[e].astype(x.dtype) for matrix in experts)))
        for e in range(extent.local_experts)
    ]
    output = collect(jnp.stack(made).reshape(-1, x.shape[1]), routing.weights, places, origin)
    dropped = jnp.sum(jnp.maximum(assignments.counts - room, 0), dtype=jnp.int32)
    return Transported(output, assignments.counts, dropped, jnp.int32(0))


def _feed_forward(rows: Array, gate: Array, up: Array, down: Array) -> Array:
    return _product(jax.nn.silu(_product(rows, gate)) * _product(rows, up), down)


def _product(rows: Array, matrix: Array) -> Array:
    return exact_product("...i,io->...o", rows, matrix).astype(rows.dtype)
