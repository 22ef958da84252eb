"""Failures as a store records them: attempt by attempt, with where each one came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from marin_dsl.encoding import format_digest
from marin_dsl.store import Store


@attrs.frozen
class Attempt:
    """One attempt of a call that failed.

    Attributes:
        number: which attempt, from 1.
        kind: what happened: `raised`, `timeout`, `killed`, `lost`, `unstorable`.
        exception: qualified name of the exception's type.
        message: its text.
        place: the line of code that raised it.
        run: id of the run.
        started: time with zone, ISO 8601.
        seconds: how long it ran.
        host: where.
        pid: by which process.
        traceback: with source lines.
        output: the last lines that it logged.
    """

    number: int
    kind: str
    exception: str
    message: str
    place: str
    run: str
    started: str
    seconds: float
    host: str
    pid: int
    traceback: str
    output: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The exception and the first line of its message."""
        first = next(iter(self.message.strip().splitlines()), "")
        name = self.exception.rpartition(".")[2]
        return f"{name}: {first}" if first else name


@attrs.frozen
class FailedCall:
    """A call that failed at least once.

    Attributes:
        call: its call key.
        title: what people call it.
        operator: name of its operator.
        attempts: the recorded attempts, the first one first.
        mended: whether it has a result by now.
    """

    call: str
    title: str
    operator: str
    attempts: tuple[Attempt, ...]
    mended: bool

    @property
    def last(self) -> Attempt:
        """The latest attempt."""
        return self.attempts[-1]


def failures(store: Store, *, calls: Iterable[bytes] | None = None, run: str | None = None) -> list[FailedCall]:
    """Recorded failures, the latest first.

    Args:
        store: where they are recorded.
        calls: only those of these call keys.
        run: only those of the run with this id.
    """
    known = (name for name in store.files.names("failures") if re.fullmatch("[0-9a-f]{64}", name))
    names = known if calls is None else (call.hex() for call in calls)
    found = [call for name in names if (call := failed_call(store, bytes.fromhex(name), run)) is not None]
    return sorted(found, key=lambda call: call.last.started, reverse=True)


def failed_call(store: Store, call: bytes, run: str | None = None) -> FailedCall | None:
    """The failed attempts of a call (of all runs, or of one); None when there are none."""
    records = list(_attempts(store, call))
    attempts = tuple(_attempt(number, record) for number, record in records)
    attempts = tuple(attempt for attempt in attempts if run in (None, attempt.run))
    if not attempts:
        return None
    record = records[-1][1]
    mended = store.read(f"results/{call.hex()[:2]}/{call.hex()[2:]}.json") is not None
    return FailedCall(format_digest(call), record["title"], record["operator"]["name"], attempts, mended)


def _attempts(store: Store, call: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, path in store.numbered(f"failures/{call.hex()}").items():
        record = store.read(path)
        if record is not None:
            yield number, record


def _attempt(number: int, record: Mapping[str, Any]) -> Attempt:
    failure, provenance = record["failure"], record["provenance"]
    return Attempt(
        number,
        failure["kind"],
        failure["exception"],
        failure["message"],
        place(failure["traceback"]),
        provenance["run"],
        provenance["started"],
        provenance["seconds"],
        provenance["host"],
        provenance["pid"],
        failure["traceback"],
        tuple(record["output"]),
    )


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')


def place(traceback: str) -> str:
    """Where in the code an exception was raised: the last frame, with the last two parts of its path."""
    frames = list(_FRAME.finditer(traceback))
    if not frames:
        return ""
    last = frames[-1]
    return f"{'/'.join(last['file'].split('/')[-2:])}:{last['line']} in {last['name']}"
