"""Calls that somebody else is working on: the driver watches their leases, and no worker waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from marin_dsl.store import Store, StoreUnavailable
from marin_dsl.store.leases import LOOKS, Sighting, Watch, free, look
from marin_dsl.worker.task import Task

_SOONEST = 0.05  # seconds between two looks at first
_SHARE = 0.25  # later, as a share of the time waited so far: what is done elsewhere is noticed that much late at most


@attrs.define(eq=False)
class _Waiting:
    task: Task
    watch: Watch
    since: float
    next_look: float


class Elsewhere:
    """The calls of a run that others are working on.

    Args:
        store: the store.
        run: id of the run.
        seconds: after how long without a sign of life a call is taken over.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, store: Store, run: str, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._run, self._seconds, self._clock = store, run, seconds, clock
        self._waiting: dict[bytes, _Waiting] = {}

    def add(self, task: Task, seen: Sighting) -> bool:
        """A worker found that somebody else is working on its call; whether that is news."""
        now = self._clock()
        watch = Watch(self._seconds, self._clock)
        watch.abandoned(seen)
        self._waiting[task.call] = _Waiting(task, watch, now, now + min(_SOONEST, self._longest))
        return task.asked == 0

    def due(self) -> list[Task]:
        """What is to be handed to a worker again: the others are done with it, or a worker is to take it over."""
        now, found = self._clock(), []
        for waiting in self._waiting.values():
            if waiting.next_look > now:
                continue
            waiting.next_look = now + min(max(_SOONEST, (now - waiting.since) * _SHARE), self._longest)
            try:
                seen = look(self._store.files, waiting.task.call)
            except StoreUnavailable:
                continue  # a look that fails says nothing; if the store stays away, the workers say so
            if seen is None or free(seen, self._run):
                found.append(_again(waiting.task, None))
            elif waiting.watch.abandoned(seen):
                found.append(_again(waiting.task, seen))
        for task in found:
            del self._waiting[task.call]
        return found

    def patience(self, most: float) -> float:
        """Seconds until the next look, and at most so many."""
        soonest = min((waiting.next_look for waiting in self._waiting.values()), default=float("inf"))
        return max(0.0, min(most, soonest - self._clock()))

    @property
    def _longest(self) -> float:
        return self._seconds / (LOOKS + 1)


def _again(task: Task, abandoned: Sighting | None) -> Task:
    return attrs.evolve(task, abandoned=abandoned, asked=task.asked + 1)
