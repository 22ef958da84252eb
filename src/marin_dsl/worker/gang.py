"""Running a call in several fresh processes together: they meet, they have one outcome, and they end together."""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import attrs

from marin_dsl.worker.context import KEPT_LINES, Context, Gang
from marin_dsl.worker.isolation import Conversation, own_scratch, packed_for_processes, ready
from marin_dsl.worker.kept import kept_folder
from marin_dsl.worker.member import Member, answers
from marin_dsl.worker.performance import Performance, described, performed
from marin_dsl.worker.redaction import Redaction
from marin_dsl.worker.task import CannotRun, Emit, Task

_MOMENT = 0.5  # seconds in which it shows whether one that raises does so because another one has died
_DYING = 5.0  # seconds that members who were killed may take to be gone


class Others(Protocol):
    """The members of a gang that other workers run: all but rank 0.

    Attributes:
        host: the address of this machine, as those workers reach it.
    """

    host: str

    def gathered(self, task: Task, emit: Emit) -> Sequence[Member]:
        """The members from rank 1 on, when all are there.

        Raises:
            Cancelled: the run was cancelled before.
        """
        ...


def perform_gang(
    task: Task, emit: Emit, redaction: Redaction, *, scratch_root: Path | None, others: Others | None = None
) -> Performance:
    """Run the operator of a task in as many fresh processes as its annotations say.

    What rank 0 returns and observes is what comes of it. The first member that fails ends all, and its failure is
    that of the gang.

    Args:
        task: the call; its timeout is enforced by killing the processes.
        emit: is given the events of the members; progress is that of rank 0.
        redaction: is told the secrets among the arguments.
        scratch_root: where scratch folders of this call lie; None for among the temporary files.
        others: the members that other workers run; None to run all of them on this machine.

    Raises:
        StoreUnavailable: the store cannot be read or written.
        Cancelled: the run was cancelled meanwhile; the processes are gone.
    """
    size = task.annotations.hosts
    try:
        pickled = packed_for_processes(task, f"hosts={size}", "processes of its own")
    except CannotRun as error:
        return performed(Context(task.call), failure=described("lost", error, perform_gang))
    members: list[Member] = []
    with kept_folder(scratch_root) as shared:
        try:
            away = [] if others is None else others.gathered(task, emit)
            for rank in range(size - len(away)):  # all start to start before one is waited for
                told = told_by(emit, rank)
                members.append(Conversation(task, ready().take(), told, redaction, own_scratch(scratch_root)))
            members += away
            coordinator = _address("127.0.0.1" if others is None else others.host)
            folder = shared if others is None or scratch_root is not None else None
            for rank, member in enumerate(members):
                member.begin(pickled, Gang(rank, size, coordinator, shared if rank == 0 else folder))
            return _outcome(members)
        finally:
            for member in members:
                member.leave()


def told_by(emit: Emit, rank: int) -> Emit:
    """Tells the events of one member: who logs something is said, and how far the work is, rank 0 says."""

    def tell(event: dict[str, object]) -> None:
        if event["event"] == "log":
            emit({**event, "content": f"[rank {rank}] {event['content']}"})
        elif rank == 0:
            emit(event)

    return tell


def _address(host: str) -> str:
    """An address at which nobody listens: on the loopback interface nobody but this machine's processes reaches it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as found:
        found.bind((host, 0))
        return f"[{host}]:{found.getsockname()[1]}" if ":" in host else f"{host}:{found.getsockname()[1]}"


def _outcome(members: Sequence[Member]) -> Performance:
    """What the members come to; when one fails, the others are killed, and gone unless the kernel holds them."""
    found = _fates(members)
    failed = _failed_first(found)
    decisive = failed or 0
    failure = found[decisive].failure
    if failure is not None:
        failure = {**failure, "message": f"rank {decisive} of {len(members)}: {failure['message']}"}
        _end(members)
    peak = max(found[rank].peak_memory if rank in found else member.peak for rank, member in enumerate(members))
    return attrs.evolve(found[decisive], failure=failure, lines=_lines(members, decisive), peak_memory=peak)


def _fates(members: Sequence[Member]) -> dict[int, Performance]:
    """What became of all members, by rank, or of those that ended until the first failure was understood."""
    ranks = {member: rank for rank, member in enumerate(members)}
    found: dict[int, Performance] = {}
    understood = math.inf
    with contextlib.closing(answers(members)) as looks:
        for ended in looks:
            for member, performance in ended:
                found[ranks[member]] = performance
                if kind_of(performance) == "raised":
                    # Should it end, others may die of that. Stopped, it leaves alive who is not dead already.
                    member.stop()
                    understood = min(understood, time.monotonic() + _MOMENT)
                elif performance.failure is not None:
                    understood = 0.0
            if time.monotonic() >= understood:
                break
    return found


def _failed_first(found: dict[int, Performance]) -> int | None:
    """The rank that failed first, if one did; others raise when they miss one that died, and may be heard before."""
    failed = [rank for rank, performance in found.items() if performance.failure is not None]
    return min(failed, key=lambda rank: kind_of(found[rank]) == "raised", default=None)


def kind_of(performance: Performance) -> str | None:
    """How it failed; None when it did not."""
    return performance.failure["kind"] if performance.failure is not None else None


def _end(members: Sequence[Member]) -> None:
    """Kill all: what they still write in the folder of the gang must not meet what the next attempt writes there."""
    for member in members:
        member.kill()
    deadline = time.monotonic() + _DYING
    for member in members:
        member.wait(max(0.0, deadline - time.monotonic()))


def _lines(members: Sequence[Member], decisive: int) -> tuple[str, ...]:
    """The last lines of each member; all that are kept of the one that matters, and a share of the others."""
    share = max(1, KEPT_LINES // len(members))
    kept = [member.lines()[-(KEPT_LINES if rank == decisive else share) :] for rank, member in enumerate(members)]
    return tuple(f"[rank {rank}] {line}" for rank, lines in enumerate(kept) for line in lines)
