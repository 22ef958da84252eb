"""Those who run a call, as one who waits for them sees them: what is heard from each, until each has come to an end."""

from __future__ import annotations

import multiprocessing.connection
import time
from collections.abc import Generator, Sequence
from typing import Any, Protocol

from marin_dsl.worker.context import Cancelled, Gang
from marin_dsl.worker.performance import Cancellation, Performance
from marin_dsl.worker.task import Task

_LOOK = 0.1  # seconds between looks at the memory of a process, and at whether the run was cancelled


class Member(Protocol):
    """A process that runs a call, here or on another worker.

    Attributes:
        task: the call.
        peak: bytes of memory that it was seen to have.
    """

    task: Task
    peak: int

    @property
    def deadline(self) -> float:
        """When it is given up, on the monotonic clock."""
        ...

    def begin(self, pickled: bytes, gang: Gang) -> None:
        """Hand the call over."""
        ...

    def measure(self) -> None:
        """See how much memory it has had so far."""
        ...

    def sources(self) -> list[Any]:
        """Where something may be heard: what `multiprocessing.connection.wait` takes."""
        ...

    def heard(self, source: Any) -> Performance | None:
        """Take what came from one of the sources; what came of the call when that is known now.

        Raises:
            StoreUnavailable: it cannot read or write the store.
            Cancelled: it has seen that the run was cancelled.
        """
        ...

    def timed_out(self) -> Performance:
        """Give it up."""
        ...

    def stop(self) -> None:
        """Let it do nothing more, and stay."""
        ...

    def kill(self) -> None:
        """End it."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until it is gone, for so long at most."""
        ...

    def lines(self) -> tuple[str, ...]:
        """The last lines of what it printed and logged so far."""
        ...

    def leave(self) -> None:
        """Let it end by itself for a while, and forget it."""
        ...


Ended = list[tuple[Member, Performance]]


def answers(members: Sequence[Member]) -> Generator[Ended]:
    """Who has come to an end, and to which, at each look; whoever stops looking has the others killed.

    Raises:
        StoreUnavailable: the store cannot be read or written.
        Cancelled: the run was cancelled meanwhile; the processes are gone.
    """
    waiting = list(members)
    cancellation = Cancellation(waiting[0].task.store, waiting[0].task.run)
    try:
        while waiting:
            ended = _look(waiting)
            for member, _ in ended:
                waiting.remove(member)
            yield ended
            if waiting and cancellation.asked():
                raise Cancelled("the run was cancelled")
    finally:
        for member in waiting:
            member.kill()


def _look(waiting: Sequence[Member]) -> Ended:
    """Who has come to an end within a moment."""
    for member in waiting:
        member.measure()
    left = min(each.deadline for each in waiting) - time.monotonic()
    by_source = {source: each for each in waiting for source in each.sources()}
    found: dict[Member, Performance] = {}
    for source in multiprocessing.connection.wait(list(by_source), max(0.0, min(_LOOK, left))):
        member = by_source[source]
        performance = member.heard(source) if member not in found else None
        if performance is not None:
            found[member] = performance
    for member in waiting:
        if member not in found and member.deadline <= time.monotonic():
            found[member] = member.timed_out()
    return list(found.items())
