"""Grouped matmul as Pallas kernels for TPUs.

The grid runs over the meetings of tiles and groups (`visits`), which the scalar core knows ahead, so that a group's
matrix is fetched while the one before is multiplied. A tile that several groups share stays in fast memory while each
of them writes its own rows; rows of no group are written as zeros.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from marin_kernels.grouped_matmul.operations import Matrices, Operations, Results, Rows, Sizes
from marin_kernels.grouped_matmul.visits import Visits, visits
from marin_kernels.implementations import platform
from marin_kernels.manual_axes import equally_varying, result_like
from marin_kernels.precision import precision

LANES = 128
HEIGHT = 512
WIDTH_BYTES = 2048
"""A tile is at most 512 rows high and 1,024 bf16 or 512 fp32 numbers wide: twice what a step needs fits 16 MiB."""

Interpret = bool | pltpu.InterpretParams


def obstacle(rows: Array, matrices: Array) -> str | None:
    """Why these kernels cannot run: the device, the dtype, or widths that do not divide into tiles."""
    if (here := platform(rows)) != "tpu":
        return f"it is written for TPUs, and this program is for a {here}"
    return shape_obstacle(rows, matrices)


def shape_obstacle(rows: Array, matrices: Array) -> str | None:
    """The part of `obstacle` that does not ask for the device."""
    if rows.dtype not in (jnp.float32, jnp.bfloat16):
        return f"it multiplies float32 and bfloat16, and the rows are {rows.dtype}"
    odd = [width for width in matrices.shape[1:] if width % LANES]
    return f"widths must be multiples of {LANES}, and one is {odd[0]}" if odd else None


def _width(width: int, dtype: jnp.dtype) -> int:
    """The widest tile that divides a width."""
    most = WIDTH_BYTES // dtype.itemsize
    return max(tile for tile in range(LANES, most + 1, LANES) if width % tile == 0)


def _height(rows: int, dtype: jnp.dtype) -> int:
    """Tiles as high as allowed; fewer rows are one tile, filled up to whole registers."""
    packed = 32 // dtype.itemsize
    return min(HEIGHT, -(-rows // packed) * packed)


def _dot(left, right, contracted):
    dimensions = ((contracted[:1], contracted[1:]), ((), ()))
    return jax.lax.dot_general(
        left, right, dimensions, precision=precision(left.dtype), preferred_element_type=jnp.float32
    )


def _own(first, end, tile, height):
    """Which rows of a tile belong to the meeting's group: [height, 1]."""
    row = tile * height + jax.lax.broadcasted_iota(jnp.int32, (height, 1), 0)
    return (row >= first) & (row < end)


def _rowwise_kernel(tile, group, first, end, rows, matrix, result, total, *, groups, contracted):
    visit, step = pl.program_id(1), pl.program_id(2)

    @pl.when(step == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    @pl.when((end[visit] > first[visit]) & (group[visit] < groups))
    def _():
        total[...] += _dot(rows[...], matrix[...], (1, contracted))

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        own = _own(first[visit], end[visit], tile[visit], result.shape[0])
        found = jnp.where(own & (group[visit] < groups), total[...], 0)
        begun = (visit == 0) | (tile[visit] != tile[jnp.maximum(visit, 1) - 1])
        # Before a tile's first meeting its memory holds anything, and NaN times zero is NaN: select, never multiply.
        before = jnp.where(begun, 0, result[...].astype(jnp.float32))
        result[...] = jnp.where(own, found, before).astype(result.dtype)


def _rowwise(rows, matrices, sizes, contracted, interpret):
    """``rows`` times each group's matrix, whose axis ``contracted`` is summed over."""
    rows, matrices, sizes = equally_varying(rows, matrices, sizes)
    groups, inner, outer = len(sizes), matrices.shape[1 + contracted], matrices.shape[2 - contracted]
    height, depth, width = _height(len(rows), rows.dtype), _width(inner, rows.dtype), _width(outer, rows.dtype)
    met = visits(len(rows), height, sizes)

    def matrix_block(column, visit, step, tile, group, *_):
        place = (step, column) if contracted == 0 else (column, step)
        return (jnp.minimum(group[visit], groups - 1), *place)

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=4,
        grid=(outer // width, met.all, inner // depth),
        in_specs=[
            pl.BlockSpec((height, depth), lambda column, visit, step, tile, *_: (tile[visit], step)),
            pl.BlockSpec((None, *((depth, width) if contracted == 0 else (width, depth))), matrix_block),
        ],
        out_specs=pl.BlockSpec((height, width), lambda column, visit, step, tile, *_: (tile[visit], column)),
        scratch_shapes=[pltpu.VMEM((height, width), jnp.float32)],
    )
    return pl.pallas_call(
        partial(_rowwise_kernel, groups=groups, contracted=contracted),
        out_shape=result_like((len(rows), outer), rows.dtype, rows),
        grid_spec=spec,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary", "arbitrary")),
        cost_estimate=_cost(len(rows), inner, outer, groups, rows.dtype),
        interpret=interpret,
    )(*met[:4], rows, matrices)


def _cost(rows, inner, outer, groups, dtype):
    read = (rows * (inner + outer) + groups * inner * outer) * dtype.itemsize
    return pl.CostEstimate(flops=2 * rows * inner * outer, bytes_accessed=read, transcendentals=0)


def _outer_kernel(tile, group, first, end, rows, results, product, total):
    visit, last = pl.program_id(2), pl.num_programs(2) - 1

    @pl.when((visit == 0) | (group[visit] != group[jnp.maximum(visit, 1) - 1]))
    def _():
        total[...] = jnp.zeros_like(total)

    @pl.when(end[visit] > first[visit])
    def _():
        own = _own(first[visit], end[visit], tile[visit], rows.shape[0])
        left, right = (jnp.where(own, array[...], 0).astype(array.dtype) for array in (rows, results))
        total[...] += _dot(left, right, (0, 0))

    @pl.when((visit == last) | (group[visit] != group[jnp.minimum(visit + 1, last)]))
    def _():
        product[...] = total[...].astype(product.dtype)


def _outer(rows, results, sizes, interpret):
    rows, results, sizes = equally_varying(rows, results, sizes)
    groups, inner, outer = len(sizes), rows.shape[1], results.shape[1]
    height, depth, width = _height(len(rows), rows.dtype), _width(inner, rows.dtype), _width(outer, rows.dtype)
    met: Visits = visits(len(rows), height, sizes)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=4,
        grid=(inner // depth, outer // width, met.groups),
        in_specs=[
            pl.BlockSpec((height, depth), lambda above, column, visit, tile, *_: (tile[visit], above)),
            pl.BlockSpec((height, width), lambda above, column, visit, tile, *_: (tile[visit], column)),
        ],
        out_specs=pl.BlockSpec(
            (None, depth, width), lambda above, column, visit, tile, group, *_: (group[visit], above, column)
        ),
        scratch_shapes=[pltpu.VMEM((depth, width), jnp.float32)],
    )
    return pl.pallas_call(
        _outer_kernel,
        out_shape=result_like((groups, inner, outer), rows.dtype, rows),
        grid_spec=spec,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        cost_estimate=_cost(len(rows), inner, outer, groups, rows.dtype),
        interpret=interpret,
    )(*met[:4], rows, results)


def operations(interpret: Interpret = False) -> Operations:
    """The kernels, compiled for a TPU or run by Pallas's interpreter."""

    def product(rows: Rows, matrices: Matrices, sizes: Sizes) -> Results:
        return _rowwise(rows, matrices, sizes, 0, interpret)

    def transposed_product(results: Results, matrices: Matrices, sizes: Sizes) -> Rows:
        return _rowwise(results, matrices, sizes, 1, interpret)

    def outer_product(rows: Rows, results: Results, sizes: Sizes) -> Matrices:
        return _outer(rows, results, sizes, interpret)

    return Operations(product, transposed_product, outer_product)


OPERATIONS = operations()
