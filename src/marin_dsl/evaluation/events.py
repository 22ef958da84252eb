"""What happens during a run, as events: typed records, and lines of a log that a kill leaves readable.

An event travels as a plain dict with its kind under `event`, since workers send it between processes; here it gets its
type. What they lead to is in `state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import attrs

from marin_dsl.json_bytes import json_bytes

SCHEMA = 1
"""Version of the events in a log; events of kinds that are not known here are passed over."""


@attrs.frozen
class Event:
    """Something that happened.

    Attributes:
        at: when, in seconds since the epoch.
    """

    kinds: ClassVar[tuple[str, ...]] = ()

    at: float = attrs.field(default=0.0, converter=float)


def _counts(found: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(count) for name, count in found.items()}


@attrs.frozen(kw_only=True)
class Found(Event):
    """A value made the run go on with more expressions.

    Attributes:
        nodes: how many expressions (inline ones aside) were looked up for the first time.
        hits: how many of them were served by their recipes.
        operators: how many are to run, by operator.
    """

    kinds: ClassVar[tuple[str, ...]] = ("found",)

    nodes: int = attrs.field(default=0, converter=int)
    hits: int = attrs.field(default=0, converter=int)
    operators: Mapping[str, int] = attrs.field(factory=dict, converter=_counts)


@attrs.frozen(kw_only=True)
class Planned(Found):
    """The first descent through the store has ended; what is missing is known.

    Attributes:
        run: id of the run.
        store: where results are looked up.
        durations: seconds that a call of an operator took in earlier runs, where that is known.
    """

    kinds: ClassVar = ("planned",)

    run: str = ""
    store: str = ""
    durations: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Started(Event):
    """Workers are there."""

    kinds: ClassVar = ("started",)

    place: str = ""
    dashboard: str = ""


@attrs.frozen(kw_only=True)
class Running(Event):
    """A call began."""

    kinds: ClassVar = ("running",)

    call: str
    title: str


@attrs.frozen(kw_only=True)
class Progress(Event):
    """A running call says how far it is: `done`, `total` and `facts` in its content."""

    kinds: ClassVar = ("progress",)

    call: str
    title: str
    content: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Logged(Event):
    """A running call says something."""

    kinds: ClassVar = ("log",)

    call: str
    title: str
    content: str


@attrs.frozen(kw_only=True)
class Continued(Event):
    """A call has returned an expression, and its outcome is what becomes of that."""

    kinds: ClassVar = ("continued",)

    call: str


@attrs.frozen(kw_only=True)
class Retried(Event):
    """A call failed and will be tried again.

    Attributes:
        attempt: the number of the next attempt.
        kind: kind of the failure.
        reason: the failure in short.
        seconds: when the next attempt is due, from now.
    """

    kinds: ClassVar = ("retry",)

    call: str
    title: str
    attempt: int
    kind: str
    reason: str
    seconds: float


@attrs.frozen(kw_only=True)
class Elsewhere(Event):
    """Somebody else is working on a call, and its result is waited for."""

    kinds: ClassVar = ("elsewhere",)

    call: str
    title: str
    by: str


@attrs.frozen(kw_only=True)
class Settled(Event):
    """A node got its outcome.

    Attributes:
        event: which outcome.
        recipe: recipe key of the node.
        call: its call key, if its inputs had values.
        title: what people call it.
        operator: name of its operator.
        how: where the outcome comes from: `run`, `cutoff`, `kept`, `skipped`, ...
        seconds: how long it ran.
        reason: why there is no value.
    """

    kinds: ClassVar = ("ok", "failed", "skipped")

    event: Literal["ok", "failed", "skipped"]
    recipe: str
    title: str
    call: str | None = None
    operator: str = ""
    how: str = "run"
    seconds: float | None = None
    reason: str | None = None


@attrs.frozen(kw_only=True)
class Conflicted(Event):
    """A call came to something else than the value that is kept of it: its operator is not deterministic.

    Attributes:
        kept: digest of the value that is kept.
        found: what it came to this time.
    """

    kinds: ClassVar = ("conflict",)

    title: str
    found: str
    call: str | None = None
    kept: str | None = None


@attrs.frozen(kw_only=True)
class Drifted(Event):
    """A label was recorded for another recipe than the one that is wanted.

    Attributes:
        label: the label.
        since: since when it stands for what it does.
        lines: what differs.
        code: the lines of unified diffs.
        headline: what it stands for, in one line.
        policy: what the run does about it.
    """

    kinds: ClassVar = ("drift",)

    label: str
    since: str = ""
    lines: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    code: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    headline: str = ""
    policy: str = "advise"


@attrs.frozen(kw_only=True)
class CodeDrifted(Event):
    """The code of an operator changed though its version did not, and values that it made are served."""

    kinds: ClassVar = ("code drift",)

    operator: str
    version: str
    title: str
    headline: str = ""
    code: tuple[str, ...] = attrs.field(default=(), converter=tuple)


@attrs.frozen(kw_only=True)
class Same(Event):
    """A value is served since somebody said that the expression stands for another one, the old one."""

    kinds: ClassVar = ("same",)

    title: str
    old: str
    by: str = ""
    since: str = ""
    why: str = ""


@attrs.frozen(kw_only=True)
class Interrupted(Event):
    """The user stopped the run."""

    kinds: ClassVar = ("interrupted",)


@attrs.frozen(kw_only=True)
class Finished(Event):
    """The run came to its end.

    Attributes:
        ran: how many calls were executed.
        outcomes: the outcome of each root (`Ok`, `Failed`, `Skipped`) by recipe key.
    """

    kinds: ClassVar = ("finished",)

    ran: int = 0
    outcomes: Mapping[str, str] = attrs.field(factory=dict)


_ALL = (
    Planned,
    Found,
    Started,
    Running,
    Progress,
    Logged,
    Continued,
    Retried,
    Elsewhere,
    Settled,
    Conflicted,
    Drifted,
    CodeDrifted,
    Same,
    Interrupted,
    Finished,
)
_TYPES: dict[str, type[Event]] = {kind: found for found in _ALL for kind in found.kinds}
_FIELDS = {found: frozenset(attrs.fields_dict(found)) for found in _TYPES.values()}
_FORMS = {"str": str, "str | None": str | None}
_TEXTS = {
    found: {field.name: _FORMS[field.type] for field in attrs.fields(found) if field.type in _FORMS}
    for found in _TYPES.values()
}


def event_of(record: Mapping[str, Any]) -> Event | None:
    """The event that a dict tells of; None when its kind is not known here, or something of it is missing or wrong."""
    kind = record.get("event")
    found = _TYPES.get(kind) if isinstance(kind, str) else None
    if found is None or not all(isinstance(record.get(name, ""), wanted) for name, wanted in _TEXTS[found].items()):
        return None
    try:
        return found(**{name: value for name, value in record.items() if name in _FIELDS[found]})
    except (TypeError, ValueError, AttributeError, OverflowError):
        return None


def line_of(event: dict[str, Any]) -> bytes:
    """An event as a line of a log."""
    return b'{"schema":%d,%b\n' % (SCHEMA, json_bytes(event, default=str)[1:])
