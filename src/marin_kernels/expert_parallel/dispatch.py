"""`moe`: one function, many ways to bring tokens to their experts."""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, PartitionSpec
from jaxtyping import Array, Float

from marin_kernels.expert_parallel.axis import ExpertAxis
from marin_kernels.expert_parallel.blocked_feed_forward import blocked_feed_forward
from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.feed_forward import FeedForward, expert_feed_forward
from marin_kernels.expert_parallel.fixed import fixed
from marin_kernels.expert_parallel.fused import fused_tpu
from marin_kernels.expert_parallel.grouped_gpu import GROUPED_MATMUL, grouped_gpu
from marin_kernels.expert_parallel.hierarchical import hierarchical, ring_dedup
from marin_kernels.expert_parallel.local import local
from marin_kernels.expert_parallel.pooled import pooled
from marin_kernels.expert_parallel.ragged import ragged
from marin_kernels.expert_parallel.reference import dense
from marin_kernels.expert_parallel.ring import ring
from marin_kernels.expert_parallel.routing import Dispatch, ExpertParallelImplementation, Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transport, Transported
from marin_kernels.grouped_matmul import GroupedMatmulImplementation
from marin_kernels.grouped_matmul import grouped_matmul as multiply
from marin_kernels.implementations import platform

TOKEN_AXES = ("replica", "data", "expert")
"""The mesh axes over which tokens are split, outermost first."""

TRANSPORTS: dict[str, Transport] = {
    "reference": dense,
    "local": local,
    "ring": ring,
    "ring_dedup": ring_dedup,
    "fixed": fixed,
    "pooled": pooled,
    "ragged": ragged,
    "hierarchical": hierarchical,
    "fused_tpu": fused_tpu,
    "grouped_gpu": grouped_gpu,
}
"""Where a new transport is entered; its name stands in `ExpertParallelImplementation` too."""


def moe(
    x: Float[Array, "tokens width"],
    routing: Routing,
    experts: Experts,
    *,
    implementation: ExpertParallelImplementation = "local",
    mesh: Mesh | AbstractMesh | None = None,
    capacity_factor: float | None = None,
    grouped_matmul: GroupedMatmulImplementation = "default",
    shards_per_host: int | None = None,
) -> tuple[Float[Array, "tokens width"], Dispatch]:
    """Each token's experts, weighted and summed: ``y[t] = sum_k weights[t, k] * expert[t, k](x[t])``.

    Args:
        x: tokens; over a mesh they are split over ``("replica", "data", "expert")``.
        routing: where each token goes.
        experts: the matrices; over a mesh they are split over ``"expert"``, and their inner dimension over ``"model"``.
        implementation: how tokens get to their experts; all compute the same function.
        mesh: the mesh; None: the one in force (``jax.set_mesh``), or one device when there is none.
        capacity_factor: room of each shard of experts, in even shares of the assignments; what has no room is dropped
            and contributes nothing, in both directions. None: nothing is dropped. `local` never drops.
        grouped_matmul: which grouped matrix product; on a CPU, the default computes all of an expert in blocks.
        shards_per_host: neighbours on the expert axis that share a host, for `hierarchical`; None: as many as there
            are devices in a process, over the model axis.

    Returns:
        The outputs, in the dtype of ``x`` (sums are fp32), and exact counts.

    Raises:
        ValueError: the implementation is unknown, or cannot run on this mesh or with these sizes; or shapes do not
            belong together.
    """
    _check_shapes(x, routing, experts)
    current = jax.sharding.get_abstract_mesh()
    if isinstance(mesh, Mesh) and current.empty and not isinstance(x, jax.core.Tracer):
        with jax.set_mesh(mesh):
            return _jitted(x, routing, experts, implementation, capacity_factor, grouped_matmul, shards_per_host)
    _check_in_force(mesh, current)
    transport = _transport(implementation)
    if implementation == "grouped_gpu" and grouped_matmul == "default":
        grouped_matmul = GROUPED_MATMUL
    sizes = dict(zip(current.axis_names, current.axis_sizes, strict=True))
    extent = _extent(x, routing, experts, sizes, capacity_factor, shards_per_host)
    _check(implementation, extent, sizes, experts)
    shard = Shard(ExpertAxis(extent.shards), extent, _feed_forward(x, grouped_matmul))
    if current.empty:
        return _outcome(transport(x, routing, experts, shard), x, routing, {})
    return _over_mesh(transport, x, routing, experts, shard, sizes)


@functools.partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _jitted(x, routing, experts, implementation, capacity_factor, grouped_matmul, shards_per_host):
    """`moe` outside of a program: op by op, collectives would take minutes."""
    return moe(
        x,
        routing,
        experts,
        implementation=implementation,
        capacity_factor=capacity_factor,
        grouped_matmul=grouped_matmul,
        shards_per_host=shards_per_host,
    )


def _check_shapes(x: Array | np.ndarray, routing: Routing, experts: Experts) -> None:
    """Refuse what broadcasting would make something of: another number of tokens, weights or experts."""
    (tokens, width), choices, (count, _, inner) = x.shape, routing.experts.shape, experts.gate.shape
    expected = {
        "routing.experts": (choices, (tokens, *choices[1:])),
        "routing.weights": (routing.weights.shape, choices),
        "experts.gate": (experts.gate.shape, (count, width, inner)),
        "experts.up": (experts.up.shape, (count, width, inner)),
        "experts.down": (experts.down.shape, (count, inner, width)),
    }
    if routing.valid is not None:
        expected["routing.valid"] = (routing.valid.shape, (tokens,))
    wrong = [f"{name} has shape {given}, not {wanted}" for name, (given, wanted) in expected.items() if given != wanted]
    if not jnp.issubdtype(routing.experts.dtype, jnp.integer):
        wrong.append(f"routing.experts holds {routing.experts.dtype}, not integers")
    if wrong:
        raise ValueError(f"moe: for x of shape {x.shape}, {'; '.join(wrong)}")


def _check_in_force(mesh: Mesh | AbstractMesh | None, current: AbstractMesh) -> None:
    named = mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh
    if named is not None and named != current:
        raise ValueError(
            f"moe: asked for the mesh {named}, but {'none' if current.empty else current} is in force here; "
            "enter `with jax.set_mesh(mesh):` around the jitted call and leave `mesh` out"
        )


def _transport(implementation: str) -> Transport:
    if implementation in TRANSPORTS:
        return TRANSPORTS[implementation]
    raise ValueError(
        f"moe: unknown implementation {implementation!r}; choose one of {', '.join(map(repr, TRANSPORTS))}"
    )


def _feed_forward(x: Array, grouped_matmul: GroupedMatmulImplementation) -> FeedForward:
    if grouped_matmul == "blocked" or (grouped_matmul == "default" and platform(x) == "cpu"):
        return blocked_feed_forward
    product = functools.partial(multiply, implementation=grouped_matmul)
    return functools.partial(expert_feed_forward, multiply=product)


def _extent(
    x: Array, routing: Routing, experts: Experts, sizes: dict[str, int], factor: float | None, lanes: int | None
) -> Extent:
    shards = math.prod(sizes.get(axis, 1) for axis in TOKEN_AXES)
    if x.shape[0] % shards:
        raise ValueError(
            f"moe: {x.shape[0]} tokens cannot be split evenly over {shards} shards ({_named(sizes)}); "
            "pad them with tokens that `routing.valid` marks False"
        )
    if factor is not None and not 0 < factor < math.inf:
        raise ValueError(
            f"moe: capacity_factor={factor} leaves no room, or is none; give a finite number above 0, or None to drop "
            "nothing"
        )
    exact = None if factor is None else max(Fraction(factor).limit_denominator(1000), Fraction(1, 1000))
    expert_shards = sizes.get("expert", 1)
    if lanes is None:
        lanes = math.gcd(expert_shards, max(1, jax.local_device_count() // sizes.get("model", 1)))
    return Extent(
        x.shape[0] // shards, routing.experts.shape[1], experts.gate.shape[0], expert_shards, exact, lanes=lanes
    )


def _check(implementation: str, extent: Extent, sizes: dict[str, int], experts: Experts) -> None:
    inner, parts = experts.gate.shape[2], sizes.get("model", 1)
    if implementation == "local" and extent.shards > 1:
        raise ValueError(
            f"moe: 'local' needs all experts on the shard of their tokens, but the mesh ({_named(sizes)}) splits them "
            f"over {extent.shards}; choose one of {', '.join(repr(name) for name in TRANSPORTS if name != 'local')}"
        )
    if extent.experts % extent.shards:
        raise ValueError(
            f"moe: {extent.experts} experts cannot be split evenly over {extent.shards} shards ({_named(sizes)}); "
            f"make the number of experts a multiple of {extent.shards}, or the expert axis smaller"
        )
    if extent.lanes < 1 or extent.shards % extent.lanes:
        raise ValueError(
            f"moe: shards_per_host={extent.lanes} does not divide the expert axis of size {extent.shards}; "
            "give a divisor"
        )
    if inner % parts:
        raise ValueError(
            f"moe: an expert's inner width of {inner} cannot be split evenly over the model axis of size {parts}; "
            f"make it a multiple of {parts}"
        )


def _named(sizes: dict[str, int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in sizes.items()) or "no mesh"


def _over_mesh(transport, x, routing, experts, shard, sizes):
    tokens = PartitionSpec(tuple(axis for axis in TOKEN_AXES if axis in sizes) or None)
    expert, model = (axis if axis in sizes else None for axis in ("expert", "model"))
    inputs = (
        tokens,
        Routing(tokens, tokens, None if routing.valid is None else tokens),
        Experts(*(PartitionSpec(expert, *rest) for rest in ((None, model), (None, model), (model, None)))),
    )
    arrays = jax.tree.map(_placed, (x, routing, experts), inputs)

    def on_shard(x, routing, experts):
        return _outcome(transport(x, routing, experts, shard), x, routing, sizes)

    outputs = (tokens, Dispatch(*(PartitionSpec(),) * 4))
    return jax.shard_map(on_shard, in_specs=inputs, out_specs=outputs, check_vma=False)(*arrays)


def _placed(array: Array, spec: PartitionSpec) -> Array:
    """Move an array to where its specification says; axes that the compiler manages are left to it."""
    explicit = all(kind == AxisType.Explicit for kind in jax.sharding.get_abstract_mesh().axis_types)
    return jax.sharding.reshard(array, spec) if explicit else array


def _outcome(result: Transported, x: Array, routing: Routing, sizes: dict[str, int]) -> tuple[Array, Dispatch]:
    token_axes = tuple(axis for axis in TOKEN_AXES if axis in sizes)
    output = jax.lax.psum(result.output, "model") if sizes.get("model", 1) > 1 else result.output
    padding = jnp.int32(routing.experts.size) - jnp.sum(result.counts, dtype=jnp.int32)
    counts = (result.counts, result.dropped_by_sender, result.dropped_by_receiver, padding)
    total = jax.lax.psum(counts, token_axes) if token_axes else counts
    return output.astype(x.dtype), Dispatch(*total)
