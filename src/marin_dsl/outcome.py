"""What became of an expression: a value, a failure, or nothing because something before it failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, NoReturn, TypeVar

import attrs

from marin_dsl.encoding import register_codec

T = TypeVar("T")

FailureKind = Literal["raised", "timeout", "killed", "lost", "unstorable", "conflict"]


class NoValue(RuntimeError):
    """The value of an expression was asked for, and it has none: it failed or was skipped."""


class Ok(Generic[T]):
    """An expression has a value.

    Attributes:
        digest: `sha256:` digest of the value, or None for one that was made by hand.
    """

    __slots__ = ("_load", "_value", "digest")

    ok = True

    def __init__(self, value: Any = None, *, digest: str | None = None, load: Callable[[], T] | None = None) -> None:
        self.digest, self._value, self._load = digest, value, load

    @property
    def value(self) -> T:
        """The value; read from the store when it is first asked for."""
        if self._load is not None:
            self._value, self._load = self._load(), None
        return self._value

    def __repr__(self) -> str:
        return f"Ok({self.digest[:19]}…)" if self.digest and self._load is not None else f"Ok({self._value!r})"


@attrs.frozen
class Attempt:
    """An earlier attempt at a call in the same run, which failed too.

    Attributes:
        kind: what happened.
        exception: qualified name of the exception's type.
        message: text of the exception.
        where: host and process.
        ended: when, as ISO 8601 writes it.
        seconds: how long it took.
    """

    kind: FailureKind
    exception: str
    message: str
    where: str
    ended: str
    seconds: float


@attrs.frozen
class Failed:
    """An operator did not return a value that could be kept.

    Only `kind`, `exception` and `message` are part of the value that `attempt` gives; the rest says where and how.

    Attributes:
        kind: what happened.
        exception: qualified name of the exception's type.
        message: text of the exception.
        operator: title of the call that failed.
        traceback: formatted traceback with source lines.
        where: host and process.
        attempts: how many times it was tried so far.
        output: the last lines that the operator logged, and in a process of its own that it printed.
        notes: what was noted on the exception (`add_note`), and advice.
        history: the attempts before this one in the same run.
        peak_memory: bytes of memory that the process had resident at most, as far as that is known.
    """

    kind: FailureKind
    exception: str
    message: str
    operator: str = attrs.field(default="", eq=False)
    traceback: str = attrs.field(default="", eq=False, repr=False)
    where: str = attrs.field(default="", eq=False, repr=False)
    attempts: int = attrs.field(default=1, eq=False, repr=False)
    output: tuple[str, ...] = attrs.field(default=(), eq=False, repr=False)
    notes: tuple[str, ...] = attrs.field(default=(), eq=False, repr=False)
    history: tuple[Attempt, ...] = attrs.field(default=(), eq=False, repr=False)
    peak_memory: int = attrs.field(default=0, eq=False, repr=False)

    ok: ClassVar[bool] = False

    @property
    def value(self) -> NoReturn:
        """Never a value.

        Raises:
            NoValue: always, with the remote traceback.
        """
        raise NoValue(f"{self.operator or 'the expression'} failed: {self.summary}\n\n{self._details}".rstrip())

    @property
    def _details(self) -> str:
        """The traceback; without one the notes (which tracebacks show) and the last lines of output."""
        return self.traceback or "\n".join((*self.notes, *(f"│ {line}" for line in self.output)))

    @property
    def summary(self) -> str:
        """One line: the exception and its message."""
        return _in_short(self.exception, self.message)

    @property
    def record(self) -> dict[str, Any]:
        """What happened, as records write it; the rest of a record says where and how."""
        found = {name: getattr(self, name) for name in ("kind", "exception", "message", "traceback")}
        return {**found, "notes": list(self.notes)}


_NAMED = 2
_LONG_TITLE = 40
_LONGEST = 160


def _called(title: str) -> str:
    """The title of a call, or only the operator's name when the whole is long."""
    return title if len(title) <= _LONG_TITLE else title.partition("(")[0]


def _in_short(exception: str, message: str) -> str:
    """An exception as one line of bounded length; the whole message is in its record."""
    first = (message.strip().splitlines() or [""])[0]
    line = f"{exception.rpartition('.')[2]}: {first}" if first else exception.rpartition(".")[2]
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


@attrs.frozen
class Blame:
    """A failed ancestor of a skipped expression."""

    operator: str
    kind: FailureKind
    exception: str
    message: str


@attrs.frozen
class Skipped:
    """An expression was not evaluated, because something it needs failed."""

    because: tuple[Blame, ...]

    ok: ClassVar[bool] = False

    @property
    def value(self) -> NoReturn:
        """Never a value.

        Raises:
            NoValue: always, naming what failed.
        """
        raise NoValue(f"skipped: {self.summary}")

    @property
    def summary(self) -> str:
        """One line naming the failed ancestors; of many the first ones."""
        named = [
            f"{_called(found.operator)} failed ({_in_short(found.exception, found.message)})" for found in self.because
        ]
        more = f" and {len(named) - _NAMED} more failed" if len(named) > _NAMED else ""
        return "; ".join(named[:_NAMED]) + more


Outcome = Ok[Any] | Failed | Skipped


def blame(outcome: Failed | Skipped) -> tuple[Blame, ...]:
    """What a dependent of this outcome is skipped because of."""
    if isinstance(outcome, Skipped):
        return outcome.because
    return (Blame(outcome.operator, outcome.kind, outcome.exception, outcome.message),)


register_codec(
    Ok,
    name="marin:Ok",
    to_fields=lambda ok: {"value": ok.value},
    from_fields=lambda fields: Ok(fields["value"]),
)
register_codec(
    Failed,
    name="marin:Failed",
    to_fields=lambda failed: {"kind": failed.kind, "exception": failed.exception, "message": failed.message},
    from_fields=lambda fields: Failed(**fields),
)
register_codec(
    Blame,
    name="marin:Blame",
    to_fields=lambda found: attrs.asdict(found, recurse=False),
    from_fields=lambda fields: Blame(**fields),
)
register_codec(
    Skipped,
    name="marin:Skipped",
    to_fields=lambda skipped: {"because": list(skipped.because)},
    from_fields=lambda fields: Skipped(tuple(fields["because"])),
)
