"""Exactly the rows that are needed, each to its place at its receiver: a ragged all-to-all by expert."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels.expert_parallel.axis import ExpertAxis
from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.movement import NOWHERE, collect, inverse, spread, take, token_of
from marin_kernels.expert_parallel.planner import (
    Plan,
    addresses,
    exclusive_sum,
    local_sizes,
    plan_receivers,
    sort_assignments,
)
from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported, real_tokens, transported


class Slices(NamedTuple):
    """Slices of rows that one shard sends: as many to each destination as it has experts, in order of destination.

    Attributes:
        input_offsets: the first row of each, here.
        send_sizes: its rows.
        output_offsets: its first row there.
        receive_sizes: rows of each slice that arrives, in order of source.
    """

    input_offsets: Int[Array, " slices"]
    send_sizes: Int[Array, " slices"]
    output_offsets: Int[Array, " slices"]
    receive_sizes: Int[Array, " slices"]


def ragged(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """Rows arrive sorted by expert, so nothing is permuted at the receiver. Its buffer alone limits what it keeps.

    XLA has no ragged all-to-all for CPUs: there, all-gathered rows are picked by the same slices.
    """
    axis, extent, me = shard.axis, shard.extent, shard.axis.index()
    assignments = sort_assignments(routing.experts, extent.experts, real_tokens(routing))
    counts = axis.all_gather(assignments.counts)
    plan = plan_receivers(counts, extent)
    places = jnp.where(addresses(plan, assignments, me, extent) == NOWHERE, NOWHERE, assignments.places)
    origin = inverse(places, extent.assignments)
    there, back = slices(plan, counts, me, extent)
    rows = spread(x, token_of(origin, extent.top_k), places)
    rows = exchange(axis, extent.rows, rows, there, back)
    rows = shard.feed_forward(rows, local_sizes(plan, me, extent), experts)
    rows = exchange(axis, extent.assignments, rows, back, there)
    output = collect(rows, routing.weights, places, origin)
    return transported(output, assignments.counts, plan, me)


def slices(
    plan: Plan, counts: Int[Array, "shards experts"], shard: Int[Array, ""], extent: Extent
) -> tuple[Slices, Slices]:
    """What a shard sends to the experts, and what it sends back to the sources."""

    def mine(table: Array) -> Array:
        """The experts of this shard, of each source in turn."""
        return table.reshape(extent.shards, extent.shards, -1)[:, shard].reshape(-1)

    starts = exclusive_sum(counts)
    there = Slices(starts[shard], plan.kept[shard], plan.offsets[shard], mine(plan.kept))
    return there, Slices(mine(plan.offsets), mine(plan.kept), mine(starts), plan.kept[shard])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def exchange(
    axis: ExpertAxis, rows: int, operand: Float[Array, "sent width"], there: Slices, back: Slices
) -> Float[Array, "rows width"]:
    """Send slices of rows to where they belong; rows that none reaches are zero. ``back`` is the way of gradients."""
    return _exchanged(axis, rows, operand, there)


def _exchanged(axis: ExpertAxis, rows: int, operand: Array, slices: Slices) -> Array:
    if axis.size == 1:
        return _gathered(axis, rows, operand, slices)

    def on_cpu(operand, *slices):
        return _gathered(axis, rows, operand, Slices(*slices))

    def on_accelerator(operand, *slices):
        output = jnp.zeros((rows, operand.shape[1]), operand.dtype)
        return jax.lax.ragged_all_to_all(operand, output, *slices, axis_name=axis.name)

    return jax.lax.platform_dependent(operand, *slices, cpu=on_cpu, default=on_accelerator)


def _gathered(axis: ExpertAxis, rows: int, operand: Array, slices: Slices) -> Array:
    """The same, from all rows of all shards."""
    tables = [axis.all_gather(table).reshape(axis.size, axis.size, -1)[:, axis.index()] for table in slices[:3]]
    inputs, sizes, outputs = tables
    sources = jnp.arange(axis.size, dtype=jnp.int32)[:, None] * operand.shape[0]
    row = jnp.arange(rows, dtype=jnp.int32)[:, None, None]
    inside = (row >= outputs) & (row < outputs + sizes)
    index = jnp.sum(jnp.where(inside, sources + inputs + row - outputs + 1, 0), (1, 2), dtype=jnp.int32) - 1
    return take(axis.all_gather(operand).reshape(-1, operand.shape[1]), index)


def _forward(axis, rows, operand, there, back):
    return exchange(axis, rows, operand, there, back), (there, back, operand[:, :0])


def _backward(axis, rows, saved, cotangent):
    there, back, operand = saved
    return exchange(axis, operand.shape[0], cotangent, back, there), None, None


exchange.defvjp(_forward, _backward)
