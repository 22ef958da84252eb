"""The loop of a kernel over tiles of rows and blocks of an expert's inner width, with everything fetched ahead.

While one block is multiplied, the matrices of the next are on their way; during the last block of a tile also the rows
of the next tile, as soon as they have arrived from their shards.
"""

from collections.abc import Callable, Sequence

import attrs
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from marin_kernels.expert_parallel.fused import exchange
from marin_kernels.expert_parallel.fused.exchange import Copy, Exchange, Reference, Scalar

SCRATCH = (pltpu.SemaphoreType.DMA((2,)), pltpu.SemaphoreType.DMA((2,)), pltpu.SemaphoreType.DMA)
"""The semaphores of a pipeline: rows, matrices, results."""


@attrs.frozen
class Pipeline:
    """The references that a loop over tiles moves between, inside of a kernel.

    Attributes:
        exchange: the exchange whose arrivals gate the loop and whose results it makes.
        blocks: blocks of the inner width.
        rows: pairs of rows in main memory, and two buffers of one tile each.
        matrices: the same for matrices: all experts' ``[experts, width, inner]`` or ``[experts, inner, width]``, and
            two buffers of one block each.
        inner_axes: for each matrix, which axis of an expert's matrix is the inner width.
        output: one tile of results.
        fetched_rows: one semaphore for each buffer.
        fetched_matrices: one semaphore for each buffer.
        stored: the semaphore of the results.
    """

    exchange: Exchange
    blocks: int
    rows: Sequence[tuple[Reference, Reference]]
    matrices: Sequence[tuple[Reference, Reference]]
    inner_axes: Sequence[int]
    output: Reference
    fetched_rows: Reference
    fetched_matrices: Reference
    stored: Reference

    @property
    def tiles(self) -> Scalar:
        """How many tiles have rows."""
        return self.exchange.layout.tiles[0]


def tile_of(pipe: Pipeline, tile: Scalar) -> pl.Slice:
    """The rows of a tile."""
    size = pipe.exchange.grain.tile
    return pl.ds(pl.multiple_of(tile * size, size), size)


def turn(tile: Scalar) -> Scalar:
    """The buffer of a tile's rows: tiles take turns."""
    return jax.lax.rem(tile, 2)


def other(buffer: Scalar) -> Scalar:
    """The buffer that is not in use."""
    return 1 - buffer


def row_copies(pipe: Pipeline, tile: Scalar, buffer: Scalar) -> list:
    """The copies that bring a tile's rows into a buffer."""
    rows = tile_of(pipe, tile)
    semaphore = pipe.fetched_rows.at[buffer]
    return [pltpu.make_async_copy(source.at[rows], target.at[buffer], semaphore) for source, target in pipe.rows]


def matrix_copies(pipe: Pipeline, step: Scalar, buffer: Scalar) -> list:
    """The copies that bring the matrices of a step into a buffer."""
    expert = expert_of(pipe, step)
    block = jax.lax.rem(step, pipe.blocks)
    copies = []
    for (source, target), axis in zip(pipe.matrices, pipe.inner_axes, strict=True):
        size = target.shape[1 + axis]
        part = pl.ds(pl.multiple_of(block * size, size), size)
        where = (expert, part) if axis == 0 else (expert, slice(None), part)
        copies.append(pltpu.make_async_copy(source.at[where], target.at[buffer], pipe.fetched_matrices.at[buffer]))
    return copies


def expert_of(pipe: Pipeline, step: Scalar) -> Scalar:
    """The expert of a step; steps behind the last belong to the last tile's."""
    tile = jnp.clip(jax.lax.div(step, pipe.blocks), 0, jnp.maximum(pipe.tiles - 1, 0))
    return pipe.exchange.layout.tile_expert[tile]


def is_new(pipe: Pipeline, step: Scalar) -> Scalar:
    """Whether a step needs other matrices than the one before it."""
    if pipe.blocks > 1:
        return step >= 0
    return (step == 0) | (expert_of(pipe, step) != expert_of(pipe, step - 1))


def start(copies: Sequence) -> None:
    """Start copies."""
    for copy in copies:
        copy.start()


def wait(copies: Sequence) -> None:
    """Wait for copies that were started."""
    for copy in copies:
        copy.wait()


def run(pipe: Pipeline, multiply: Callable[..., None], finish: Callable[[], None]) -> None:
    """Run over all tiles.

    Args:
        pipe: the references.
        multiply: ``(tile, block, rows_buffer, matrices_buffer)`` adds a block's part to the tile's result.
        finish: writes the tile's result into ``pipe.output``.
    """

    @pl.when(pipe.tiles > 0)
    def _():
        first = jnp.int32(0)
        start(matrix_copies(pipe, first, first))
        exchange.gate(pipe.exchange, first)
        start(row_copies(pipe, first, first))

    def tile_step(tile, matrices_buffer):
        rows_buffer = turn(tile)
        wait(row_copies(pipe, tile, rows_buffer))

        def block_step(block, matrices_buffer):
            return _step(pipe, multiply, tile, block, rows_buffer, matrices_buffer)

        matrices_buffer = jax.lax.fori_loop(0, pipe.blocks, block_step, matrices_buffer)
        pl.when(tile > 0)(lambda: flush(pipe, tile - 1))
        finish()
        result_copy(pipe, tile).start()
        return matrices_buffer

    jax.lax.fori_loop(0, pipe.tiles, tile_step, jnp.int32(1))
    pl.when(pipe.tiles > 0)(lambda: flush(pipe, pipe.tiles - 1))


def _step(pipe, multiply, tile, block, rows_buffer, matrices_buffer):
    step = tile * pipe.blocks + block
    new = is_new(pipe, step)
    matrices_buffer = jnp.where(new, other(matrices_buffer), matrices_buffer)

    @pl.when((step + 1 < pipe.tiles * pipe.blocks) & is_new(pipe, step + 1))
    def _():
        start(matrix_copies(pipe, step + 1, other(matrices_buffer)))

    @pl.when((block == pipe.blocks - 1) & (tile + 1 < pipe.tiles))
    def _():
        exchange.gate(pipe.exchange, tile + 1)
        start(row_copies(pipe, tile + 1, other(rows_buffer)))

    pl.when(new)(lambda: wait(matrix_copies(pipe, step, matrices_buffer)))
    multiply(tile, block, rows_buffer, matrices_buffer)
    return matrices_buffer


def result_copy(pipe: Pipeline, tile: Scalar) -> Copy:
    """The copy that brings a tile's results to main memory."""
    return pltpu.make_async_copy(pipe.output, pipe.exchange.results.at[tile_of(pipe, tile)], pipe.stored)


def flush(pipe: Pipeline, tile: Scalar) -> None:
    """Wait until a tile's results are in main memory, and send those home that are complete."""
    result_copy(pipe, tile).wait()
    exchange.reply(pipe.exchange, tile)
