"""One node, once: look up, run, commit, and answer with an outcome."""

from __future__ import annotations

import contextlib
import datetime
import os
import resource
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from marin_dsl.choices import held
from marin_dsl.context import Cancelled, Context, entered
from marin_dsl.encoding import Encoded, LeafMissing, Unencodable, decode, encode_with_leaves, format_digest
from marin_dsl.expression import Expression, NoValueYet, walk
from marin_dsl.keys import splice
from marin_dsl.operator import Operator
from marin_dsl.outcome import Failed, FailureKind
from marin_dsl.pickling import Row, flattened
from marin_dsl.store import Store, StoredValue, StoreUnavailable
from marin_dsl.store.heartbeat import HEARTBEAT
from marin_dsl.store.leases import Sighting

Emit = Callable[[dict[str, Any]], None]


@attrs.frozen(eq=False)
class Task:
    """All that a worker needs to run one call: digests and small things, never data.

    Attributes:
        store: where values are read and written.
        operator: what to run.
        payload: encoded arguments, cut at each reference.
        inputs: the value of each reference.
        call: the call key.
        title: what people call this node.
        run: id of the run that wants it.
        environment: digest of the environment snapshot, as records write it.
        code: digest of the operator's code, as records write it.
        over_failure: whether an input was made from the outcome of something that failed.
        source: where the external data lies that it reads.
        lease: seconds without a sign of life after which others take over; 0 to tell nobody that it is being done.
        abandoned: the lease of somebody who is to be taken over from.
        asked: how often it was handed out before, and somebody else was working on it.
    """

    store: Store
    operator: Operator[Any, Any]
    payload: tuple[bytes, ...]
    inputs: tuple[StoredValue, ...]
    call: bytes
    title: str
    run: str
    environment: str
    code: str
    over_failure: bool
    source: str | None = None
    lease: float = 0.0
    abandoned: Sighting | None = None
    asked: int = 0


@attrs.frozen(eq=False)
class Answer:
    """What became of a task: the stored value, or a failure.

    Attributes:
        stored: where the value is.
        failed: why there is none.
        ran: whether the operator was run here (or its result was found).
        seconds: how long that took.
        continued: the expression that the operator returned, whose value is to be the value of the call.
        record: what is known of the execution, for the result that is recorded when that value is there.
        elsewhere: the lease of somebody else who is working on it, when nothing else is to be said.
    """

    stored: StoredValue | None
    failed: Failed | None
    ran: bool
    seconds: float
    continued: list[Row] | None = None
    record: dict[str, Any] | None = None
    elsewhere: Sighting | None = None


def execute(task: Task, emit: Emit) -> Answer:
    """Run one call and commit its result, unless the store already has it or somebody else is working on it.

    Raises:
        StoreUnavailable: the store cannot be read or written; nothing half-written is left.
        Cancelled: the run was cancelled meanwhile.
    """
    found = _looked_up(task)
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
        return (_looked_up(task) if held.lease is not None else None) or _execute(task, emit)


def _looked_up(task: Task) -> Answer | None:
    found = task.store.result(task.call)
    if found is None:
        return None
    return Answer(StoredValue.from_record(found["value"]), None, False, found["provenance"]["seconds"])


def _execute(task: Task, emit: Emit) -> Answer:
    started = time.time()
    call = format_digest(task.call)
    emit({"event": "running", "call": call, "title": task.title, "at": started})
    local = task.store.files.local("scratch")
    current = Context(
        task.call,
        scratch_root=local / task.call.hex() if local is not None else None,
        report=lambda kind, content: emit({"event": kind, "call": call, "title": task.title, "content": content}),
        cancelled=_Cancellation(task.store, task.run).asked,
        source=task.source,
    )
    try:
        with entered(current):
            return _run(task, current, started)
    finally:
        if local is not None:
            _remove_empty(local / task.call.hex())


def _run(task: Task, current: Context, started: float) -> Answer:
    kind: FailureKind = "lost"
    try:
        arguments = _arguments(task)
        kind = "raised"
        value = task.operator.signature.call(task.operator.function, arguments)
        kind = "unstorable"
        with _named(f"the result of {task.operator.short_name}"):
            result = _encoded_or_expression(value)
            stored = task.store.put_encoded(result) if isinstance(result, Encoded) else None
        observations = _observed(task, current)
    except (Cancelled, StoreUnavailable):
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # elsewhere no Ctrl-C arrives: the operator itself raised it
        return _failed(task, current, kind, error, started)
    record = _provenance(task, current, started)
    record |= {
        "observations": observations,
        "over_failure": task.over_failure,
        "inputs": [format_digest(value.digest) for value in task.inputs],
    }
    seconds = record["provenance"]["seconds"]
    if isinstance(result, Expression):
        return Answer(None, None, True, seconds, _travelling(task.store, result), record)
    assert stored is not None
    record["value"] = stored.as_record()
    visible = task.store.commit(task.call, record)
    return Answer(StoredValue.from_record(visible["value"]), None, True, seconds)


def _encoded_or_expression(value: Any) -> Encoded | Expression[Any]:
    """A result as it is kept; one with expressions in it as the expression to go on with."""
    try:
        return encode_with_leaves(value)
    except NoValueYet:
        return held(value)


def _travelling(store: Store, expression: Expression[Any]) -> list[Row]:
    """An expression on its way to who evaluates it; its large literals go to the store instead."""
    for found in walk(expression):
        for leaf in found.leaves.values():
            store.put_leaf(leaf)
    return flattened(expression, with_contents=False)


def _observed(task: Task, current: Context) -> dict[str, Any]:
    found = {}
    for name, seen in current.observations.items():
        with _named(f"the observation `{name}` of {task.operator.short_name}"):
            found[name] = task.store.put(seen).as_record()
    return found


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Say of what the complaint is that something has no encoding."""
    try:
        yield
    except Unencodable as error:
        raise Unencodable(f"{what} cannot be stored: {error}") from None


def _arguments(task: Task) -> dict[str, Any]:
    by_digest = {value.digest: value for value in task.inputs}
    data = splice(task.payload, (value.digest for value in task.inputs))
    found: dict[str, Any] = decode(
        data,
        read_leaf=task.store.read_leaf,
        reference=lambda digest: task.store.get(by_digest[digest]),
    )
    return found


def _failed(task: Task, current: Context, kind: FailureKind, error: BaseException, started: float) -> Answer:
    if isinstance(error, LeafMissing) and kind == "raised":
        kind = "lost"
    record = _provenance(task, current, started)
    record["failure"] = {
        "kind": kind,
        "exception": exception_name(error),
        "message": exception_text(error),
        "traceback": _formatted(error, task.operator.function),
    }
    number = task.store.fail(task.call, record)
    return Answer(None, failure_of({**record, "number": number}), True, record["provenance"]["seconds"])


def refuse(task: Task, kind: FailureKind, error: BaseException) -> Answer:
    """Record that a call came to nothing without an answer from a worker."""
    return attrs.evolve(_failed(task, Context(task.call), kind, error, time.time()), ran=False)


def exception_name(error: BaseException) -> str:
    """What records call an exception: its qualified name, without the module if that is `builtins`."""
    cause = type(error)
    return cause.__qualname__ if cause.__module__ == "builtins" else f"{cause.__module__}.{cause.__qualname__}"


def exception_text(error: BaseException) -> str:
    """The message of an exception, whatever its class makes of that."""
    try:
        return str(error)
    except Exception as problem:
        return f"(its message cannot be shown: {type(problem).__qualname__} in __str__)"


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


def _formatted(error: BaseException, function: Any) -> str:
    """The traceback from the operator's own frame on; the frames that called it are ours and say nothing."""
    found = error.__traceback__
    code = getattr(function, "__code__", None)
    frame = found
    while frame is not None and frame.tb_frame.f_code is not code:
        frame = frame.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, frame or found))
    except Exception:  # attributes of the exception that are not what they should be
        return "".join(traceback.format_tb(frame or found)) + exception_name(error)


def _provenance(task: Task, current: Context, started: float) -> dict[str, Any]:
    operator, ended = task.operator, time.time()
    return {
        "call": format_digest(task.call),
        "title": task.title,
        "operator": {"name": operator.name, "version": operator.version, "code": task.code},
        "output": list(current.lines),
        "provenance": {
            "run": task.run,
            "environment": task.environment,
            "started": _moment(started),
            "ended": _moment(ended),
            "seconds": ended - started,
            "peak_memory": peak_memory(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "thread": threading.current_thread().name,
        },
    }


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone().isoformat(timespec="milliseconds")


def peak_memory() -> int:
    """Bytes of memory that this process has had resident at most."""
    measured = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return measured if sys.platform == "darwin" else measured * 1024


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
