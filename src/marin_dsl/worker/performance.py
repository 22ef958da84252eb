"""Running an operator once: decode its arguments, call it, write the blobs of its result."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import attrs

from marin_dsl.encoding import Encoded, LeafMissing, Unencodable, decode, encode, encode_with_leaves, format_digest
from marin_dsl.encoding.functions import meaning_of, refuse_to_keep
from marin_dsl.encoding.reader import Undecodable
from marin_dsl.expression import Expression, NoValueYet, walk
from marin_dsl.expression.choices import held
from marin_dsl.expression.keys import splice
from marin_dsl.expression.pickling import Row, flattened
from marin_dsl.operator import Operator
from marin_dsl.operator.secret import SecretMissing, revealed, text_of
from marin_dsl.outcome import FailureKind
from marin_dsl.store import Store, StoredValue, StoreUnavailable
from marin_dsl.worker.context import Cancelled, Context, Gang, TimedOut
from marin_dsl.worker.redaction import Redaction
from marin_dsl.worker.task import Emit, Task


@attrs.frozen(eq=False)
class Performance:
    """What came of running an operator once. No text in it holds a secret.

    Attributes:
        stored: the result, whose blobs are in the store; None when there is none.
        continued: the expression that the operator returned instead of a value.
        failure: why there is no result: kind, exception, message and so on, as records write it.
        observations: what the operator measured, by name, as records write it.
        lines: the last lines that it logged.
        peak_memory: bytes of memory that the process has had resident at most.
        pid: the process.
        thread: the thread.
        transient: whether what it failed with may not come again.
    """

    stored: StoredValue | None
    continued: list[Row] | None
    failure: dict[str, Any] | None
    observations: dict[str, Any]
    lines: tuple[str, ...]
    peak_memory: int
    pid: int
    thread: str
    transient: bool = False


def context_of(
    task: Task, emit: Emit, redaction: Redaction, *, scratch_root: Path | str | None, gang: Gang | None = None
) -> Context:
    """What the operator of a task sees of its execution."""
    call = format_digest(task.call)

    def report(kind: str, content: Any) -> None:
        emit({"event": kind, "call": call, "title": task.title, "content": redaction.plain(content)})

    return Context(
        task.call,
        scratch_root=scratch_root,
        report=report,
        cancelled=Cancellation(task.store, task.run).asked,
        redact=redaction.text,
        limit=task.annotations.limit,
        source=task.annotations.source,
        gang=gang,
    )


def perform(
    task: Task, current: Context, redaction: Redaction, *, stops: tuple[type[BaseException], ...] = ()
) -> Performance:
    """Run the operator of a task in the current process and thread.

    Args:
        task: the call.
        current: what the operator sees of its execution.
        redaction: is told the secrets among the arguments before the operator is called.
        stops: exceptions that are for whoever runs it, and no failure of the operator.

    Raises:
        StoreUnavailable: the store of the task cannot be read or written.
        Cancelled: the run was cancelled meanwhile.
    """
    kind: FailureKind = "lost"
    try:
        arguments = _arguments(task, redaction)
        kind = "raised"
        value = _called(task, arguments, redaction)
        if current.gang.rank > 0:  # the value of a gang is what rank 0 returns; of others nothing is written
            return performed(current)
        kind = "unstorable"
        what = f"the result of {task.operator.short_name}"
        result = _encoded_or_expression(what, value)
        stored = _kept(task, what, result, redaction) if isinstance(result, Encoded) else None
        rows = _travelling(task, what, result, redaction) if isinstance(result, Expression) else None
        observations = _observed(task, current, redaction)
    except BaseException as error:
        if _is_for_the_run(error, task.store, stops) or (isinstance(error, Cancelled) and current.cancelled):
            if redaction.texts:
                raise redaction.error(error) from None
            raise
        failure = redaction.plain(described(kind, error, task.operator.function))
        transient = failure["kind"] == "raised" and isinstance(error, task.annotations.transient)
        return attrs.evolve(performed(current, failure=failure), transient=transient)
    return performed(current, stored=stored, continued=rows, observations=observations)


def _is_for_the_run(error: BaseException, store: Store, stops: tuple[type[BaseException], ...]) -> bool:
    """Whether something is no failure of the operator; trouble with a store that it opened itself is one."""
    return isinstance(error, stops) or (isinstance(error, StoreUnavailable) and error.url == store.url)


def performed(
    current: Context,
    *,
    stored: StoredValue | None = None,
    continued: list[Row] | None = None,
    failure: dict[str, Any] | None = None,
    observations: dict[str, Any] | None = None,
) -> Performance:
    """A performance in this process and thread."""
    thread, lines = threading.current_thread().name, tuple(current.lines)
    peak = _PEAK.read()
    return Performance(stored, continued, failure, observations or {}, lines, peak, os.getpid(), thread)


def _arguments(task: Task, redaction: Redaction) -> dict[str, Any]:
    missing: list[SecretMissing] = []

    def reveal(reference: str) -> str:
        try:
            text = redaction.texts.get(reference) or text_of(reference)
        except SecretMissing as error:
            missing.append(error)
            raise
        redaction.add({reference: text})
        return text

    # Each reference gets an object of its own. Only what the user wrote into this call is looked up as a secret, and
    # nothing that a store brings.
    inputs = iter([task.store.get(value) for value in task.inputs])
    data = splice(task.payload, (value.digest for value in task.inputs))
    try:
        with revealed(reveal):
            found: dict[str, Any] = decode(data, read_leaf=task.store.read_leaf, reference=lambda _: next(inputs))
    except Undecodable:
        if missing:
            raise missing[0] from None
        raise
    return found


def _called(task: Task, arguments: dict[str, Any], redaction: Redaction) -> Any:
    thread, process = threading.current_thread(), os.getpid()
    name = thread.name
    try:
        return task.operator.signature.call(task.operator.function, arguments)
    finally:
        if os.getpid() != process:
            _end_fork(sys.exc_info()[1], redaction)
        thread.name = name  # records of later calls name it too, and an operator may have put a secret there


def _end_fork(error: BaseException | None, redaction: Redaction) -> NoReturn:
    """End this process, which the operator forked and which came back from it: the call is its parent's to answer.

    It ends as it would have where nobody called the operator: by its exit status, or by what it raised.
    """
    code = error.code if isinstance(error, SystemExit) else None if error is None else 1
    said = code if not isinstance(code, int | None) else "" if isinstance(error, SystemExit | None) else _whole(error)
    with contextlib.suppress(Exception):
        sys.stderr.write(redaction.text(f"{said}\n" if said else ""))
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def _encoded_or_expression(what: str, value: Any) -> Encoded | Expression[Any]:
    """A result as it is kept; one with expressions in it as the expression to go on with."""
    try:
        try:
            return encode_with_leaves(value)
        except NoValueYet:
            return _kept_nest(held(value))
    except Unencodable as error:
        raise _unstorable(what, error) from None


def _kept_nest(found: Expression[Any]) -> Expression[Any]:
    """The expression whose value is to be a result; functions that stand only in memory cannot be part of that."""
    if found.operator.is_inline:
        for function in found.functions.values():
            meaning = meaning_of(function)
            if meaning is None or not meaning.place:
                raise refuse_to_keep(getattr(function, "__qualname__", type(function).__name__))
    return found


def _unstorable(what: str, error: Unencodable) -> Unencodable:
    return Unencodable(f"{what} cannot be stored: {error}")


def _kept(task: Task, what: str, encoded: Encoded, redaction: Redaction) -> StoredValue:
    """A value written to the store, unless it holds a secret."""
    redaction.refuse(what, encoded)
    return task.store.put_encoded(encoded)


def _travelling(task: Task, what: str, expression: Expression[Any], redaction: Redaction) -> list[Row]:
    """An expression on its way to who evaluates it; its large literals go to the store instead."""
    for found in walk(expression):
        if redaction.texts:
            redaction.refuse(what, Encoded(_recorded_of(found), dict(found.leaves)))
        for leaf in found.leaves.values():
            task.store.put_leaf(leaf)
    return flattened(expression, with_contents=False)


def _recorded_of(expression: Expression[Any]) -> bytes:
    """Whatever of an expression may come to be recorded, its arguments apart: its own parts, names and code."""
    operator = expression.operator
    code = operator.code.listing if isinstance(operator, Operator) else None
    names = [operator.name, str(expression.label), expression.annotations.title, expression.annotations.source]
    return b"\0".join((*expression.payload, expression.facts, encode([names, code])))


def _observed(task: Task, current: Context, redaction: Redaction) -> dict[str, Any]:
    found = {}
    for name, seen in list(current.observations.items()):  # a thread of the operator's may go on
        name = redaction.text(name)
        what = f"the observation `{name}` of {task.operator.short_name}"
        try:
            encoded = encode_with_leaves(seen)
        except Unencodable as error:
            raise _unstorable(what, error) from None
        found[name] = _kept(task, what, encoded, redaction).as_record()
    return found


def described(kind: FailureKind, error: BaseException, function: Callable[..., Any]) -> dict[str, Any]:
    """An exception as records write it."""
    if isinstance(error, LeafMissing) and kind == "raised":
        kind = "lost"
    elif isinstance(error, SecretMissing) and kind == "lost":
        kind = "raised"
    elif isinstance(error, TimedOut):
        kind = "timeout"
    return {
        "kind": kind,
        "exception": exception_name(error),
        "message": exception_text(error),
        "traceback": _formatted(error, function),
        "notes": _notes(error),
    }


def exception_name(error: BaseException) -> str:
    """What records call an exception: its qualified name, without the module if that is `builtins`."""
    cause = type(error)
    return cause.__qualname__ if cause.__module__ == "builtins" else f"{cause.__module__}.{cause.__qualname__}"


def exception_text(error: BaseException) -> str:
    """The message of an exception, whatever its class makes of that."""
    return _shown(error, "its message")


def _shown(said: object, what: str) -> str:
    """A text of somebody else's class, which may do anything when it is asked for it, ending this process included."""
    try:
        return str(said)
    except BaseException as problem:
        return f"({what} cannot be shown: {type(problem).__qualname__} in __str__)"


def _notes(error: BaseException) -> list[str]:
    try:
        return [_shown(note, "it") for note in getattr(error, "__notes__", ())]
    except BaseException:  # a property that raises, or something that is no list
        return []


def _formatted(error: BaseException, function: Any) -> str:
    """The traceback from the operator's own frame on; the frames that called it are ours and say nothing."""
    found = error.__traceback__
    code = getattr(function, "__code__", None)
    frame = found
    while frame is not None and frame.tb_frame.f_code is not code:
        frame = frame.tb_next
    return _whole(error, frame or found)


def _whole(error: BaseException, begins: Any = None) -> str:
    """An exception with its traceback, from a frame on."""
    begins = begins or error.__traceback__
    try:
        return "".join(traceback.format_exception(type(error), error, begins))
    except BaseException:  # attributes of the exception that are not what they should be
        return "".join(traceback.format_tb(begins)) + exception_name(error)


def peak_memory(pid: int | None = None) -> int:
    """Bytes of memory that a process (this one, if none is named) has had resident at most; 0 if that is not known.

    On Linux the kernel's own mark of the memory is read: `getrusage` includes what the parent had when it started it.
    """
    try:
        marks = Path("/proc", str(pid or "self"), "status").read_text()
        return int(marks.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        if pid is not None:
            return 0
    measured = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return measured if sys.platform == "darwin" else measured * 1024


@attrs.define
class _Peak:
    """The mark of this process, read a few times a second: reading it takes longer than a short call."""

    measured: int = 0
    next_look: float = 0.0

    def read(self) -> int:
        now = time.monotonic()
        if now >= self.next_look:
            self.measured, self.next_look = peak_memory(), now + 0.1
        return self.measured


_PEAK = _Peak()


@attrs.define
class Cancellation:
    """Whether a run was cancelled: asked of the store, at most twice a second."""

    store: Store
    run: str
    next_look: float = 0.0
    seen: bool = False

    def asked(self) -> bool:
        """Whether it was."""
        now = time.monotonic()
        if not self.seen and now >= self.next_look:
            self.next_look = now + 0.5
            self.seen = self.store.files.size(f"runs/{self.run}/cancelled") is not None
        return self.seen
