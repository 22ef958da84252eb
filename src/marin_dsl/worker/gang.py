"""Running a call in several fresh processes together: they meet, they have one outcome, and they end together."""

from __future__ import annotations

import contextlib
import math
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from marin_dsl.worker.context import KEPT_LINES, Context, Gang
from marin_dsl.worker.isolation import Conversation, answers, own_scratch, packed_for_processes, ready
from marin_dsl.worker.kept import kept_folder
from marin_dsl.worker.performance import Performance, described, performed
from marin_dsl.worker.redaction import Redaction
from marin_dsl.worker.task import CannotRun, Emit, Task

_MOMENT = 0.5  # seconds in which it shows whether one that raises does so because another one has died
_DYING = 5.0  # seconds that members who were killed may take to be gone


def perform_gang(task: Task, emit: Emit, redaction: Redaction, *, scratch_root: Path | None) -> Performance:
    """Run the operator of a task in as many fresh processes of this machine as its annotations say.

    What rank 0 returns and observes is what comes of it. The first member that fails ends all, and its failure is
    that of the gang.

    Args:
        task: the call; its timeout is enforced by killing the processes.
        emit: is given the events of the members; progress is that of rank 0.
        redaction: is told the secrets among the arguments.
        scratch_root: where scratch folders of this call lie; None for among the temporary files.

    Raises:
        StoreUnavailable: the store cannot be read or written.
        Cancelled: the run was cancelled meanwhile; the processes are gone.
    """
    size = task.annotations.hosts
    try:
        pickled = packed_for_processes(task, f"hosts={size}", "processes of its own")
    except CannotRun as error:
        return performed(Context(task.call), failure=described("lost", error, perform_gang))
    members: list[Conversation] = []
    with kept_folder(scratch_root) as shared:
        try:
            for rank in range(size):  # all start to start before one is waited for
                told = _told(emit, rank)
                members.append(Conversation(task, ready().take(), told, redaction, own_scratch(scratch_root)))
            coordinator = _address()
            for rank, member in enumerate(members):
                member.begin(pickled, Gang(rank, size, coordinator, shared))
            return _outcome(members)
        finally:
            for member in members:
                member.leave()


def _told(emit: Emit, rank: int) -> Emit:
    """Tells the events of one member: who logs something is said, and how far the work is, rank 0 says."""

    def tell(event: dict[str, Any]) -> None:
        if event["event"] == "log":
            emit({**event, "content": f"[rank {rank}] {event['content']}"})
        elif rank == 0:
            emit(event)

    return tell


def _address() -> str:
    """An address at which nobody listens; those who meet there are on this machine, so that nobody else reaches it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def _outcome(members: Sequence[Conversation]) -> Performance:
    """What the members come to; when one fails, the others are killed, and gone unless the kernel holds them."""
    found = _fates(members)
    decisive = _decisive(found) or members[0]
    failure = found[decisive].failure
    if failure is not None:
        failure = {**failure, "message": f"rank {members.index(decisive)} of {len(members)}: {failure['message']}"}
        _end(members)
    peak = max(found[member].peak_memory if member in found else member.peak for member in members)
    return attrs.evolve(found[decisive], failure=failure, lines=_lines(members, decisive), peak_memory=peak)


def _fates(members: Sequence[Conversation]) -> dict[Conversation, Performance]:
    """What became of all members, or of those that ended until the first failure was understood."""
    found: dict[Conversation, Performance] = {}
    understood = math.inf
    with contextlib.closing(answers(members)) as looks:
        for ended in looks:
            for member, performance in ended:
                found[member] = performance
                if _kind(performance) == "raised":
                    # Should it end, others may die of that. Stopped, it leaves alive who is not dead already.
                    member.process.signal(signal.SIGSTOP)
                    understood = min(understood, time.monotonic() + _MOMENT)
                elif performance.failure is not None:
                    understood = 0.0
            if time.monotonic() >= understood:
                break
    return found


def _decisive(found: dict[Conversation, Performance]) -> Conversation | None:
    """The member that failed first, if one did; others raise when they miss one that died, and may be heard before."""
    failed = [member for member, performance in found.items() if performance.failure is not None]
    return min(failed, key=lambda member: _kind(found[member]) == "raised", default=None)


def _kind(performance: Performance) -> str | None:
    return performance.failure["kind"] if performance.failure is not None else None


def _end(members: Sequence[Conversation]) -> None:
    """Kill all: what they still write in the folder of the gang must not meet what the next attempt writes there."""
    for member in members:
        member.process.signal(signal.SIGKILL)
    for member in members:
        with contextlib.suppress(subprocess.TimeoutExpired):
            member.process.popen.wait(_DYING)


def _lines(members: Sequence[Conversation], decisive: Conversation) -> tuple[str, ...]:
    """The last lines of each member; all that are kept of the one that matters, and a share of the others."""
    share = max(1, KEPT_LINES // len(members))
    kept = {member: member.lines()[-(KEPT_LINES if member is decisive else share) :] for member in members}
    return tuple(f"[rank {rank}] {line}" for rank, member in enumerate(members) for line in kept[member])
