"""The forward kernel: rows to their experts, ``(silu(x @ gate) * (x @ up)) @ down``, and the results home."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from marin_kernels.expert_parallel.axis import ExpertAxis
from marin_kernels.expert_parallel.fused import exchange, pipeline
from marin_kernels.expert_parallel.fused.exchange import Exchange, Reference, Scalar
from marin_kernels.expert_parallel.fused.layout import Layout
from marin_kernels.expert_parallel.fused.pipeline import Pipeline
from marin_kernels.expert_parallel.fused.tiles import Tiles
from marin_kernels.expert_parallel.routing import Experts
from marin_kernels.precision import precision


class Forward(NamedTuple):
    """What the forward kernel leaves.

    Attributes:
        incoming: the rows that arrived.
        results: what the experts made of them.
        returned: results at home; rows of no chunk hold anything.
    """

    incoming: Float[Array, "away width"]
    results: Float[Array, "away width"]
    returned: Float[Array, "home width"]


def forward(
    rows: Float[Array, "home width"], experts: Experts, layout: Layout, *, axis: ExpertAxis, tiles: Tiles
) -> Forward:
    """Run the forward kernel.

    Args:
        rows: this shard's rows, laid out as ``layout.home`` says.
        experts: this shard's matrices, in the dtype of the rows.
        layout: where chunks lie.
        axis: the shards that exchange.
        tiles: what is held at once.
    """
    width, size = rows.shape[1], tiles.grain.tile
    away = jax.ShapeDtypeStruct((layout.tile_expert.shape[0] * size, width), rows.dtype)
    scratch = [
        pltpu.VMEM((2, size, width), rows.dtype),
        pltpu.VMEM((2, width, tiles.inner), rows.dtype),
        pltpu.VMEM((2, width, tiles.inner), rows.dtype),
        pltpu.VMEM((2, tiles.inner, width), rows.dtype),
        pltpu.VMEM((size, width), jnp.float32),
        pltpu.VMEM((size, width), rows.dtype),
        *exchange.SCRATCH,
        pltpu.SemaphoreType.DMA(layout.received.shape),
        *pipeline.SCRATCH,
    ]
    return Forward(
        *pl.pallas_call(
            functools.partial(_kernel, axis=axis, tiles=tiles),
            out_shape=[away, away, jax.ShapeDtypeStruct(rows.shape, rows.dtype)],
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)] * len(layout) + [pl.BlockSpec(memory_space=pl.ANY)] * 4,
            out_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 3,
            scratch_shapes=scratch,
            compiler_params=parameters(axis, tiles, 17),
            name="fused_moe_forward",
        )(*layout, rows, *experts)
    )


def parameters(axis: ExpertAxis, tiles: Tiles, barrier: int) -> pltpu.CompilerParams:
    """What the compiler is told of a kernel that exchanges."""
    return pltpu.CompilerParams(
        collective_id=None if axis.size == 1 else barrier, has_side_effects=True, vmem_limit_bytes=tiles.memory
    )


def _kernel(*refs, axis, tiles):
    layout, (rows, gate, up, down, incoming, results, returned), refs = split(refs, 7)
    x_buffer, gate_buffer, up_buffer, down_buffer, total, output, *semaphores = refs
    exchanged = Exchange(axis, tiles.grain, layout, rows, incoming, results, returned, *semaphores[:4])
    pipe = Pipeline(
        exchanged,
        gate.shape[2] // tiles.inner,
        [(incoming, x_buffer)],
        [(gate, gate_buffer), (up, up_buffer), (down, down_buffer)],
        (1, 1, 0),
        output,
        *semaphores[4:],
    )

    def multiply(tile, block, rows_buffer, buffer):
        x = x_buffer[rows_buffer]
        gated, upped = product(x, gate_buffer[buffer]), product(x, up_buffer[buffer])
        hidden = (jax.nn.silu(gated) * upped).astype(x.dtype)
        accumulate(total, block, product(hidden, down_buffer[buffer]))

    def finish():
        output[...] = total[...].astype(output.dtype)

    exchange.enter(exchanged)
    exchange.send(exchanged)
    pipeline.run(pipe, multiply, finish)
    exchange.await_sends(exchanged)
    exchange.await_answers(exchanged)


def split(refs: tuple, count: int) -> tuple[Layout, tuple, tuple]:
    """A kernel's references: the layout, so many arrays in main memory, and scratch."""
    scalars = len(Layout._fields)
    return Layout(*refs[:scalars]), refs[scalars : scalars + count], refs[scalars + count :]


def product(left: Array, right: Array, *, transposed: bool = False) -> Array:
    """``left @ right`` (or ``left @ right.T``) in fp32; numbers of fp32 are multiplied as such."""
    contracted = ((1,), (1 if transposed else 0,))
    exact = precision(left.dtype)
    return jax.lax.dot_general(left, right, (contracted, ((), ())), precision=exact, preferred_element_type=jnp.float32)


def accumulate(total: Reference, block: Scalar, part: Array) -> None:
    """Add a block's part to a sum that begins with the first block."""

    @pl.when(block == 0)
    def _():
        total[...] = part

    @pl.when(block > 0)
    def _():
        total[...] += part
