"""Operators that several processes run together; importable, as a user's are."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from marin_dsl import context, op


@op(version="1", hosts=2)
def psum(shares: list[float]) -> dict[str, Any]:
    """The sum of what each member has, by a collective of jax over a mesh of all members."""
    gang = context().gang
    gang.initialize()
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((gang.size,), ("hosts",), devices=np.array(jax.devices()[: gang.size]))
    mine = np.asarray([shares[gang.rank]], np.float32)
    everything = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("hosts")), mine)
    summed = jax.shard_map(
        lambda share: jax.lax.psum(share, "hosts"),
        mesh=mesh,
        in_specs=PartitionSpec("hosts"),
        out_specs=PartitionSpec(),
    )
    total = float(jax.jit(summed)(everything).addressable_data(0)[0])
    return {"total": total, "processes": jax.process_count(), "rank": jax.process_index(), "here": len(mine)}


@op(version="1", hosts=2)
def gang(way: str, place: str) -> Any:
    """Each member says who it is, and does what `way` says."""
    mine = context().gang
    Path(place, f"pid-{mine.rank}").write_text(str(os.getpid()))
    with Path(place, "starts").open("a") as stream:
        stream.write(f"{mine.rank}\n")
    print(f"printed by {mine.rank}")
    return WAYS[way](mine.rank, Path(place))


@op(version="1", hosts=2)
def telling(token: str, way: str) -> str:
    rank = context().gang.rank
    print("printing", token)
    context().log(f"logging {token}")
    context().progress(1, 2, token=token)
    context().observe("rank", rank)
    if way == "die" and rank == 1:
        os.write(2, token.encode())
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "raise" and rank == 1:
        raise ValueError(f"not {token}")
    return token if way == "return" else "used it"


def together(place: Path, name: str, size: int = 2) -> None:
    """Wait until all members are here."""
    Path(place, f"{name}-{context().gang.rank}").touch()
    while len(list(place.glob(f"{name}-*"))) < size:
        time.sleep(0.01)


def only(rank_of_it: int, deed: Any) -> Any:
    """One member does it when all have begun; the others would go on for ever."""

    def way(rank: int, place: Path) -> Any:
        together(place, "begun")
        if rank == rank_of_it:
            return deed()
        time.sleep(600)

    return way


def describe(rank: int, place: Path) -> Any:
    mine = context().gang
    host, _, port = (mine.coordinator or "").partition(":")
    Path(place, f"address-{rank}").write_text(mine.coordinator or "")
    together(place, "begun")
    shown = [host, port.isdigit(), len({path.read_text() for path in place.glob("address-*")})]
    return [mine.rank, mine.size, *shown, mine.scratch == Path(mine.scratch), sorted({*sys.modules} & {"jax"})]


def resuming(rank: int, place: Path) -> Any:
    """Dies at its first two attempts, each time a little further on."""
    shared = context().gang.scratch
    (context().scratch / "private").touch()
    assert len(list(context().scratch.iterdir())) == 1
    seen = sorted(path.name for path in shared.iterdir())
    attempt = context().gang.coordinator.rpartition(":")[2]  # what earlier ones left in `place` holds nobody up
    together(place, f"begun-{attempt}")
    if len(seen) < 4:
        (shared / f"step-{len(seen) // 2}-{rank}").touch()
        together(place, f"written-{attempt}")
        if rank == 1:
            os._exit(7)
        time.sleep(600)
    return seen


def lost_collective(rank: int, place: Path) -> None:
    """One member complains that it misses the other one before anybody has heard that that one died."""
    together(place, "begun")
    if rank == 0:
        (place / "complaining").touch()
        raise ConnectionResetError("closed by peer")
    while not (place / "complaining").exists():
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


WAYS: dict[str, Any] = {
    "describe": describe,
    "resume": resuming,
    "exit": only(1, lambda: os._exit(7)),
    "kill": only(0, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "raise": only(1, lambda: 1 / 0),
    "refused": only(1, Path("/nowhere/at/all").read_text),
    "hang": lambda rank, place: time.sleep(600),
    "hang once": only(1, lambda: time.sleep(600)),
    "first returns": lambda rank, place: rank if rank == 0 else 1 / 0,
    "second returns junk": lambda rank, place: "kept" if rank == 0 else sys.stdout,
    "lost collective": lost_collective,
    "look": lambda rank, place: sorted(path.name for path in context().gang.scratch.iterdir()),
    "rank": lambda rank, place: [rank, context().gang.size],
}


@op(version="1", hosts=2)
def meeting(name: str, place: str) -> list[int]:
    """Each member says which worker started it, and waits for the other one and for a moment."""
    Path(place, f"{name}-worker-{context().gang.rank}").write_text(str(os.getppid()))
    together(Path(place), f"{name}-begun", context().gang.size)
    time.sleep(0.3)
    return sorted(int(path.read_text()) for path in Path(place).glob(f"{name}-worker-*"))


@op(version="1", hosts=2)
def losing_a_worker(rank_of_it: int, place: str) -> str:
    """At the first attempt the worker of a member is killed, from inside of it."""
    mine = context().gang
    seen = Path(place, "seen")
    if seen.exists():
        return "second attempt"
    together(Path(place), "begun")
    if mine.rank == rank_of_it:
        seen.touch()
        os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)
    return "never"


@op(version="1")
def busy(place: str, name: str) -> str:
    """An ordinary call that takes its worker's only thread until it may end."""
    Path(place, f"busy-{name}").touch()
    while not Path(place, f"end-{name}").exists():
        time.sleep(0.01)
    return name
