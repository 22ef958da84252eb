"""The reverse kernel: cotangents of results to the experts, those of rows home, by the routes of the forward."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from marin_kernels.expert_parallel.axis import ExpertAxis
from marin_kernels.expert_parallel.fused import exchange, pipeline
from marin_kernels.expert_parallel.fused.exchange import Exchange
from marin_kernels.expert_parallel.fused.forward import accumulate, parameters, product, split
from marin_kernels.expert_parallel.fused.layout import Layout
from marin_kernels.expert_parallel.fused.pipeline import Pipeline, tile_of
from marin_kernels.expert_parallel.fused.tiles import Tiles
from marin_kernels.expert_parallel.routing import Experts

HIDDEN, GATED, UPPED = range(3)
"""Which of `Backward.inner` is what."""


class Backward(NamedTuple):
    """What the reverse kernel leaves.

    Attributes:
        pulled: cotangents of results, as they arrived.
        inner: ``silu(x @ gate) * (x @ up)``, and cotangents of ``x @ gate`` and of ``x @ up``; zero between regions.
        results: cotangents of the rows that the forward kernel received.
        returned: the same at home; rows of no chunk hold anything.
    """

    pulled: Float[Array, "away width"]
    inner: Float[Array, "three away inner"]
    results: Float[Array, "away width"]
    returned: Float[Array, "home width"]


def backward(
    cotangent: Float[Array, "home width"],
    incoming: Float[Array, "away width"],
    experts: Experts,
    layout: Layout,
    *,
    axis: ExpertAxis,
    tiles: Tiles,
) -> Backward:
    """Run the reverse kernel.

    Args:
        cotangent: of the forward kernel's returned rows; zero for rows of no chunk.
        incoming: the rows that the forward kernel received.
        experts: this shard's matrices, in the dtype of the rows.
        layout: where chunks lie.
        axis: the shards that exchange.
        tiles: what is held at once.
    """
    (away, width), size, dtype = incoming.shape, tiles.grain.tile, incoming.dtype
    received = jax.ShapeDtypeStruct(incoming.shape, dtype)
    inner = jax.ShapeDtypeStruct((3, away, experts.gate.shape[2]), dtype)
    scratch = [
        pltpu.VMEM((2, size, width), dtype),
        pltpu.VMEM((2, size, width), dtype),
        pltpu.VMEM((2, width, tiles.inner), dtype),
        pltpu.VMEM((2, width, tiles.inner), dtype),
        pltpu.VMEM((2, tiles.inner, width), dtype),
        pltpu.VMEM((3, size, tiles.inner), dtype),
        pltpu.VMEM((size, width), jnp.float32),
        pltpu.VMEM((size, width), dtype),
        pltpu.SemaphoreType.DMA,
        *exchange.SCRATCH,
        pltpu.SemaphoreType.DMA(layout.received.shape),
        *pipeline.SCRATCH,
    ]
    return Backward(
        *pl.pallas_call(
            functools.partial(_kernel, axis=axis, tiles=tiles),
            out_shape=[received, inner, received, jax.ShapeDtypeStruct(cotangent.shape, dtype)],
            in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)] * len(layout) + [pl.BlockSpec(memory_space=pl.ANY)] * 5,
            out_specs=[pl.BlockSpec(memory_space=pl.ANY)] * 4,
            scratch_shapes=scratch,
            compiler_params=parameters(axis, tiles, 18),
            name="fused_moe_backward",
        )(*layout, cotangent, incoming, *experts)
    )


def _kernel(*refs, axis, tiles):
    layout, arrays, refs = split(refs, 9)
    cotangent, incoming, gate, up, down, pulled, inner, results, returned = arrays
    x_buffer, pulled_buffer, gate_buffer, up_buffer, down_buffer, inner_buffer, total, output, kept, *semaphores = refs
    exchanged = Exchange(axis, tiles.grain, layout, cotangent, pulled, results, returned, *semaphores[:4])
    pipe = Pipeline(
        exchanged,
        gate.shape[2] // tiles.inner,
        [(incoming, x_buffer), (pulled, pulled_buffer)],
        [(gate, gate_buffer), (up, up_buffer), (down, down_buffer)],
        (1, 1, 0),
        output,
        *semaphores[4:],
    )

    def keep(tile, block):
        columns = pl.ds(pl.multiple_of(block * tiles.inner, tiles.inner), tiles.inner)
        return pltpu.make_async_copy(inner_buffer, inner.at[:, tile_of(pipe, tile), columns], kept)

    def multiply(tile, block, rows_buffer, buffer):
        parts = _inner(
            x_buffer[rows_buffer],
            pulled_buffer[rows_buffer],
            gate_buffer[buffer],
            up_buffer[buffer],
            down_buffer[buffer],
        )
        pl.when(tile + block > 0)(lambda: keep(tile, block).wait())  # the one before; all are of one size
        own = jax.lax.broadcasted_iota(jnp.int32, parts[0].shape, 0) < layout.tile_rows[tile]
        for index, part in enumerate(parts):
            inner_buffer[index] = jnp.where(own, part, 0).astype(inner_buffer.dtype)
        keep(tile, block).start()
        d_rows = product(inner_buffer[GATED], gate_buffer[buffer], transposed=True)
        accumulate(total, block, d_rows + product(inner_buffer[UPPED], up_buffer[buffer], transposed=True))

    def finish():
        output[...] = total[...].astype(output.dtype)

    exchange.enter(exchanged)
    exchange.send(exchanged)
    pipeline.run(pipe, multiply, finish)
    pl.when(pipe.tiles > 0)(lambda: keep(0, 0).wait())
    exchange.await_sends(exchanged)
    exchange.await_answers(exchanged)


def _inner(x: Array, pulled: Array, gate: Array, up: Array, down: Array) -> tuple[Array, Array, Array]:
    """The hidden activations, and the cotangents of ``x @ gate`` and of ``x @ up``."""
    gated, upped = product(x, gate), product(x, up)
    sigmoid = jax.nn.sigmoid(gated)
    swish = gated * sigmoid
    d_hidden = product(pulled, down, transposed=True)
    return swish * upped, d_hidden * upped * sigmoid * (1 + gated * (1 - sigmoid)), d_hidden * swish
