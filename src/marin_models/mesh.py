"""Where arrays lie on the devices of a mesh; without a mesh in force everything lies on one device.

The axes are always there, of size 1 where they are not needed: ``replica`` and ``data`` split the batch; ``expert``
splits it too, and the routed experts; ``model`` splits heads, inner sizes and the vocabulary. Matrices are stored in
pieces over ``data`` and ``expert`` as well (fully sharded), and put together just before they are used.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
from jax.experimental.mesh_utils import create_device_mesh
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from marin_kernels.precision import precision
from marin_models.groups import declaration

AXES = ("replica", "data", "expert", "model")
BATCH = ("replica", "data", "expert")
"""Axes that split the rows of a batch."""

SHARDS = ("data", "expert")
"""Axes that split stored matrices."""

Axis = str | tuple[str, ...] | None
Result = TypeVar("Result")


def make_mesh(
    devices: Sequence[jax.Device] | None = None, *, replica: int = 1, data: int = 1, expert: int = 1, model: int = 1
) -> Mesh:
    """A mesh with all four axes, explicit in the types of arrays; put it in force with ``jax.set_mesh``.

    Args:
        devices: in row-major order of the axes; all devices unless given.
        replica: copies of the whole model, the batch split between them.
        data: pieces of the batch and of stored matrices.
        expert: groups of experts, and pieces of the batch and of stored matrices.
        model: pieces of heads, inner sizes and vocabulary.

    Raises:
        ValueError: the sizes do not multiply to the number of devices.
    """
    devices = jax.devices() if devices is None else devices
    sizes = (replica, data, expert, model)
    if min(sizes) < 1 or math.prod(sizes) != len(devices):
        given = ", ".join(f"{name}={size}" for name, size in zip(AXES, sizes, strict=True))
        raise ValueError(
            f"make_mesh: {given} is a mesh of {math.prod(sizes)} devices, but there are {len(devices)}; change the "
            "sizes or give other devices"
        )
    # An axis may be larger than any side of the devices' torus, which is split then.
    placed = create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    return Mesh(placed, AXES, axis_types=(AxisType.Explicit,) * len(AXES))


def axis_sizes() -> dict[str, int]:
    """The explicit axes of the mesh in force, by name; empty without a mesh or inside a function of one shard."""
    mesh = jax.sharding.get_abstract_mesh()
    axes = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    return {name: size for name, size, kind in axes if kind == AxisType.Explicit}


def spec(*axes: Axis) -> PartitionSpec:
    """Which mesh axes split each axis of an array; names that the mesh in force lacks are dropped."""
    return _spec(axes, axis_sizes())


def _spec(axes: Sequence[Axis], sizes: Mapping[str, int]) -> PartitionSpec:
    kept = [tuple(name for name in _names(axis) if name in sizes) for axis in axes]
    return PartitionSpec(*(names if len(names) > 1 else next(iter(names), None) for names in kept))


def _names(axis: Axis) -> tuple[str, ...]:
    return (axis,) if isinstance(axis, str) else axis or ()


def put(x: Array, *axes: Axis) -> Array:
    """``x`` split over these axes of the mesh in force; ``x`` itself without a mesh."""
    return jax.sharding.reshard(x, spec(*axes)) if axis_sizes() else x


def looked_up(table: Array, indices: Array) -> Array:
    """The rows ``table[indices]`` of a table that every device holds, split as a batch over the mesh in force."""
    if not axis_sizes():
        return jax.numpy.take(table, indices, axis=0)
    split = spec(BATCH, *[None] * (indices.ndim + table.ndim - 2))
    return table.at[put(indices, BATCH, None)].get(out_sharding=split)


def product(x: Array, matrix: Array, *axes: Axis) -> Array:
    """``x @ matrix``, the result split over ``axes`` of the mesh in force; without axes, as its operands say."""
    exact = precision(x.dtype, matrix.dtype)
    if axis_sizes():
        return jax.numpy.matmul(x, matrix, precision=exact, out_sharding=spec(*axes) if axes else None)
    # As one axis of rows: the matrix's gradient sums over all of them, and to sum over two axes XLA:CPU transposes
    # the operands first, which takes longer than the product.
    rows = jax.numpy.matmul(x.reshape(-1, x.shape[-1]), matrix, precision=exact)
    return rows.reshape(*x.shape[:-1], matrix.shape[-1])


def per_shard(function: Callable[..., Result], arguments: Sequence[Any], results: Any) -> Callable[..., Result]:
    """The function applied to each device's part; the function itself without a mesh.

    Args:
        function: of arrays; it sees the part that one device holds.
        arguments: the `spec` of each argument.
        results: the specs of what it returns.
    """
    return jax.shard_map(function, in_specs=tuple(arguments), out_specs=results) if axis_sizes() else function


def parameter_specs(model: PyTree, mesh: Mesh | AbstractMesh) -> PyTree:
    """How each parameter is stored on a mesh, in a tree of the model's own structure.

    A parameter is split over the mesh axes that its module declares (see `marin_models.parameter`), as far as its
    sizes divide by theirs.

    Args:
        model: arrays or their shapes.
        mesh: its axes need not be all four.
    """

    def one(path: tuple, leaf: Any) -> PartitionSpec:
        axes = declaration(model, path)["axes"]
        stacked = (None,) * (leaf.ndim - len(axes))
        return _divisible(leaf.shape, _spec((*stacked, *axes), mesh.shape), mesh.shape)

    return jax.tree_util.tree_map_with_path(one, model)


def _divisible(shape: Sequence[int], whole: PartitionSpec, sizes: Mapping[str, int]) -> PartitionSpec:
    """The spec without the last names of each axis that its size does not divide by."""
    axes = []
    for size, axis in zip(shape, whole, strict=True):
        names = _names(axis)
        while size % math.prod(sizes[name] for name in names):
            names = names[:-1]
        axes.append(names)
    return _spec(axes, sizes)


def parameter_shardings(model: PyTree, mesh: Mesh) -> PyTree:
    """`parameter_specs` as the shardings that ``jax.device_put`` and ``jax.jit(out_shardings=...)`` take."""
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), parameter_specs(model, mesh))


def check_divisible(**counts: tuple[int, Axis]) -> None:
    """Refuse a mesh in force that cannot split a model evenly.

    Args:
        **counts: by name, a size and the mesh axes that split it.

    Raises:
        ValueError: naming the size, the axes and what would fit.
    """
    sizes = axis_sizes()
    for name, (count, axis) in counts.items():
        names = [one for one in _names(axis) if one in sizes]
        pieces = math.prod(sizes[one] for one in names)
        if count % pieces:
            raise ValueError(
                f"{name} {count} cannot be split over the {pieces} devices of the axis {' x '.join(map(repr, names))} "
                f"of the mesh; make {name} a multiple of {pieces} or the axis smaller"
            )
