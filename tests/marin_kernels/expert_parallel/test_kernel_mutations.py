"""A kernel that is wrong on purpose is caught: by NaN, by the race detector, or by what semaphores are left with.

Each mutation names a mode of copies in which it must be caught; the kernel as it is passes in both.
"""

import time
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interpreted import complaints, interpreted, uneven
from routed_cases import mesh_of, run
from simulated_devices import on_devices

from marin_kernels.expert_parallel import moe
from marin_kernels.expert_parallel.fused import exchange, pipeline, transport

CHUNK = 8


def moved(**shifts):
    """`lay_out` that places chunks elsewhere, by so many rows towards the beginning."""
    true = transport.lay_out

    def lay_out(*arguments):
        layout = true(*arguments)
        return layout._replace(**{name: jnp.maximum(getattr(layout, name) - by, 0) for name, by in shifts.items()})

    return mock.patch.object(transport, "lay_out", lay_out)


def nothing(*_):
    """What is done in the place of a part that is left out."""


def left_out(module, name):
    return mock.patch.object(module, name, nothing)


def first_buffer(_):
    return jnp.int32(0)  # made here: a kernel takes no array from outside


def always_the_first(name):
    return mock.patch.object(pipeline, name, first_buffer)


def late_first_shard():
    """The first shard enters the kernel after all others have begun to send."""
    true = transport.lay_out

    def sleep(shard, counts):
        time.sleep(2.0 if shard == 0 else 0.0)
        return counts

    def lay_out(kept, shard, extent, grain):
        layout = true(kept, shard, extent, grain)
        shape = jax.ShapeDtypeStruct(layout.sent.shape, layout.sent.dtype)
        return layout._replace(sent=jax.pure_callback(sleep, shape, shard, layout.sent))

    return mock.patch.object(transport, "lay_out", lay_out)


MUTATIONS = {
    "the kernel as it is": [],
    "a late shard is waited for": [late_first_shard],
    "no arrival gate": [lambda: left_out(exchange, "gate")],
    "destinations overlap": [lambda: moved(away=CHUNK)],
    "no barrier": [late_first_shard, lambda: left_out(exchange, "enter")],
    "destinations overlap at home": [lambda: moved(origin=CHUNK)],
    "one buffer in the place of two": [lambda: always_the_first("turn"), lambda: always_the_first("other")],
    "copies are not waited for": [lambda: left_out(pipeline, "wait")],
    "results leave before they are stored": [
        lambda: mock.patch.object(pipeline, "flush", lambda pipe, tile: exchange.reply(pipe.exchange, tile))
    ],
    "sends are not waited for": [lambda: left_out(exchange, "await_sends")],
    "answers are not waited for": [lambda: left_out(exchange, "await_answers")],
}


def fault(mutation: str, mode: str) -> str | None:
    """How a mutation was caught in a mode; None: not at all."""
    case, mesh = uneven(shards=2, padded=3, inner=128), mesh_of(expert=2)
    expected = run(case, mesh, implementation="reference")[0]
    jax.clear_caches()
    patches = [patch() for patch in MUTATIONS[mutation]]
    try:
        for patch in patches:
            patch.start()
        with interpreted(mode) as told, jax.set_mesh(mesh):
            result = np.asarray(jax.jit(lambda *case: moe(*case, implementation="fused_tpu")[0])(*case))
    except Exception as error:  # the interpreter raises what it finds in the middle of a callback
        return f"raised {error}"
    finally:
        for patch in reversed(patches):
            patch.stop()
        jax.clear_caches()
    if complaints(told):
        return complaints(told)[0]
    return None if np.abs(result - expected).max() < 1e-4 else "numbers differ"


@pytest.mark.parametrize(
    ("mutation", "mode", "way"),
    [
        ("no arrival gate", "on_wait", "numbers differ"),
        ("destinations overlap", "eager", "RACE"),
        ("no barrier", "eager", "KeyError"),
    ],
)
@on_devices(4, NPROC="32")
def test_a_wrong_exchange_is_caught(mutation, mode, way):
    found = fault(mutation, mode)
    assert found is not None
    assert way in found


@pytest.mark.long
@pytest.mark.parametrize("mutation", list(MUTATIONS)[2:])
@on_devices(4, NPROC="32")
def test_every_mutation_is_caught_in_at_least_one_mode(mutation):
    assert any(fault(mutation, mode) for mode in ("on_wait", "eager"))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["on_wait", "eager"])
@pytest.mark.parametrize("mutation", list(MUTATIONS)[:2])
@on_devices(4, NPROC="32")
def test_a_right_kernel_is_not_blamed(mutation, mode):
    assert fault(mutation, mode) is None
