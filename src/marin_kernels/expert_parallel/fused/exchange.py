"""Rows to the experts' shards and results back, by remote DMA; the parts of a kernel, on references.

All shards of an expert axis run the same kernel together. A chunk is announced by its own semaphore when it has
arrived, so that what arrived can be used while the rest is on its way.
"""

from typing import Any

import attrs
import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from marin_kernels.expert_parallel.axis import ExpertAxis
from marin_kernels.expert_parallel.fused.layout import Grain, Layout

Reference = Any
"""A reference to memory inside of a kernel, whole or in part."""
Copy = Any
"""A copy that was made ready: to be started, and waited for."""
Scalar = jax.Array | int
"""A number inside of a kernel."""


@attrs.frozen
class Exchange:
    """The references of one exchange, inside of a kernel.

    Attributes:
        axis: the shards that exchange.
        grain: what places are multiples of.
        layout: where chunks lie; references to scalar memory.
        outgoing: rows at home, to be sent.
        incoming: rows that arrive, at the experts' shard.
        results: rows to be returned, laid out like ``incoming``.
        returned: rows that came back, laid out like ``outgoing``.
        sent: counts the bytes that left ``outgoing``.
        replied: counts the bytes that left ``results``.
        answered: counts the bytes that arrived in ``returned``.
        arrived: for each chunk of ``incoming``, the bytes that arrived.
    """

    axis: ExpertAxis
    grain: Grain
    layout: Layout
    outgoing: Reference
    incoming: Reference
    results: Reference
    returned: Reference
    sent: Reference
    replied: Reference
    answered: Reference
    arrived: Reference

    @property
    def shards(self) -> int:
        """Members of the axis."""
        return self.axis.size

    @property
    def local_experts(self) -> int:
        """Experts of this shard."""
        return self.layout.received.shape[0] // self.axis.size

    def rows(self, ref: Reference, start: Scalar, count: Scalar) -> Reference:
        """A part of a buffer that begins and ends at multiples of a chunk."""
        return ref.at[pl.ds(pl.multiple_of(start, self.grain.chunk), pl.multiple_of(count, self.grain.chunk))]

    def neighbour(self, distance: Scalar) -> Scalar:
        """The shard so far ahead around the ring (behind, when negative)."""
        return jax.lax.rem(self.axis.index() + distance + self.shards, self.shards)


SCRATCH = (pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA)
"""The semaphores of an exchange beside ``arrived``."""


def enter(x: Exchange) -> None:
    """Wait until all shards are in this kernel: before that, their buffers may belong to something else."""
    if x.shards == 1:
        return
    barrier = pltpu.get_barrier_semaphore()
    for distance in range(x.shards):
        pl.semaphore_signal(barrier, 1, device_id={x.axis.name: x.neighbour(distance)})
    pl.semaphore_wait(barrier, x.shards)


def send(x: Exchange) -> None:
    """Start all chunks on their way: the first expert of every shard first, the nearest shard first."""

    def start(index, _):
        expert, distance = jax.lax.div(index, x.shards), jax.lax.rem(index, x.shards)
        receiver = x.neighbour(distance)
        number = receiver * x.local_experts + expert
        count = x.layout.sent[number]

        @pl.when(count > 0)
        def _():
            source = x.rows(x.outgoing, x.layout.home[number], count)
            target = x.rows(x.incoming, x.layout.away[number], count)
            _start(x, source, target, x.sent, x.arrived.at[expert * x.shards + distance], receiver)

        return 0

    jax.lax.fori_loop(0, x.local_experts * x.shards, start, 0)


def gate(x: Exchange, tile: Scalar) -> None:
    """Wait for the chunks that begin in a tile; those that began in an earlier one were waited for there."""

    def wait(chunk, start, count):
        @pl.when(jax.lax.div(start, x.grain.tile) == tile)
        def _():
            _wait(x.rows(x.incoming, start, count), x.arrived.at[chunk])

    _each_received(x, x.layout.tile_expert[tile], wait)


def reply(x: Exchange, tile: Scalar) -> None:
    """Send the chunks that end in a tile back to where they came from, once the tile's results are in memory."""

    def start(chunk, place, count):
        @pl.when(jax.lax.div(place + count - 1, x.grain.tile) == tile)
        def _():
            source = x.rows(x.results, place, count)
            target = x.rows(x.returned, x.layout.origin[chunk], count)
            _start(x, source, target, x.replied, x.answered, x.neighbour(-jax.lax.rem(chunk, x.shards)))

    _each_received(x, x.layout.tile_expert[tile], start)


def await_sends(x: Exchange) -> None:
    """Wait until all that this shard sent has left its buffers."""
    if x.shards == 1:
        return
    _each_sent(x, lambda start, count: _wait(x.rows(x.outgoing, start, count), x.sent))

    def of_expert(expert, _):
        _each_received(x, expert, lambda chunk, start, count: _wait(x.rows(x.results, start, count), x.replied))
        return 0

    jax.lax.fori_loop(0, x.local_experts, of_expert, 0)


def await_answers(x: Exchange) -> None:
    """Wait until all results are home."""
    _each_sent(x, lambda start, count: _wait(x.rows(x.returned, start, count), x.answered))


def _start(x: Exchange, source, target, leaving, arriving, shard) -> None:
    if x.shards == 1:
        pltpu.make_async_copy(source, target, arriving).start()
    else:
        pltpu.make_async_remote_copy(source, target, leaving, arriving, device_id={x.axis.name: shard}).start()


def _wait(rows: Reference, semaphore: Reference) -> None:
    """Wait until as many bytes as these rows have were counted, and take them off the count."""
    pltpu.make_async_copy(rows, rows, semaphore).wait()


def _each_received(x: Exchange, expert, act) -> None:
    """``act(chunk, start, count)`` for each chunk of an expert that has rows."""

    def chunk(distance, _):
        index = expert * x.shards + distance
        count = x.layout.received[index]
        pl.when(count > 0)(lambda: act(index, x.layout.place[index], count))
        return 0

    jax.lax.fori_loop(0, x.shards, chunk, 0)


def _each_sent(x: Exchange, act) -> None:
    """``act(start, count)`` for each chunk at home that has rows."""

    def chunk(expert, _):
        count = x.layout.sent[expert]
        pl.when(count > 0)(lambda: act(x.layout.home[expert], count))
        return 0

    jax.lax.fori_loop(0, x.local_experts * x.shards, chunk, 0)
