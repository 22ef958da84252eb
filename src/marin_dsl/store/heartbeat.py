"""Holding leases while work goes on: one thread of a process shows for all of them that their owner lives."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

import attrs

from marin_dsl.store.files import Files
from marin_dsl.store.leases import Lease, Sighting, acquire
from marin_dsl.store.owner import Owner

SHORT = 0.05
"""Seconds: work that lasted less when it was last done is expected to be short again, and starts without a lease."""

_SOON = 1.0  # seconds after which work without a lease was not short after all
_BEATS = 4  # signs of life in the time after which a lease counts as abandoned
_IDLE = 5  # looks at nothing after which the thread ends
_REMEMBERED = 10_000  # kinds of work


@attrs.define(eq=False)
class Holding:
    """One piece of work, with its lease if it has one by now.

    Attributes:
        take: gets the lease; called when the work turns out not to be short.
        every: seconds between two signs of life.
        due: when the next thing is to be done for it, on the clock of the heartbeat.
        lease: the lease; None for work that is expected to be short.
        began: when the work began, on the clock of the heartbeat.
    """

    take: Callable[[], Lease | Sighting]
    every: float
    due: float
    lease: Lease | None = None
    began: float = 0.0
    _closed: bool = attrs.field(default=False, init=False)
    _busy: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def beat(self) -> None:
        """Take the lease or refresh it; trouble with the store costs the lease at most, never the work."""
        # Whatever a file system raises: a lease is worth no piece of work, and other leases need this thread.
        with self._busy:
            if not self._closed:
                with contextlib.suppress(Exception):
                    self._beat()
        if self._closed:
            self._give_back()

    def _beat(self) -> None:
        if self.lease is not None:
            self.lease.refresh()
            return
        found = self.take()
        if isinstance(found, Lease):
            self.lease = found

    def close(self) -> None:
        """The work is over: give the lease back, without waiting for a heartbeat that hangs in the file system."""
        self._closed = True
        self._give_back()

    def _give_back(self) -> None:
        if not self._busy.acquire(blocking=False):
            return  # whoever is at it sees afterwards that the work is over
        try:
            lease, self.lease = self.lease, None
            if lease is not None:
                with contextlib.suppress(Exception):
                    lease.release()
        finally:
            self._busy.release()


class Held:
    """A block in which work is done; a class, since a generator would take longer than many of the calls in it."""

    __slots__ = ("_heartbeat", "_holding", "_kind")

    def __init__(self, heartbeat: Heartbeat, holding: Holding, kind: bytes | None) -> None:
        self._heartbeat, self._holding, self._kind = heartbeat, holding, kind

    def __enter__(self) -> Holding | Sighting:
        if self._kind is None:
            return self._holding
        elsewhere = self._heartbeat.begin(self._holding, self._kind)
        if elsewhere is None:
            return self._holding
        self._kind = None  # nothing has begun here that would end
        return elsewhere

    def __exit__(self, *_: object) -> None:
        if self._kind is not None:
            self._heartbeat.end(self._holding, self._kind)


class Heartbeat:
    """Keeps the leases of a process alive, in one thread that runs while there are any.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything, as in a process that was forked: what its parent holds is not its own."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._held: set[Holding] = set()
        self._lasted: dict[bytes, float] = {}
        self._thread: threading.Thread | None = None
        self._wakes = float("inf")

    def held(
        self, files: Files, call: bytes, run: str, *, seconds: float, kind: bytes, abandoned: Sighting | None = None
    ) -> Held:
        """Hold the lease of a call while the block runs, if nobody else does.

        Work of a kind that was short so far gets its lease only after a second.

        Args:
            files: the files of the store.
            call: the call key.
            run: the run for which this process works.
            seconds: after how long without a sign of life others take over; 0 for no lease at all.
            kind: what kind of work it is: the identity of the operator.
            abandoned: a lease that was watched for long enough to take over.

        Returns:
            The block; it gives what is held here, when the work is to be done here, else the lease of somebody else
            who does it.
        """
        holding = Holding(
            lambda: acquire(files, call, Owner.here(run), abandoned=abandoned),
            every=seconds / _BEATS,
            due=self._clock() + _SOON,
        )
        return Held(self, holding, kind if seconds > 0 else None)

    def begin(self, holding: Holding, kind: bytes) -> Sighting | None:
        """Work begins, unless somebody else does it, whose lease is returned then."""
        if self._lasted.get(kind, SHORT) >= SHORT:
            found = self._taken(holding)
            if isinstance(found, Sighting):
                return found
        holding.began = self._clock()
        self._add(holding)
        return None

    def end(self, holding: Holding, kind: bytes) -> None:
        """Work that has begun is over."""
        self._remove(holding)
        self._remember(kind, self._clock() - holding.began)

    def _taken(self, holding: Holding) -> Sighting | None:
        """Take the lease now; None when it is taken, or cannot be because of the store."""
        try:
            found = holding.take()
        except Exception:
            return None  # if the store is really gone, the work itself will say so
        if isinstance(found, Sighting):
            return found
        holding.lease, holding.due = found, self._clock() + holding.every
        return None

    def _remember(self, kind: bytes, seconds: float) -> None:
        while len(self._lasted) >= _REMEMBERED and kind not in self._lasted:
            with contextlib.suppress(KeyError, StopIteration, RuntimeError):  # other threads do the same
                del self._lasted[next(iter(self._lasted))]
        # One kind of work may be short and long by turns: what was long is believed to be short only after a while.
        self._lasted[kind] = max(seconds, self._lasted.get(kind, 0.0) / 2)

    def _add(self, holding: Holding) -> None:
        with self._lock:
            self._held.add(holding)
            if self._thread is None:
                self._thread = self._start()
            elif holding.due < self._wakes:
                self._changed.notify()

    def _remove(self, holding: Holding) -> None:
        with self._lock:
            self._held.discard(holding)
        holding.close()

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="marin-leases", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        idle = 0
        while True:
            idle = 0 if self.beat() else idle + 1
            with self._changed:
                if idle >= _IDLE and not self._held:
                    self._thread = None
                    return
                soonest = min((holding.due for holding in self._held), default=float("inf"))
                # Short work comes and goes; a thread that looks once a second need not be woken for each.
                self._wakes = min(soonest, self._clock() + _SOON)
                self._changed.wait(max(0.0, self._wakes - self._clock()))

    def beat(self) -> int:
        """Do what is due for each piece of work; how many there are."""
        now = self._clock()
        with self._changed:
            held = list(self._held)
        for holding in held:
            if holding.due <= now:
                holding.due = now + holding.every
                holding.beat()
        return len(held)


HEARTBEAT = Heartbeat()
"""The one of this process: a thread for each store, or each evaluation, would only cost more."""

os.register_at_fork(after_in_child=HEARTBEAT.reset)
