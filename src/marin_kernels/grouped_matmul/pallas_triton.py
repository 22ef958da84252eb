"""Grouped matmul as Pallas kernels for GPUs by way of Triton (sm80 and later).

Each program computes one block of rows of one group against one block of columns. A block begins where its rows begin,
or early enough to end with the array; rows that are not its own are computed too, and not stored.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

from marin_kernels.grouped_matmul.blocked import cut
from marin_kernels.grouped_matmul.operations import Matrices, Operations, Results, Rows, Sizes
from marin_kernels.implementations import platform
from marin_kernels.manual_axes import equally_varying, result_like
from marin_kernels.precision import precision

LOWEST = 16
"""The shortest side of a matrix that the tensor cores take."""
SIDE = 128
DEPTH_BYTES = 64
"""Blocks are at most 128 high and wide, and sum over 32 bf16 or 16 fp32 numbers at a time."""


def obstacle(rows: Array, matrices: Array) -> str | None:
    """Why these kernels cannot run: the device, the dtype, or widths that do not divide into blocks."""
    if (here := platform(rows)) != "gpu":
        return f"it is written for GPUs, and this program is for a {here}"
    if rows.dtype not in (jnp.float32, jnp.bfloat16, jnp.float16):
        return f"it multiplies float32, bfloat16 and float16, and the rows are {rows.dtype}"
    odd = [width for width in matrices.shape[1:] if width % (2 * LOWEST)]
    return f"widths must be multiples of {2 * LOWEST}, and one is {odd[0]}" if odd else None


def _side(width: int, most: int) -> int:
    """The largest power of two that divides a width, up to a bound."""
    return math.gcd(width, most)


def _height(rows: int) -> int:
    """The largest power of two that the rows fill, up to the bound."""
    return min(SIDE, 1 << (rows.bit_length() - 1))


def _filled(rows: Array) -> Array:
    """Rows, zeros added until they fill a block."""
    return jnp.pad(rows, ((0, max(0, LOWEST - len(rows))), (0, 0)))


def _own(first, end, start, height):
    """Which rows of a block belong to its group: [height, 1]."""
    row = start + jax.lax.broadcasted_iota(jnp.int32, (height, 1), 0)
    return (row >= first) & (row < end)


def _dot(left, right):
    return jnp.dot(left, right, precision=precision(left.dtype), preferred_element_type=jnp.float32)


def _rowwise_kernel(group, first, end, rows, matrices, result, *, groups, transposed, shape):
    height, depth, width = shape
    block, column = pl.program_id(0), pl.ds(pl.program_id(1) * width, width)
    first, end = first[block], end[block]
    start = jnp.minimum(first, rows.shape[0] - height)
    # The block after the last group's is of rows that belong to none: they are zero.
    own_group = jnp.minimum(group[block], groups - 1)
    steps = (group[block] < groups).astype(jnp.int32) * (rows.shape[1] // depth)

    def step(i, total):
        inner = pl.ds(i * depth, depth)
        matrix = matrices[own_group, column, inner].T if transposed else matrices[own_group, inner, column]
        return total + _dot(rows[pl.ds(start, height), inner], matrix)

    total = jax.lax.fori_loop(0, steps, step, jnp.zeros((height, width), jnp.float32))
    own = jnp.broadcast_to(_own(first, end, start, height), (height, width))
    triton.store(result.at[pl.ds(start, height), column], total.astype(result.dtype), mask=own)


def _rowwise(rows, matrices, sizes, transposed, interpret):
    """``rows`` times each group's matrix."""
    rows, matrices, sizes = equally_varying(rows, matrices, sizes)
    filled, groups = _filled(rows), len(sizes)
    inner, outer = matrices.shape[1:][::-1] if transposed else matrices.shape[1:]
    shape = _height(len(filled)), _side(inner, DEPTH_BYTES // rows.dtype.itemsize), _side(outer, SIDE)
    sizes = jnp.append(sizes, len(filled) - jnp.sum(sizes))
    blocks = cut(len(filled), sizes, shape[:1])
    result = pl.pallas_call(
        partial(_rowwise_kernel, groups=groups, transposed=transposed, shape=shape),
        out_shape=result_like((len(filled), outer), rows.dtype, rows),
        grid=(len(blocks.group), outer // shape[2]),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        interpret=interpret,
    )(blocks.group, blocks.first, blocks.end, filled, matrices)
    return result[: len(rows)]


def _outer_kernel(starts, ends, rows, results, product, *, shape):
    height, depth, width = shape
    group, above, column = (pl.program_id(i) for i in range(3))
    begin, end = starts[group], ends[group]

    def step(i, total):
        first = begin + i * height
        start = jnp.minimum(first, rows.shape[0] - height)
        own = _own(first, end, start, height)
        left = jnp.where(own, rows[pl.ds(start, height), pl.ds(above * depth, depth)], 0)
        right = jnp.where(own, results[pl.ds(start, height), pl.ds(column * width, width)], 0)
        return total + _dot(left.T, right)

    turns = pl.cdiv(end - begin, height)
    total = jax.lax.fori_loop(0, turns, step, jnp.zeros((depth, width), jnp.float32))
    product[group, pl.ds(above * depth, depth), pl.ds(column * width, width)] = total.astype(product.dtype)


def _outer(rows, results, sizes, interpret):
    rows, results, sizes = equally_varying(rows, results, sizes)
    filled, groups, inner, outer = _filled(rows), len(sizes), rows.shape[1], results.shape[1]
    height = min(_height(len(filled)), max(LOWEST, DEPTH_BYTES // rows.dtype.itemsize))
    shape = height, _side(inner, SIDE), _side(outer, SIDE)
    ends = jnp.cumsum(sizes)
    return pl.pallas_call(
        partial(_outer_kernel, shape=shape),
        out_shape=result_like((groups, inner, outer), rows.dtype, rows),
        grid=(groups, inner // shape[1], outer // shape[2]),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        interpret=interpret,
    )(ends - sizes, ends, filled, _filled(results))


def operations(interpret: bool = False) -> Operations:
    """The kernels, compiled for a GPU or run by Pallas's interpreter."""

    def product(rows: Rows, matrices: Matrices, sizes: Sizes) -> Results:
        return _rowwise(rows, matrices, sizes, False, interpret)

    def transposed_product(results: Results, matrices: Matrices, sizes: Sizes) -> Rows:
        return _rowwise(results, matrices, sizes, True, interpret)

    def outer_product(rows: Rows, results: Results, sizes: Sizes) -> Matrices:
        return _outer(rows, results, sizes, interpret)

    return Operations(product, transposed_product, outer_product)


OPERATIONS = operations()
