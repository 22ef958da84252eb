"""The log of a run's events: written while the run goes on, so that a kill leaves all that had happened before it."""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from marin_dsl.evaluation.events import line_of
from marin_dsl.evaluation.state import State, replay
from marin_dsl.store import Store, StoreUnavailable

_PASSING = frozenset({"tick", "progress"})
"""Events that are for whoever is watching now."""

_LINE_SECONDS = 0.2
"""How long events wait at most where they are appended to a file."""
_SEGMENT_SECONDS = 2.0
"""How long events wait at most, where each write makes a new object."""


class EventLog:
    """Appends events to the log of a run: to a file on a local disk, as numbered segments elsewhere.

    Nothing is written before `begin`. Trouble with the log never stops a run: what is worth stopping for shows where
    results are written.

    Args:
        store: the store of the run.
        run: its id.
    """

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._waiting: list[bytes] = []
        self._begun = self._broken = False
        self._descriptor: int | None = None
        self._segments = 0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._written = time.monotonic()

    def append(self, event: dict[str, Any]) -> None:
        """Take an event; a mere tick is the occasion to write what waits."""
        if self._broken:
            return
        with self._lock:
            if event["event"] not in _PASSING:
                plain = event if "plan" not in event else {name: event[name] for name in event if name != "plan"}
                self._waiting.append(line_of(plain))
            if self._begun and self._waiting:
                self._write_soon()

    def _write_soon(self) -> None:
        """Write what waits if it has waited long enough; else when it has, though the evaluation may be busy then."""
        waits = _LINE_SECONDS if self._descriptor is not None else _SEGMENT_SECONDS
        left = waits - (time.monotonic() - self._written)
        if left <= 0:
            self._write()
        elif self._timer is None:
            self._timer = threading.Timer(left, self._write_late)
            self._timer.daemon = True
            self._timer.start()

    def _write_late(self) -> None:
        with self._lock:
            self._timer = None
            if self._begun and self._waiting:
                self._write()

    def begin(self) -> None:
        """From now on events are written; those that came before are the first."""
        place = self._store.files.local(f"runs/{self._run}/events.jsonl")
        with self._lock:
            self._begun = True
            if place is not None:
                with self._trouble():
                    self._descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._write()

    def close(self) -> None:
        """Write what waits; the log is complete."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._begun and self._waiting:
                self._write()
            self._begun = False
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _write(self) -> None:
        data, self._waiting = b"".join(self._waiting), []
        self._written = time.monotonic()
        with self._trouble():
            if self._descriptor is not None:
                # Whole lines in one call: what a kill or a full disk tears is at the end, and readers pass over it.
                self._broken = os.write(self._descriptor, data) < len(data)
            else:
                self._segments += 1
                self._store.files.create(_segment(self._run, self._segments), data)

    @contextlib.contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (OSError, StoreUnavailable):
            self._broken = True


def _segment(run: str, number: int) -> str:
    return f"runs/{run}/events/{number:06d}.jsonl"


_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]+")


def runs(store: Store) -> list[str]:
    """The ids of a store's runs, the oldest first; files of others are none."""
    return [name for name in store.files.names("runs") if _RUN.fullmatch(name)]


def lines(store: Store, run: str) -> list[bytes]:
    """The lines of a run's log so far; empty when there is none."""
    files = store.files
    whole = files.read(f"runs/{run}/events.jsonl")
    if whole is not None:
        return whole.splitlines()
    folder = f"runs/{run}/events"
    return [line for name in files.names(folder) for line in (files.read(f"{folder}/{name}") or b"").splitlines()]


def state(store: Store, run: str) -> State:
    """What is known of a run from its log."""
    return replay(lines(store, run))


def count_failed(store: Store, run: str) -> int:
    """How many nodes failed in a run."""
    return sum(b'"event":"failed"' in line and b'"how":"run"' in line for line in lines(store, run))


_RECENT, _LAST = 5, 2000
"""Runs whose durations are looked at, and lines of each: enough for an estimate, whatever the size of the runs."""


def durations(store: Store, operators: Iterable[str]) -> dict[str, float]:
    """Seconds that a call of each operator took on average in recent runs, for those that ran in any."""
    wanted, seconds = set(operators), defaultdict[str, list[float]](list)
    for run in reversed(runs(store)[-_RECENT:]):
        ran = [line for line in lines(store, run)[-_LAST:] if b'"how":"run"' in line]
        for event in replay(ran).settled.values():
            if event.seconds is not None and event.operator in wanted:
                seconds[event.operator].append(event.seconds)
        wanted -= seconds.keys()
        if not wanted:
            break
    return {operator: statistics.fmean(taken) for operator, taken in seconds.items()}
