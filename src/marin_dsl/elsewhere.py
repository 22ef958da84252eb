"""Calls that somebody else is working on: the driver watches their leases, and no worker waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from marin_dsl.store import Store, StoreUnavailable
from marin_dsl.store.leases import LOOKS, Sighting, Watch, free, look

_SOONEST = 0.05  # seconds between two looks at first
_SHARE = 0.25  # later, as a share of the time waited so far: what is done elsewhere is noticed that much late at most


@attrs.define(eq=False)
class _Waiting:
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

    def add(self, call: bytes, seen: Sighting) -> None:
        """A worker found that somebody else is working on a call."""
        now = self._clock()
        watch = Watch(self._seconds, self._clock)
        watch.abandoned(seen)
        self._waiting[call] = _Waiting(watch, now, now + min(_SOONEST, self._longest))

    def asked_again(self) -> list[tuple[bytes, Sighting | None]]:
        """Calls that are to be handed to a worker again, each with the lease that it is to take over, if any."""
        now = self._clock()
        found: list[tuple[bytes, Sighting | None]] = []
        for call, waiting in list(self._waiting.items()):
            if waiting.next_look > now:
                continue
            waiting.next_look = now + min(max(_SOONEST, (now - waiting.since) * _SHARE), self._longest)
            try:
                seen = look(self._store.files, call)
            except StoreUnavailable:
                continue  # a look that fails says nothing; if the store stays away, the workers say so
            if seen is None or free(seen, self._run):
                found.append((call, None))
            elif waiting.watch.abandoned(seen):
                found.append((call, seen))
        for call, _ in found:
            del self._waiting[call]
        return found

    def patience(self, most: float) -> float:
        """Seconds until the next look, and at most so many."""
        soonest = min((waiting.next_look for waiting in self._waiting.values()), default=float("inf"))
        return max(0.0, min(most, soonest - self._clock()))

    @property
    def _longest(self) -> float:
        return self._seconds / (LOOKS + 1)
