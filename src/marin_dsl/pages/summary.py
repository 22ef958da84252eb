"""A page about whatever is recorded: what it came to, in short; how it came about is the evidence beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from marin_dsl.encoding import LeafMissing, Named, Undecodable, decode
from marin_dsl.expression.recipe import short, shortened
from marin_dsl.lineage.inspection import Inspection, inspect
from marin_dsl.lineage.subject import Subject
from marin_dsl.pages.content import Cell, Column, Listing, Missing, Page, Section, Table
from marin_dsl.quantities import memory
from marin_dsl.store import Store, StoredValue

_ROWS, _COLUMNS, _READABLE = 50, 8, 4 << 20


def page_of(store: Store, subject: Subject, stored: StoredValue | None) -> Page:
    """The page that is the value of an expression, or else one about the expression.

    Args:
        store: where it is recorded.
        subject: what was named.
        stored: where its value is, if it has one.

    Raises:
        NotRecorded: the store has no record of it.
    """
    thing = inspect(store, subject)
    value = None if stored is None else _value(store, stored)
    return value if isinstance(value, Page) else _about(thing, stored, value)


def _value(store: Store, stored: StoredValue) -> Any:
    """A value as far as it is for eyes; what cannot be read, or is too large to be looked at, is None."""
    try:
        data = store.manifest(stored)
        if len(data) > _READABLE:
            return None
        try:
            found = decode(data, read_leaf=store.read_leaf, lazy=True)
        except Undecodable:  # its class is not known here
            found = None
        if isinstance(found, Page):
            return decode(data, read_leaf=store.read_leaf)
        return decode(data, lazy=True, nameless=True)
    except (LeafMissing, Undecodable):
        return None


def _about(thing: Inspection, stored: StoredValue | None, value: Any) -> Page:
    verdicts = {
        "failed": f"It failed: {thing.failed[-1].summary}" if thing.failed else "It failed.",
        "skipped": f"It was skipped, because {' and '.join(thing.because[:2])} failed.",
        "not evaluated": "It has not been evaluated.",
    }
    came = "It has no value of its own." if stored is None else f"It came to {_said(value)}."
    return Page(
        title=thing.label or thing.title,
        question=f"What did {thing.title} come to, and how?",
        answer="" if stored is None else f"The value is {_kind(value)}, and takes {memory(_size(thing, stored))}.",
        verdict=verdicts.get(thing.status, came) if stored is None else came,
        sections=tuple(_sections(thing, value)),
    )


def _size(thing: Inspection, stored: StoredValue) -> int:
    if thing.value is not None:
        return thing.value.size
    return len(stored.inline or b"") + sum(size for _, size in stored.leaves)


def _said(value: Any) -> str:
    return "a value that is not shown here" if value is None else short(value, 80)


def _kind(value: Any) -> str:
    if isinstance(value, Named):
        return _one(value.name.rpartition(":")[2])
    if isinstance(value, list | tuple | dict | str | bytes):
        return f"{_one(type(value).__name__)} of {len(value):,}"
    return _one(type(value).__name__) if value is not None else "not shown here"


def _one(name: str) -> str:
    """A name with its article.

    >>> _one("int"), _one("float")
    ('an int', 'a float')
    """
    return f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def _sections(thing: Inspection, value: Any) -> Iterator[Section]:
    table = _table(value)
    if table is not None:
        yield table
    elif thing.value is not None:
        yield Listing("The value", "Shortened; what is left out is counted.", "\n".join(thing.value.lines))
    if thing.arguments:
        rows = [(item.name, item.text) for item in (*thing.arguments, *thing.facts)]
        yield Table("What it was made from", "The arguments of its call.", (Column("argument"), Column("value")), rows)
    if thing.observations:
        seen = tuple(thing.observations.items())
        columns = (Column("observation"), Column("value"))
        yield Table("Observations", "What its operator measured.", columns, seen)
    if thing.output:
        yield Listing("Output", "The last lines that its operator logged.", "\n".join(thing.output))


def _table(value: Any) -> Table | None:
    """A table of a value that is one: named numbers and texts, or several of the same names."""
    rows = value if isinstance(value, list | tuple) else None
    if rows and all(isinstance(_fields(row), dict) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in _fields(row) or ()))
        if 0 < len(names) <= _COLUMNS and all(isinstance(name, str) for name in names):
            return _rows_table(rows, names)
    fields = _fields(value)
    if not fields or not all(isinstance(name, str) for name in fields):
        return None
    shown = [(shortened(name, 60), short(item, 160)) for name, item in list(fields.items())[:_ROWS]]
    return Table("The value", _counted(len(fields)), (Column("name"), Column("value")), shown)


def _rows_table(rows: Any, names: list[str]) -> Table:
    columns = (Column("no."), *(Column(shortened(name, 40), digits=4) for name in names))
    absent = Missing("not in this one", "absent")
    cells = []
    for number, row in enumerate(rows[:_ROWS]):
        fields = _fields(row) or {}
        cells.append((str(number), *(_cell(fields[name]) if name in fields else absent for name in names)))
    return Table("The value", _counted(len(rows)), columns, cells)


def _counted(number: int) -> str:
    return f"The first {_ROWS} of {number:,}." if number > _ROWS else "All of it."


def _fields(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, Named):
        return dict(value.fields)
    return value if isinstance(value, dict) else None


def _cell(value: Any) -> Cell:
    return value if isinstance(value, int | float | bool) and abs(value) < 1e15 else short(value, 60)
