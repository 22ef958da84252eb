"""The log of a label: what it stands for, since when and why; appended to, never changed."""

from __future__ import annotations

import datetime
import getpass
from collections.abc import Iterator
from typing import Any, Literal

import attrs

from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression.annotations import Label
from marin_dsl.store import Store, StoredValue
from marin_dsl.store.closure import label_folders


class LabelMoved(RuntimeError):
    """Somebody else moved a label after it was looked at; nothing was changed."""


class LabelFixed(ValueError):
    """A label stands for something and does not move without a reason."""


@attrs.frozen
class Entry:
    """One line of a label's log: which recipe it stands for since when.

    Attributes:
        recipe: recipe key.
        value: where the value is that the recipe had then.
        number: position in the log, from 1.
        since: time with zone, ISO 8601.
        by: the user.
        why: the reason that the user gave, if one was given.
        run: id of the run that computed or recorded it.
        adopted: where the data was that the label was given, if it was adopted.
    """

    recipe: bytes
    value: StoredValue
    number: int
    since: str
    by: str = ""
    why: str = ""
    run: str = ""
    adopted: str | None = None


def current(store: Store, label: Label) -> Entry | None:
    """What a label stands for now; None when it was never recorded."""
    record = store.last(folder(label))
    return None if record is None else _entry(store, record)


def _entry(store: Store, record: dict[str, Any]) -> Entry:
    said = {name: record[name] for name in ("by", "why", "run", "adopted") if name in record}
    value = StoredValue.from_record(record["value"]) if "value" in record else _value_of(store, record)
    return Entry(parse_digest(record["recipe"]), value, record["number"], record["since"], **said)


_GONE = StoredValue(bytes(32), None, ())
"""What stands for a value that is not known: nothing has this digest, so it is never there."""


def _value_of(store: Store, record: dict[str, Any]) -> StoredValue:
    """The value for an entry from before entries named it: that of the recipe's result, if it is still there."""
    call = store.call_of(parse_digest(record["recipe"]))
    result = None if call is None else store.result(call)
    return _GONE if result is None else StoredValue.from_record(result["value"])


def move(
    store: Store,
    label: Label,
    recipe: bytes,
    value: StoredValue,
    run: str = "",
    *,
    why: str = "",
    adopted: str | None = None,
    after: int | None = None,
) -> Entry:
    """Append a recipe and its value to a label's log; from now on the label stands for them.

    Args:
        store: where.
        label: which.
        recipe: recipe key.
        value: where its value is.
        run: id of the run that computed it.
        why: what the user says about it.
        adopted: where the data came from, if it was adopted.
        after: the number of the entry that was looked at (0 when there was none); None appends to whatever is there.

    Raises:
        LabelMoved: the label stands for something else than it did at `after`; nothing was changed.
    """
    since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    said = {"since": since, "run": run, "by": user(), "why": why, "adopted": adopted}
    record = {"recipe": format_digest(recipe), "value": value.as_record(), **said}
    place = folder(label)
    number = store.add(place, record) if after is None else _append(store, place, record, after)
    if number is None:
        raise LabelMoved(_moved(store, label))
    return _entry(store, {**record, "number": number})


def _append(store: Store, place: str, record: dict[str, Any], after: int) -> int | None:
    """Append to a log if its newest entry is still the one that was looked at; None if it is not."""
    # One listing for both questions: an entry that comes after it has the number that is to be created here.
    numbers = store.numbered(place)
    intact = (number for number, path in reversed(numbers.items()) if store.read(path) is not None)
    if next(intact, 0) != after:
        return None
    number = max(numbers, default=0) + 1
    return number if store.append(place, number, record) else None


def _moved(store: Store, label: Label) -> str:
    entry = current(store, label)
    by = "somebody" if entry is None else f"{entry.by or 'somebody'} ({entry.since})"
    to = "" if entry is None else f"; it stands for {format_digest(entry.recipe)} now"
    return f"{label} was moved meanwhile by {by}{to}; nothing was changed: look at it and decide again"


def user() -> str:
    """The name of the user, as far as the system knows one."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run under a number that has no name
        return "unknown"


def last_run(store: Store, label: Label) -> bytes | None:
    """The recipe that was last evaluated under a label, whatever the label stands for; None if none was."""
    record = store.last(folder(label, "history"))
    return None if record is None else parse_digest(record["recipe"])


def remember(store: Store, label: Label, recipe: bytes, run: str, target: str) -> None:
    """Record that a recipe was evaluated under a label; what the label stands for stays."""
    store.add(folder(label, "history"), {"recipe": format_digest(recipe), "run": run, "target": target})


@attrs.frozen
class Happening:
    """Something that happened to a label.

    Attributes:
        kind: `stands for` another recipe from now on, or a recipe was `evaluated` under it.
        at: when, ISO 8601.
        recipe: recipe key, `sha256:...`.
        run: id of the run that did it.
        by: the user, where that was recorded.
        target: how the user named what was evaluated.
        why: the reason that the user gave.
        adopted: where the data came from, if it was adopted.
    """

    kind: Literal["stands for", "evaluated"]
    at: str
    recipe: str
    run: str
    by: str = ""
    target: str = ""
    why: str = ""
    adopted: str | None = None


def log(store: Store, label: Label) -> list[Happening]:
    """All that happened to a label, the latest first."""
    moves = [
        Happening(
            "stands for", found.since, format_digest(found.recipe), found.run, found.by, "", found.why, found.adopted
        )
        for found in entries(store, label)
    ]
    evaluated = [
        Happening("evaluated", _began(record["run"]), record["recipe"], record["run"], target=record["target"])
        for record in _records(store, folder(label, "history"))
    ]
    in_order = sorted([*evaluated, *moves], key=lambda found: datetime.datetime.fromisoformat(found.at))
    return in_order[::-1]


def entries(store: Store, label: Label) -> list[Entry]:
    """What a label has stood for, the earliest first."""
    return [_entry(store, record) for record in _records(store, folder(label))]


def known(store: Store) -> list[Label]:
    """The labels of a store, by name and version."""
    return [Label(*text.rsplit("@", 1)) for text, _ in sorted(label_folders(store.files))]


def _records(store: Store, place: str) -> Iterator[dict[str, Any]]:
    for number, path in store.numbered(place).items():
        record = store.read(path)
        if record is not None:
            yield {**record, "number": number}


def _began(run: str) -> str:
    """When a run began, which its id says."""
    began = datetime.datetime.strptime(run[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    return began.astimezone().isoformat(timespec="seconds")


def folder(label: Label, kind: str = "labels") -> str:
    """Where the log of a label is; the versions of a name and names below it never meet."""
    # `@` begins no part of a name: `a@b` is never a folder of the name `a/b`.
    return f"{kind}/{label.name}/@{label.version}"
