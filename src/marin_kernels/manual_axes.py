"""Arrays inside `jax.shard_map`: which mesh axes they differ along, and how to make several agree."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array


def varying_axes(*arrays: Array) -> tuple[str, ...]:
    """The manual mesh axes along which at least one of the arrays differs between devices; empty outside shard_map."""
    varying = frozenset().union(*(jax.typeof(array).manual_axis_type.varying for array in arrays))
    return tuple(sorted(varying))


def equally_varying(*arrays: Array) -> tuple[Array, ...]:
    """The same arrays, all typed as differing along the axes of any; gradients are summed where that changes one."""
    axes = varying_axes(*arrays)
    return tuple(_cast(array, tuple(axis for axis in axes if axis not in varying_axes(array))) for array in arrays)


def zeros_like_varying(shape: tuple[int, ...], dtype: DTypeLike, *arrays: Array) -> Array:
    """Zeros that may be carried through a loop together with what is computed from some arrays."""
    return _cast(jnp.zeros(shape, dtype), varying_axes(*arrays))


def result_like(shape: tuple[int, ...], dtype: DTypeLike, *arrays: Array) -> jax.ShapeDtypeStruct:
    """What a kernel returns that was given some arrays: its shape and dtype, differing where they do."""
    return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=jax.typeof(equally_varying(*arrays)[0]).manual_axis_type)


def _cast(array: Array, axes: tuple[str, ...]) -> Array:
    return jax.lax.pcast(array, axes, to="varying") if axes else array
