"""`fused_tpu`: dispatch, experts and combination in one kernel, and its reverse in another."""

import functools

import attrs
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from marin_kernels.expert_parallel.axis import ExpertAxis
from marin_kernels.expert_parallel.fused.backward import GATED, HIDDEN, UPPED, backward
from marin_kernels.expert_parallel.fused.forward import forward
from marin_kernels.expert_parallel.fused.gradients import matrix_gradients
from marin_kernels.expert_parallel.fused.layout import Layout, home_rows, lay_out
from marin_kernels.expert_parallel.fused.tiles import Tiles, choose_tiles
from marin_kernels.expert_parallel.movement import NOWHERE, collect, inverse, spread, token_of
from marin_kernels.expert_parallel.planner import Assignments, plan_receivers, sort_assignments
from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported, real_tokens, transported


@attrs.frozen
class _Static:
    axis: ExpertAxis
    tiles: Tiles


def fused_tpu(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """Remote copies and matrix products in one kernel: an expert begins as soon as its first rows have arrived.

    What is kept, and its order, is as of `ragged`. For TPUs; elsewhere only in Pallas' interpreter
    (``jax.experimental.pallas.tpu.force_tpu_interpret_mode``).

    Raises:
        ValueError: the devices are no TPUs, or the widths do not suit them.
    """
    _check_devices()
    extent, axis = shard.extent, shard.axis
    tiles = choose_tiles(x.shape[1], experts.gate.shape[2], x.dtype)
    assignments = sort_assignments(routing.experts, extent.experts, real_tokens(routing))
    plan = plan_receivers(axis.all_gather(assignments.counts), extent)
    layout = lay_out(plan.kept, axis.index(), extent, tiles.grain)
    places = places_at_home(assignments, plan.kept[axis.index()], layout)
    origin = inverse(places, home_rows(extent, tiles.grain))
    rows = spread(x, token_of(origin, extent.top_k), places)
    returned = _feed_forward(_Static(axis, tiles), rows, Experts(*(m.astype(x.dtype) for m in experts)), layout)
    return transported(collect(returned, routing.weights, places, origin), assignments.counts, plan, axis.index())


def places_at_home(
    assignments: Assignments, kept: Int[Array, " experts"], layout: Layout
) -> Int[Array, "tokens top_k"]:
    """The row of each assignment in the buffer that its own shard sends from, or `NOWHERE` when it is dropped."""
    experts = jnp.minimum(assignments.experts, kept.shape[0] - 1)
    sent = (assignments.experts < kept.shape[0]) & (assignments.ranks < kept[experts])
    return jnp.where(sent, layout.home[experts] + assignments.ranks, NOWHERE)


def _check_devices() -> None:
    device = jax.sharding.get_abstract_mesh().abstract_device
    platform = jax.default_backend() if device is None else device.platform
    if platform != "tpu" and not _interpreted():
        raise ValueError(
            f"moe: 'fused_tpu' runs on TPUs, and these devices are {platform}; choose 'ragged' or 'ring', or, to try "
            "it without a TPU, enter `with jax.experimental.pallas.tpu.force_tpu_interpret_mode():`"
        )


def _interpreted() -> bool:
    """Whether kernels are interpreted here; JAX tells it only by what it makes of one."""
    kernel = pl.pallas_call(lambda out: None, out_shape=jax.ShapeDtypeStruct((), jnp.float32))
    return any(equation.params.get("interpret") for equation in jax.make_jaxpr(lambda: kernel())().eqns)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _feed_forward(static: _Static, rows: Array, experts: Experts, layout: Layout) -> Array:
    return forward(rows, experts, layout, axis=static.axis, tiles=static.tiles).returned


def _feed_forward_forward(static, rows, experts, layout):
    made = forward(rows, experts, layout, axis=static.axis, tiles=static.tiles)
    return made.returned, (made.incoming, experts, layout)


def _feed_forward_backward(static, saved, cotangent):
    incoming, experts, layout = saved
    made = backward(cotangent, incoming, experts, layout, axis=static.axis, tiles=static.tiles)
    gradients = functools.partial(matrix_gradients, layout=layout, experts=experts.gate.shape[0], tiles=static.tiles)
    d_experts = Experts(
        gradients(incoming, made.inner, kind=GATED),
        gradients(incoming, made.inner, kind=UPPED),
        gradients(made.inner, made.pulled, kind=HIDDEN),
    )
    return made.returned, d_experts, None


_feed_forward.defvjp(_feed_forward_forward, _feed_forward_backward)
