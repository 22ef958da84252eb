"""The oracle: every expert computes every token, in fp32, and masks decide what counts."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from marin_kernels.expert_parallel.planner import addresses, plan_receivers, sort_assignments
from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported, real_tokens, transported
from marin_kernels.precision import exact_product


def reference(
    x: Float[Array, "tokens width"],
    routing: Routing,
    experts: Experts,
    keep: Bool[Array, "tokens top_k"] | None = None,
) -> Float[Array, "tokens width"]:
    """``y[t] = sum_k weights[t, k] * expert[t, k](x[t])`` over the assignments that are kept, in fp32.

    Args:
        x: tokens.
        routing: where they go.
        experts: the matrices.
        keep: False where an assignment is dropped; None drops none. Padding is dropped in any case.
    """
    count = experts.gate.shape[0]
    kept = routing.experts[..., None] == jnp.arange(count)
    kept = kept if keep is None else kept & keep[..., None]
    kept = kept if routing.valid is None else kept & routing.valid[:, None, None]
    shares = jnp.sum(jnp.where(kept, routing.weights[..., None].astype(jnp.float32), 0), axis=1)
    gate, up, down = (matrix.astype(jnp.float32) for matrix in experts)
    tokens = x.astype(jnp.float32)
    tokens = tokens if routing.valid is None else jnp.where(routing.valid[:, None], tokens, 0)
    hidden = jax.nn.silu(exact_product("td,edi->tei", tokens, gate)) * exact_product("td,edi->tei", tokens, up)
    return exact_product("te,ted->td", shares, exact_product("tei,eid->ted", hidden, down))


def dense(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """The oracle as a transport: all matrices come to all tokens; the planner says what is kept."""
    axis, extent = shard.axis, shard.extent
    assignments = sort_assignments(routing.experts, extent.experts, real_tokens(routing))
    plan = plan_receivers(axis.all_gather(assignments.counts), extent)
    keep = addresses(plan, assignments, axis.index(), extent) >= 0
    gathered = Experts(*(axis.all_gather(matrix).reshape(-1, *matrix.shape[1:]) for matrix in experts))
    output = reference(x, routing, gathered, keep)
    return transported(output, assignments.counts, plan, axis.index())
