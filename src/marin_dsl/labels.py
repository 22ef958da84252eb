"""Labels: a name and a version that a person gave to an expression, kept as an append-only log."""

from __future__ import annotations

import datetime
import getpass
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs

from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression import Expression, caller, walk
from marin_dsl.expression.annotations import Label
from marin_dsl.expression.inline import INLINE, Recall
from marin_dsl.store import Store, StoredValue

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
_VERSION = re.compile(r"[a-z0-9][a-z0-9._-]*")


class LabelConflict(ValueError):
    """One name@version stands for two different recipes."""


def check_label(name: str, version: str) -> Label:
    """A label, if name and version can be one on every file system.

    Raises:
        ValueError: they cannot; the message says what is allowed.
    """
    for what, text, pattern, allowed in (
        ("name", name, _NAME, "lower-case letters, digits, `.`, `_`, `-`, and `/` between parts"),
        ("version", version, _VERSION, "lower-case letters, digits, `.`, `_` and `-`"),
    ):
        if not isinstance(text, str) or not pattern.fullmatch(text) or ".." in text or len(text) > 200:
            raise ValueError(f"{text!r} cannot be the {what} of a label: use {allowed}, such as first-model and 1.0")
    return Label(name, version)


def check_unique(roots: Sequence[Expression[Any]]) -> None:
    """Make sure that no label stands for two recipes, at the roots and anywhere below them.

    Raises:
        LabelConflict: one does; the message names both places.
    """
    seen: dict[Label, Expression[Any]] = {}
    for expression in _met(roots):
        if expression.label is None:
            continue
        other = seen.setdefault(expression.label, expression)
        if other.key != expression.key:
            raise LabelConflict(
                f"{expression.label} names two different recipes in one run: {_origin(other)} and "
                f"{_origin(expression)}; give one of them another version"
            )


def _met(roots: Sequence[Expression[Any]]) -> Iterator[Expression[Any]]:
    """Every mention of an expression: equal ones may have different labels, so none stands for another here."""
    yield from roots
    for expression in walk(*roots):
        yield from expression.references


def _origin(expression: Expression[Any]) -> str:
    place = f" ({expression.origin[0]}:{expression.origin[1]})" if expression.origin else ""
    return f"{expression!r}{place}"


@attrs.frozen
class Entry:
    """One line of a label's log: which recipe it stands for since when.

    Attributes:
        recipe: recipe key.
        value: where the value is that the recipe had then.
        number: position in the log, from 1.
        since: time with zone, ISO 8601.
    """

    recipe: bytes
    value: StoredValue
    number: int
    since: str


def current(store: Store, label: Label) -> Entry | None:
    """What a label stands for now; None when it was never recorded."""
    record = store.last(_folder(label))
    if record is None:
        return None
    value = StoredValue.from_record(record["value"])
    return Entry(parse_digest(record["recipe"]), value, record["number"], record["since"])


def move(store: Store, label: Label, recipe: bytes, value: StoredValue, run: str) -> Entry:
    """Append a recipe and its value to a label's log; from now on the label stands for them."""
    since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    record = {"recipe": format_digest(recipe), "value": value.as_record(), "since": since, "run": run, "by": _user()}
    return Entry(recipe, value, store.add(_folder(label), record), since)


def recall(label: str) -> Expression[Any]:
    """The value that a label stands for in the store of the evaluation, whatever it was made from.

    The label is looked up in each run: where it stands for another value by then, what is made of it runs again.

    Args:
        label: `name@version`.

    Raises:
        ValueError: that is no label.
    """
    name, at, version = label.partition("@") if isinstance(label, str) else ("", "", "")
    if not at:
        raise ValueError(f"recall({label!r}): a label is written name@version, such as recall('first-model@1.0')")
    return Expression.apply(INLINE["recall"], {"label": str(check_label(name, version))}, origin=caller(1))


def recalled(store: Store, text: str) -> StoredValue:
    """Where the value of a label is.

    Raises:
        LookupError: the store does not know the label, or has lost its value.
    """
    name, _, version = text.partition("@")
    found = current(store, Label(name, version))
    if found is None:
        known = [each.removeprefix("@") for each in store.files.names(f"labels/{name}") if each.startswith("@")]
        there = f"of {name} it has the versions {', '.join(known)}" if known else f"it has no label of the name {name}"
        raise LabelMissing(f"store {store.url} has no label {text}; {there}")
    if not store.complete(found.value):
        raise LabelMissing(f"store {store.url} has lost the value of {text}; evaluate what it was made from again")
    return found.value


class LabelMissing(LookupError):
    """A store does not know a label, or has lost what it stood for."""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run under a number that has no name
        return "unknown"


def last_run(store: Store, label: Label) -> bytes | None:
    """The recipe that was last evaluated under a label, whatever the label stands for; None if none was."""
    record = store.last(_folder(label, "history"))
    return None if record is None else parse_digest(record["recipe"])


def remember(store: Store, label: Label, recipe: bytes, run: str, target: str) -> None:
    """Record that a recipe was evaluated under a label; what the label stands for stays."""
    store.add(_folder(label, "history"), {"recipe": format_digest(recipe), "run": run, "target": target})


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
    """

    kind: Literal["stands for", "evaluated"]
    at: str
    recipe: str
    run: str
    by: str = ""
    target: str = ""


def log(store: Store, label: Label) -> list[Happening]:
    """All that happened to a label, the latest first."""
    moves = [
        Happening("stands for", record["since"], record["recipe"], record["run"], by=record["by"])
        for record in _records(store, _folder(label))
    ]
    evaluated = [
        Happening("evaluated", _began(record["run"]), record["recipe"], record["run"], target=record["target"])
        for record in _records(store, _folder(label, "history"))
    ]
    in_order = sorted([*evaluated, *moves], key=lambda found: datetime.datetime.fromisoformat(found.at))
    return in_order[::-1]


def _records(store: Store, folder: str) -> Iterator[dict[str, Any]]:
    for name in store.files.names(folder):
        record = store.read(f"{folder}/{name}")
        if record is not None:
            yield record


def _began(run: str) -> str:
    """When a run began, which its id says."""
    began = datetime.datetime.strptime(run[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    return began.astimezone().isoformat(timespec="seconds")


def _folder(label: Label, kind: str = "labels") -> str:
    # `@` keeps the versions of a name apart from names below it: `a@b` is never a folder of the name `a/b`.
    return f"{kind}/{label.name}/@{label.version}"


INLINE["recall"] = Recall("recall")
