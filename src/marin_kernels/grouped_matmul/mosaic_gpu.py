"""Grouped matmul as Pallas kernels for GPUs by way of Mosaic: asynchronous copies and warpgroup products of sm90.

Rows are spread out first so that no tile has rows of two groups (`aligned`), and gathered afterwards. Compiled for sm90
in the tests; its numbers are checked where there is such a GPU (``benchmarks/gpu_check.py``).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as mosaic
from jaxtyping import Array

from marin_kernels.grouped_matmul.aligned import align, taken
from marin_kernels.grouped_matmul.operations import Matrices, Operations, Results, Rows, Sizes
from marin_kernels.implementations import platform, target_device
from marin_kernels.manual_axes import equally_varying, result_like

SIDE, DEPTH = 128, 64
"""Tiles are 128 rows by 128 columns, and sum over 64 numbers at a time: the width of a swizzled copy."""
IN_FLIGHT = 4
"""Copies under way while one product runs."""
SM90 = ("H100", "H200", "H800", "GH200")


def obstacle(rows: Array, matrices: Array) -> str | None:
    """Why these kernels cannot run: the device, the dtype, or widths that do not divide into tiles."""
    if (here := platform(rows)) != "gpu":
        return f"it is written for GPUs of sm90, and this program is for a {here}"
    device = target_device(rows) or jax.devices()[0]
    if not any(name in device.device_kind for name in SM90):
        return f"it is written for GPUs of sm90 ({', '.join(SM90)}), and this program is for {device.device_kind}"
    if rows.dtype not in (jnp.bfloat16, jnp.float16):
        return f"warpgroups multiply 16-bit numbers, and the rows are {rows.dtype}; cast them to bfloat16"
    odd = [width for width in matrices.shape[1:] if width % SIDE]
    return f"widths must be multiples of {SIDE}, and one is {odd[0]}" if odd else None


_PARAMETERS = mosaic.CompilerParams(lowering_semantics=mosaic.LoweringSemantics.Warpgroup)


def _store(total, target):
    """Write a tile of sums, by way of shared memory."""

    @partial(pl.run_scoped, tile=mosaic.SMEM(total.shape, target.dtype))
    def _(tile):
        tile[...] = total.astype(tile.dtype)
        mosaic.commit_smem()
        mosaic.copy_smem_to_gmem(tile, target)
        mosaic.wait_smem_to_gmem(0)


def _rowwise_kernel(group, rows, matrices, result, *, transposed):
    tile, column = jax.lax.axis_index("tile"), jax.lax.axis_index("column")

    def multiply(total):
        def step(_, left, right):
            mosaic.wgmma(total, left, mosaic.transpose_ref(right, (1, 0)) if transposed else right)

        matrix = mosaic.BlockSpec(
            (SIDE, DEPTH) if transposed else (DEPTH, SIDE),
            lambda inner: (column, inner) if transposed else (inner, column),
            delay_release=1,
        )
        mosaic.emit_pipeline(
            step,
            grid=(rows.shape[1] // DEPTH,),
            in_specs=[mosaic.BlockSpec((SIDE, DEPTH), lambda inner: (tile, inner), delay_release=1), matrix],
            max_concurrent_steps=IN_FLIGHT,
        )(rows, matrices.at[group[tile]])
        return total[...]

    total = pl.run_scoped(multiply, mosaic.ACC((SIDE, SIDE)))
    _store(total, result.at[pl.ds(tile * SIDE, SIDE), pl.ds(column * SIDE, SIDE)])


def _rowwise(rows, matrices, sizes, transposed):
    """``rows`` times each group's matrix."""
    rows, matrices, sizes = equally_varying(rows, matrices, sizes)
    outer = matrices.shape[1 if transposed else 2]
    alignment = align(len(rows), SIDE, sizes)
    tiles = len(alignment.group)
    kernel = mosaic.kernel(
        partial(_rowwise_kernel, transposed=transposed),
        out_type=result_like((tiles * SIDE, outer), rows.dtype, rows),
        grid=(outer // SIDE, tiles),
        grid_names=("column", "tile"),
        compiler_params=_PARAMETERS,
    )
    return taken(kernel(alignment.group, taken(rows, alignment.source), matrices), alignment.place)


def _outer_kernel(firsts, tiles, rows, results, product):
    group, above, column = (jax.lax.axis_index(name) for name in ("group", "above", "column"))
    first = firsts[group] * (SIDE // DEPTH)

    def multiply(total):
        def step(_, left, right):
            mosaic.wgmma(total, mosaic.transpose_ref(left, (1, 0)), right)

        @pl.when(tiles[group] > 0)
        def _():
            mosaic.emit_pipeline(
                step,
                grid=(tiles[group] * (SIDE // DEPTH),),
                in_specs=[
                    mosaic.BlockSpec((DEPTH, SIDE), lambda inner: (first + inner, above), delay_release=1),
                    mosaic.BlockSpec((DEPTH, SIDE), lambda inner: (first + inner, column), delay_release=1),
                ],
                max_concurrent_steps=IN_FLIGHT,
            )(rows, results)

        return total[...]

    total = pl.run_scoped(multiply, mosaic.ACC((SIDE, SIDE)))
    _store(total, product.at[group, pl.ds(above * SIDE, SIDE), pl.ds(column * SIDE, SIDE)])


def product(rows: Rows, matrices: Matrices, sizes: Sizes) -> Results:
    """``rows @ matrices[group]``."""
    return _rowwise(rows, matrices, sizes, False)


def transposed_product(results: Results, matrices: Matrices, sizes: Sizes) -> Rows:
    """``results @ matrices[group].T``."""
    return _rowwise(results, matrices, sizes, True)


def outer_product(rows: Rows, results: Results, sizes: Sizes) -> Matrices:
    """``rows[group].T @ results[group]``."""
    rows, results, sizes = equally_varying(rows, results, sizes)
    groups, inner, outer = len(sizes), rows.shape[1], results.shape[1]
    alignment = align(len(rows), SIDE, sizes)
    kernel = mosaic.kernel(
        _outer_kernel,
        out_type=result_like((groups, inner, outer), rows.dtype, rows),
        grid=(outer // SIDE, inner // SIDE, groups),
        grid_names=("column", "above", "group"),
        compiler_params=_PARAMETERS,
    )
    spread = (taken(array, alignment.source) for array in (rows, results))
    return kernel(alignment.first, alignment.tiles, *spread)


OPERATIONS = Operations(product, transposed_product, outer_product)
