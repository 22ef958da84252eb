"""What was run in a store, when, and how it ended."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import attrs

from marin_dsl.evaluation import event_log
from marin_dsl.store import Store
from marin_dsl.store.owner import Owner

SILENT = 15 * 60.0
"""Seconds without an event after which a run on another machine is taken for dead."""


@attrs.frozen
class Run:
    """One evaluation that had something to run, that gave or moved a label, or that met drift.

    Attributes:
        run: its id, which begins with the time of its start (UTC).
        target: how the user named what was wanted.
        command: the command line.
        note: what the user noted about it.
        started: time with zone, ISO 8601.
        seconds: how long it took; None while it has no end.
        state: how it ended: `ok` or `failed` by what became of the roots; `interrupted` by Ctrl-C; `running`, or `lost`
            when whatever ran it is gone without a word.
        counts: nodes that were served, run, kept their failures, were skipped, or are open.
        ran: how many calls were executed.
        failed: how many of them failed.
        drift: what was to be done about labels whose recipes changed.
        keep_failures: whether recorded failures were served.
        roots: recipe key and label of each root.
        host: where the driver ran.
        pid: its process there.
    """

    run: str
    target: str
    command: str
    note: str
    started: str
    seconds: float | None
    state: Literal["ok", "failed", "interrupted", "running", "lost"]
    counts: Mapping[str, int]
    ran: int
    failed: int
    drift: str
    keep_failures: bool
    roots: tuple[Mapping[str, Any], ...]
    host: str
    pid: int | None


def runs(store: Store) -> Iterator[Run]:
    """The runs of a store, newest first; read as they are asked for."""
    for name in reversed(event_log.runs(store)):
        found = run_of(store, name)
        if found is not None:
            yield found


def run_of(store: Store, run: str) -> Run | None:
    """A run by its id; None when there is no record of its start."""
    start = store.last(f"runs/{run}/start")
    if start is None:
        return None
    end = store.last(f"runs/{run}/end")
    owner = Owner.of(start.get("owner"))
    found = {
        "run": run,
        "target": start["target"],
        "command": start["command"],
        "note": start.get("note", ""),
        "started": start["started"],
        "drift": start.get("drift", "advise"),
        "keep_failures": start["keep_failures"],
        "roots": tuple(start["roots"]),
        "host": owner.host if owner is not None else "",
        "pid": owner.pid if owner is not None else None,
    }
    if end is not None:
        state: Any = "ok" if set(end["outcomes"].values()) <= {"Ok"} else "failed"
        failed = event_log.count_failed(store, run)
        known = {"seconds": end["seconds"], "counts": end["counts"], "ran": end["ran"], "failed": failed}
        return Run(**found, **known, state=state)
    seen = event_log.state(store, run)
    state = _unended(store, run, owner, seen.last)
    known = {"seconds": None, "counts": seen.counts, "ran": seen.tally["run"], "failed": len(seen.failed)}
    return Run(**found, **known, state=state)


def _unended(store: Store, run: str, owner: Owner | None, last: float) -> Any:
    """What became of a run that has no end."""
    if store.files.size(f"runs/{run}/cancelled") is not None:
        return "interrupted"
    if owner is not None and owner.machine and owner.machine == Owner.here(run).machine:
        return "lost" if owner.ended else "running"
    return "running" if time.time() - last < SILENT else "lost"


def moment(text: str) -> str:
    """A recorded time as a person of this time zone reads it.

    >>> moment("not a time")
    'not a time'
    """
    try:
        return datetime.datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text
