"""One of two processes with two devices each, which hold one training state between them and save it.

``python two_processes.py rank port folder way``: see `WAYS`.
"""

import contextlib
import os
import sys
import time
import zlib
from pathlib import Path

import jax
import numpy as np
from tiny_models import ADAMW, ROUTED, SHORT

from marin_models.checkpoints import Checkpoints, arrays, folder
from marin_models.mesh import make_mesh
from marin_models.training.state import initial_state
from marin_models.training.step import Run

RUN = {"seed": 1}


def described(mesh=None):
    """Shapes, dtypes and, on a mesh, shardings of the state of a training."""
    hyperparameters = Run.of(ADAMW, SHORT).hyperparameters
    with contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh):
        like = jax.eval_shape(lambda: initial_state(0, hyperparameters, config=ROUTED, rule=ADAMW.rule, averaged=True))
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=placed(leaf, mesh)), like)


def placed(leaf, mesh):
    if mesh is None:
        return None
    return jax.NamedSharding(mesh, jax.P() if leaf.sharding is None else leaf.sharding.spec)


def numbers(name, shape, dtype, step):
    """What an array of this name holds after so many steps."""
    random = np.random.default_rng(zlib.crc32(name.encode()) + step)
    return (100 * random.random(shape)).astype(dtype)


def state(mesh, step):
    """A state on a mesh of both processes, each of which makes its own parts."""
    like = described(mesh)

    def made(name, leaf):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.jit(lambda: jax.random.key(step), out_shardings=leaf.sharding)()
        whole = numbers(name, leaf.shape, leaf.dtype, step)
        return jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index: whole[index])

    leaves, structure = jax.tree.flatten(like)
    return structure.unflatten(made(name, leaf) for name, leaf in zip(arrays.named_arrays(like), leaves, strict=True))


def check(found, step):
    """Every part that this process holds is that of `state`, bit for bit."""
    for name, array in arrays.named_arrays(found).items():
        for shard in array.addressable_shards:
            part = np.asarray(shard.data)
            if name == "key":
                np.testing.assert_array_equal(part, jax.random.key_data(jax.random.key(step)))
            else:
                np.testing.assert_array_equal(part, numbers(name, array.shape, array.dtype, step)[shard.index], name)


def save_and_restore(place, rank):
    """Save twice, and restore the last one onto another mesh at once; the first process takes its time."""
    seal = folder.seal

    def seal_slowly(*arguments, **named):
        time.sleep(1)
        return seal(*arguments, **named)

    folder.seal = seal_slowly
    checkpoints = Checkpoints(place)
    mesh = make_mesh(data=2, expert=2)
    for step in (2, 3):
        checkpoints.save(step, state(mesh, step), {"loss": np.arange(step, dtype=np.float32)}, run=RUN)
    found = checkpoints.restore(described(make_mesh(data=4)), run=RUN)
    assert found.step == 3
    np.testing.assert_array_equal(found.records["loss"], np.arange(3, dtype=np.float32))
    check(found.state, 3)
    checkpoints.save(4, state(mesh, 4), run=RUN)
    checkpoints.close()
    assert checkpoints.steps() == (3, 4)
    assert (len(checkpoints.written) == 3) == (rank == 0), "the first process completes checkpoints"


def die(*_, **__):
    os._exit(9)


def die_before_parts_are_written(place, rank):
    """The second process dies before its parts of step 5 are on the disk."""
    if rank == 1:
        folder.write_parts = die
    Checkpoints(place).save(5, state(make_mesh(data=4), 5), run=RUN)


def die_before_it_is_complete(place, rank):
    """The first process dies when all parts of step 5 are on the disk, and nothing says that it is complete."""
    folder.seal = die
    Checkpoints(place).save(5, state(make_mesh(data=4), 5), run=RUN)


def fail_to_complete_it(place, rank):
    """The first process meets a full disk when all parts of step 5 are there; both look until they are told."""
    folder.seal = full
    checkpoints = Checkpoints(place, every_seconds=0.0)
    checkpoints.save(5, state(make_mesh(data=4), 5), run=RUN)
    try:
        while not checkpoints.due(6):
            time.sleep(0.01)
    except OSError as error:
        print(f"{rank} raised {error}")


def full(*_, **__):
    raise OSError(28, "No space left on device")


WAYS = {
    way.__name__: way
    for way in (save_and_restore, fail_to_complete_it, die_before_parts_are_written, die_before_it_is_complete)
}

if __name__ == "__main__":
    rank, port, place, way = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank, coordinator_bind_address=f"127.0.0.1:{port}")
    assert (jax.process_count(), jax.device_count()) == (2, 4)
    WAYS[way](place, rank)
    print(f"{rank} did {way}", flush=True)
