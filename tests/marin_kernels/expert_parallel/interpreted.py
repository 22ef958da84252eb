"""TPU kernels in Pallas' interpreter: memory full of NaN, races looked for, and tiles so small that there are many."""

import contextlib
import io
from unittest import mock

import jax.numpy as jnp
from jax._src.dispatch import runtime_tokens
from jax.experimental.pallas import tpu as pltpu
from routed_cases import layer

from marin_kernels.expert_parallel.fused import transport
from marin_kernels.expert_parallel.fused.layout import Grain
from marin_kernels.expert_parallel.fused.tiles import Tiles


@contextlib.contextmanager
def interpreted(mode: str):
    """Interpret TPU kernels; what is yielded is told of races and of semaphores that were left with a count."""
    parameters = pltpu.InterpretParams(detect_races=True, uninitialized_memory="nan", dma_execution_mode=mode)
    told = io.StringIO()
    try:
        with (
            contextlib.redirect_stdout(told),
            pltpu.force_tpu_interpret_mode(parameters),
            mock.patch.object(transport, "choose_tiles", small_tiles),
        ):
            yield told
    except BaseException:
        # What raised leaves memory behind, and tokens of ordered effects that fail whatever comes next.
        pltpu.reset_tpu_interpret_mode_state()
        runtime_tokens.clear()
        raise


def small_tiles(width, inner, dtype):
    return Tiles(Grain(32 // jnp.dtype(dtype).itemsize, 16), min(inner, 128), 1 << 24)


def complaints(told: io.StringIO) -> list[str]:
    """What the interpreter complained of; empty when all is well."""
    return [line for line in told.getvalue().splitlines() if "RACE" in line or "non-zero count" in line]


def uneven(*, shards=4, inner=256, dtype=jnp.float32, padded=8):
    """Eight tokens a shard; chunks of many sizes and of none, no token for the last shard, the last tokens padding."""
    x, _, experts = layer(8 * shards, 128, inner, 2 * shards, dtype=dtype)
    routing = layer(8 * shards, experts=2 * shards - 2, padded=padded, skew=1.0)[1]
    return x, routing, experts
