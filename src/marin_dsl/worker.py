"""One node, once: look up, run, commit, and answer with an outcome."""

from __future__ import annotations

import datetime
import socket
import time
from pathlib import Path
from typing import Any

import attrs

from marin_dsl.context import Context, entered
from marin_dsl.encoding import format_digest
from marin_dsl.outcome import Failed, FailureKind
from marin_dsl.performance import Performance, described, perform, performed
from marin_dsl.redaction import Redaction
from marin_dsl.store import Store, StoredValue
from marin_dsl.task import Answer, Emit, Task


def execute(task: Task, emit: Emit) -> Answer:
    """Run one call and commit its result, unless the store already has it.

    Raises:
        StoreUnavailable: the store cannot be read or written; nothing half-written is left.
        Cancelled: the run was cancelled meanwhile.
    """
    found = task.store.result(task.call)
    if found is not None:
        return Answer(StoredValue.from_record(found["value"]), None, False, found["provenance"]["seconds"])
    started = time.time()
    call = format_digest(task.call)
    emit({"event": "running", "call": call, "title": task.title, "at": started})
    local = task.store.files.local("scratch")
    redaction = Redaction()

    def report(kind: str, content: Any) -> None:
        emit({"event": kind, "call": call, "title": task.title, "content": redaction.plain(content)})

    current = Context(
        task.call,
        scratch_root=local / task.call.hex() if local is not None else None,
        report=report,
        cancelled=_Cancellation(task.store, task.run).asked,
        redact=redaction.text,
    )
    try:
        with entered(current):
            return _recorded(task, perform(task, current, redaction), started)
    finally:
        if local is not None:
            _remove_empty(local / task.call.hex())


def _recorded(task: Task, performance: Performance, started: float) -> Answer:
    """Commit a result, or record a failure."""
    record = _provenance(task, performance, started)
    seconds = record["provenance"]["seconds"]
    if performance.stored is None:
        record["failure"] = performance.failure
        number = task.store.fail(task.call, record)
        return Answer(None, failure_of({**record, "number": number}), True, seconds)
    record |= {
        "value": performance.stored.as_record(),
        "observations": performance.observations,
        "over_failure": task.over_failure,
        "inputs": [format_digest(value.digest) for value in task.inputs],
    }
    visible = task.store.commit(task.call, record)
    return Answer(StoredValue.from_record(visible["value"]), None, True, seconds)


def refuse(task: Task, kind: FailureKind, error: BaseException) -> Answer:
    """Record that a call came to nothing without an answer from a worker."""
    failure = described(kind, error, task.operator.function)
    performance = performed(Context(task.call), failure=failure)
    return attrs.evolve(_recorded(task, performance, time.time()), ran=False)


def failure_of(record: dict[str, Any]) -> Failed:
    """The failure that a record tells of."""
    provenance = record["provenance"]
    return Failed(
        **record["failure"],
        operator=record["title"],
        where=f"{provenance['host']}, process {provenance['pid']}",
        attempts=record["number"],
        output=tuple(record["output"]),
    )


def _provenance(task: Task, performance: Performance, started: float) -> dict[str, Any]:
    operator, ended = task.operator, time.time()
    return {
        "call": format_digest(task.call),
        "title": task.title,
        "operator": {"name": operator.name, "version": operator.version, "code": task.code},
        "output": list(performance.lines),
        "provenance": {
            "run": task.run,
            "environment": task.environment,
            "started": _moment(started),
            "ended": _moment(ended),
            "seconds": ended - started,
            "peak_memory": performance.peak_memory,
            "host": socket.gethostname(),
            "pid": performance.pid,
            "thread": performance.thread,
        },
    }


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone().isoformat(timespec="milliseconds")


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # another execution of the same call is still at work in it, or it was never made


@attrs.define
class _Cancellation:
    """Whether a run was cancelled: asked of the store, at most twice a second."""

    store: Store
    run: str
    next_look: float = 0.0
    seen: bool = False

    def asked(self) -> bool:
        now = time.monotonic()
        if not self.seen and now >= self.next_look:
            self.next_look = now + 0.5
            self.seen = self.store.files.size(f"runs/{self.run}/cancelled") is not None
        return self.seen
