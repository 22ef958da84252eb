"""One node, once: look up, run, commit, and answer with an outcome."""

from __future__ import annotations

import datetime
import functools
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import attrs

from marin_dsl.encoding import format_digest
from marin_dsl.outcome import Attempt, Failed, FailureKind
from marin_dsl.provenance import accelerators
from marin_dsl.quantities import short_digest
from marin_dsl.store import StoredValue
from marin_dsl.store.heartbeat import HEARTBEAT
from marin_dsl.store.leases import Sighting
from marin_dsl.store.owner import hostname
from marin_dsl.worker.agreement import differs
from marin_dsl.worker.bounds import bounded_failure, bounded_lines
from marin_dsl.worker.context import Context, entered
from marin_dsl.worker.gang import Others, perform_gang
from marin_dsl.worker.isolation import perform_isolated
from marin_dsl.worker.kept import forget
from marin_dsl.worker.performance import Performance, context_of, described, perform, performed
from marin_dsl.worker.redaction import Redaction
from marin_dsl.worker.task import Answer, Emit, Task
from marin_dsl.worker.timing import perform_in_time

LASTING = 1.0
"""Seconds: the result of a call that took longer is on the disk when it is told; that takes some hundredths more."""


class Beginning(NamedTuple):
    """When something began.

    Attributes:
        at: by the calendar, in seconds since 1970.
        clock: by a clock that nobody sets, which tells how long it took.
    """

    at: float
    clock: float

    @classmethod
    def now(cls) -> Beginning:
        """It begins now."""
        return cls(time.time(), time.monotonic())


def execute(task: Task, emit: Emit, others: Others | None = None) -> Answer:
    """Run one call and commit its result, unless the store already has it or somebody else is working on it.

    Args:
        task: the call.
        emit: is given what happens.
        others: who runs the other members of a gang; None to run all of them here.

    Raises:
        StoreUnavailable: the store cannot be read or written; nothing half-written is left.
        Cancelled: the run was cancelled meanwhile.
    """
    found = None if task.verifies else _looked_up(task)
    if found is not None:
        return found
    with HEARTBEAT.held(
        task.store.files,
        task.call,
        task.run,
        seconds=task.lease,
        kind=task.operator.identity,
        abandoned=task.abandoned,
    ) as held:
        if isinstance(held, Sighting):
            return Answer(None, None, False, 0.0, elsewhere=held)
        # Between the look and the lease somebody else may have finished it.
        found = _looked_up(task) if held.lease is not None and not task.verifies else None
        return found or _execute(task, emit, others)


def _looked_up(task: Task) -> Answer | None:
    found = task.store.valued(task.call)
    if found is None:
        return None
    record, value = found
    return Answer(value, None, False, record["provenance"]["seconds"])


def _execute(task: Task, emit: Emit, others: Others | None) -> Answer:
    began = Beginning.now()
    call = format_digest(task.call)
    emit({"event": "running", "call": call, "title": task.title, "at": began.at})
    scratch_root, over = task.scratch_root, False
    try:
        answer = _recorded(task, _performed(task, emit, scratch_root, others), began)
        over = answer.failed is None
        return answer
    finally:
        if scratch_root is not None and not _removed_empty(scratch_root) and over:
            forget(Path(scratch_root))
            _removed_empty(scratch_root)


def _performed(task: Task, emit: Emit, place: str | None, others: Others | None) -> Performance:
    """Run the operator, where and how its annotations say; its scratch folders are to be made in a place."""
    redaction = Redaction()
    # Calls before this one may have changed what the code here reads (a cache, say): a fresh process decides.
    if task.annotations.hosts > 1 or task.annotations.isolate or differs(task):
        root = None if place is None else Path(place)
        if task.annotations.hosts > 1:
            return perform_gang(task, emit, redaction, scratch_root=root, others=others)
        return perform_isolated(task, emit, redaction, scratch_root=root)
    current = context_of(task, emit, redaction, scratch_root=place)
    with entered(current):
        if task.annotations.limit is not None:
            return perform_in_time(task, current, redaction)
        # Ctrl-C arrives in the main thread only: elsewhere the operator itself has raised it.
        main = threading.current_thread() is threading.main_thread()
        return perform(task, current, redaction, stops=(KeyboardInterrupt,) if main else ())


def _recorded(task: Task, performance: Performance, began: Beginning) -> Answer:
    """Commit a result, or record a failure; what goes on is recorded when it has come to its end."""
    record = _provenance(task, performance, began) | {"history": [attrs.asdict(each) for each in task.history]}
    seconds = record["provenance"]["seconds"]
    if performance.failure is not None:
        record["failure"] = bounded_failure(performance.failure)
        number = task.store.fail(task.call, record)
        failed = failure_of({**record, "number": number})
        kept = _looked_up(task) if task.verifies else None
        if kept is not None:
            return attrs.evolve(kept, ran=True, seconds=seconds, conflict=f"a failure ({failed.summary})")
        return Answer(None, failed, True, seconds, transient=performance.transient)
    record |= {
        "observations": performance.observations,
        "over_failure": task.over_failure,
        "inputs": [format_digest(value.digest) for value in task.inputs],
    }
    if performance.stored is None:
        return Answer(None, None, True, seconds, performance.continued, record)
    record["value"] = performance.stored.as_record()
    visible = task.store.commit(task.call, record, structure=task.structure, lasting=seconds >= LASTING)
    if visible["value"] is record["value"]:
        return Answer(performance.stored, None, True, seconds)
    differs = visible["value"]["digest"] != record["value"]["digest"]
    conflict = f"the value {short_digest(record['value']['digest'])}" if differs else None
    return Answer(StoredValue.from_record(visible["value"]), None, True, seconds, conflict=conflict)


def refuse(task: Task, kind: FailureKind, error: BaseException) -> Answer:
    """Record that a call came to nothing without an answer from a worker."""
    failure = described(kind, error, task.operator.function)
    performance = performed(Context(task.call), failure=failure)
    return attrs.evolve(_recorded(task, performance, Beginning.now()), ran=False)


def failure_of(record: dict[str, Any]) -> Failed:
    """The failure that a record tells of."""
    provenance, failure = record["provenance"], record["failure"]
    return Failed(
        **{**failure, "notes": tuple(failure.get("notes", ()))},  # earlier records have none
        operator=record["title"],
        where=f"{provenance['host']}, process {provenance['pid']}",
        attempts=record["number"],
        output=tuple(record["output"]),
        history=tuple(Attempt(**each) for each in record.get("history", ())),
        peak_memory=provenance["peak_memory"],
    )


def attempt_of(failed: Failed, seconds: float) -> Attempt:
    """A failure as later attempts at the call remember it."""
    ended = _moment(time.time())
    return Attempt(failed.kind, failed.exception, failed.message, failed.where, ended, seconds)


def _provenance(task: Task, performance: Performance, began: Beginning) -> dict[str, Any]:
    operator, seconds = task.operator, time.monotonic() - began.clock
    return {
        "call": format_digest(task.call),
        "title": task.title,
        "operator": {"name": operator.name, "version": operator.version, "code": task.code},
        "output": bounded_lines(performance.lines),
        "provenance": {
            "run": task.run,
            "environment": task.environment,
            "started": _moment(began.at),
            "ended": _moment(began.at + seconds),
            "seconds": seconds,
            "peak_memory": performance.peak_memory,
            "host": hostname(),
            "pid": performance.pid,
            "thread": performance.thread,
            **({"accelerators": accelerators()} if accelerators() else {}),
        },
    }


def _moment(seconds: float) -> str:
    date, zone = _second(int(seconds))
    return f"{date}.{int(seconds % 1 * 1e6):06d}{zone}"


@functools.lru_cache(16)
def _second(seconds: int) -> tuple[str, str]:
    """A second by the calendar, and the zone that it is meant in; many short calls begin and end in one."""
    text = datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone().isoformat(timespec="seconds")
    return text[:19], text[19:]


def _removed_empty(folder: str) -> bool:
    """Remove a folder if it is empty; whether nothing is left of it, as when it was never made."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # another execution of the same call is still at work in it, or something is kept in it
    return True
