"""Gradients of matrices: for each expert, the product over its own rows."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from marin_kernels.expert_parallel.fused.layout import Layout
from marin_kernels.expert_parallel.fused.tiles import Tiles
from marin_kernels.precision import precision

_BLOCK = 512  # of either width, at most


def matrix_gradients(
    left: Float[Array, "away left"] | Float[Array, "kinds away left"],
    right: Float[Array, "away right"] | Float[Array, "kinds away right"],
    layout: Layout,
    *,
    experts: int,
    tiles: Tiles,
    kind: int = 0,
) -> Float[Array, "experts left right"]:
    """``left[r].T @ right[r]`` summed over the rows ``r`` of each expert, in fp32; zero for experts without rows.

    Args:
        left: rows, laid out in tiles of one expert each; rows that belong to none may hold anything.
        right: rows of the same places.
        layout: which tile is whose.
        experts: how many there are on this shard.
        tiles: the rows of a tile.
        kind: which of the stacked rows is meant, where ``left`` or ``right`` are three-dimensional.
    """
    sizes = [_block(array.shape[-1]) for array in (left, right)]
    counts = [array.shape[-1] // size for array, size in zip((left, right), sizes, strict=True)]
    gradients = pl.pallas_call(
        functools.partial(_kernel),
        out_shape=jax.ShapeDtypeStruct((experts, left.shape[-1], right.shape[-1]), left.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(*counts, layout.tiles[0]),
            in_specs=[
                _rows(left, tiles.grain.tile, sizes[0], kind, lambda m, n: m),
                _rows(right, tiles.grain.tile, sizes[1], kind, lambda m, n: n),
            ],
            out_specs=pl.BlockSpec((None, *sizes), lambda m, n, tile, owner, _: (owner[tile], m, n)),
            scratch_shapes=[pltpu.VMEM(tuple(sizes), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",) * 3, vmem_limit_bytes=tiles.memory),
        name="fused_moe_gradients",
    )(layout.tile_expert, layout.tile_rows, left, right)
    visited = jnp.zeros(experts, bool).at[layout.tile_expert].set(True, mode="drop")
    return jnp.where(visited[:, None, None], gradients, 0)


def _block(width: int) -> int:
    return max(size for size in range(128, _BLOCK + 1, 128) if width % size == 0)


def _rows(array: Array, tile: int, size: int, kind: int, column) -> pl.BlockSpec:
    if array.ndim == 2:
        return pl.BlockSpec((tile, size), lambda m, n, row, *_: (row, column(m, n)))
    return pl.BlockSpec((None, tile, size), lambda m, n, row, *_: (kind, row, column(m, n)))


def _kernel(owner, count, left, right, gradient, total):
    tile = pl.program_id(2)
    last = pl.num_programs(2) - 1
    begins = (tile == 0) | (owner[tile] != owner[jnp.maximum(tile - 1, 0)])
    ends = (tile == last) | (owner[tile] != owner[jnp.minimum(tile + 1, last)])
    # Both sides: what lies between regions may be NaN, and zero times NaN is NaN.
    pairs = (_own(left, count[tile]), _own(right, count[tile]))
    exact = precision(left.dtype)
    part = jax.lax.dot_general(*pairs, (((0,), (0,)), ((), ())), precision=exact, preferred_element_type=jnp.float32)

    @pl.when(begins)
    def _():
        total[...] = part

    @pl.when(jnp.logical_not(begins))
    def _():
        total[...] += part

    @pl.when(ends)
    def _():
        gradient[...] = total[...].astype(gradient.dtype)


def _own(rows, count) -> Array:
    values = rows[...]
    return jnp.where(jax.lax.broadcasted_iota(jnp.int32, values.shape, 0) < count, values, 0)
