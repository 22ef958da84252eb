"""What the records of a store consist of: for all that is read of one by name.

A record with a right digest can still be one that no store writes: somebody made it, or a later version under an old
number. What is read of records is looked at here, so that such a one counts as damaged at once and nothing meets it
later. Many are read in every evaluation, so this takes a few microseconds.
"""

from __future__ import annotations

import binascii
import datetime
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from marin_dsl.expression.recipe import arguments, facts, literal_leaves
from marin_dsl.store.files import home_of

Check = Callable[[Any], object]
"""From a part of a record to something that is true if the part is as it should be."""


def misshapen(path: str, record: Mapping[str, Any]) -> str:
    """What a record has that none of its kind has; empty if it is as it should be.

    Args:
        path: where it is in a store.
        record: its content.
    """
    kind = _kind(path)
    for name, needed, check in _KINDS.get(kind, ()):
        if name not in record:
            if needed:
                return f"it has no `{name}`"
        elif not check(record[name]):
            return f"its `{name}` is no such thing"
    return "" if kind != "recipes.json" or _readable(record) else "its parts do not fit together"


def _kind(path: str) -> str:
    """The kind of record that lies at a path, the trash apart: its folder, with what tells apart those in one.

    >>> _kind("recipes/ab/cd.call"), _kind("trash/runs/20261201T212952Z-8bba16/end/000001.json")
    ('recipes.call', 'runs/end')
    """
    folder, _, below = home_of(path).partition("/")
    if folder == "recipes":
        return f"recipes.{path.rpartition('.')[2]}"
    return f"runs/{below.split('/')[1]}" if folder == "runs" and below.count("/") == 2 else folder


def _readable(record: Mapping[str, Any]) -> bool:
    """Whether what is decoded from the record of an expression can be."""
    try:
        if not isinstance(arguments(record), dict) or not isinstance(facts(record), dict):
            return False
        literal_leaves(record)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
        return False
    return True


def _text(value: Any) -> bool:
    return type(value) is str


def _flag(value: Any) -> bool:
    return type(value) is bool


def _number(value: Any) -> bool:
    # What no float holds (JSON has such numbers) would be met wherever a duration is told.
    return type(value) in _NUMBERS and -_LARGE < value < _LARGE


_NUMBERS = (int, float)


_LARGE = 1e18


def _matching(pattern: str) -> Check:
    match = re.compile(pattern).fullmatch
    return lambda value: type(value) is str and match(value)


_digest, _hex = _matching("sha256:[0-9a-f]{64}"), _matching("(?:[0-9a-f]{2})*")
_label = _matching(r"(?!.*\.\.)[a-z0-9][a-z0-9._/-]*@[a-z0-9][a-z0-9._-]*")
_run_named = _matching(r"\d{8}T\d{6}Z-[0-9a-f]+")


def _time(value: Any) -> bool:
    try:
        return isinstance(value, str) and math.isfinite(_seconds(datetime.datetime.fromisoformat(value)))
    except (ValueError, OverflowError):
        return False


def _seconds(moment: datetime.datetime) -> float:
    if moment.tzinfo is None:
        raise ValueError(f"{moment} is of no zone")
    # The first and the last year are not there in every zone.
    return moment.timestamp() if 1900 < moment.year < 9000 else math.nan


def _run(value: Any) -> bool:
    """Whether something is the id of a run, which begins with a time."""
    if not _run_named(value):
        return False
    try:
        datetime.datetime.strptime(value[:16], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return False
    return True


def _maker(value: Any) -> object:
    """The id of a run, as records of what it made name it, of which there are many; empty where nobody made it."""
    return _run_named(value) or value == ""


def _base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and binascii.a2b_base64(value, strict_mode=True) is not None
    except ValueError:
        return False


def is_stored_value(value: Any) -> bool:
    """Whether a part of a record says where a value is."""
    if type(value) is not dict or value.keys() != _STORED:
        return False
    inline, leaves = value["inline"], value["leaves"]
    if not _digest(value["digest"]) or type(leaves) is not list or not (inline is None or _base64(inline)):
        return False
    return not leaves or all(map(_leaf, leaves))


_STORED = {"digest", "inline", "leaves"}


def _leaf(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and bool(_digest(value[0]))
        and type(value[1]) is int
        and 0 <= value[1] < _LARGE
    )


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _all(check: Check) -> Check:
    return lambda value: isinstance(value, list) and (not value or all(map(check, value)))


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and (not value or all(map(check, value.values())))


Fields = tuple[tuple[str, bool, Check], ...]


def _fields(checks: Mapping[str, Check]) -> Fields:
    """Names with whether they must be there, and what is there; one that ends in `_` may be left out."""
    return tuple((name.rstrip("_"), not name.endswith("_"), check) for name, check in checks.items())


def _with(*, exactly: bool = False, **checks: Check) -> Check:
    """A record in a record; a field whose name ends in `_` may be left out, and `exactly` these may be there."""
    fields = _fields(checks)
    known = {name for name, _, _ in fields}

    def check(value: Any) -> bool:
        if not isinstance(value, dict) or (exactly and value.keys() - known):
            return False
        for name, needed, one in fields:
            if name in value:
                if not one(value[name]):
                    return False
            elif needed:
                return False
        return True

    return check


_NAMED = _with(name=_text, identity=_digest, inline=_flag)
_CODED = _with(
    version=_maybe(_text), code=_digest, pinned_=_each(_text), listing_=_maybe(is_stored_value), unseen_=_all(_text)
)


def _operator(value: Any) -> bool:
    """What computes an expression; what is a part of the language has no code of its own."""
    return bool(_NAMED(value) and (value["inline"] or _CODED(value)))


_CALLED = _with(name=_text, version=_maybe(_text), code=_maybe(_digest))


def _made(value: Any) -> object:
    """Where and when something was made; written out, for it is looked at for each result that is served."""
    try:
        return (
            _maker(value["run"])
            and type(value["started"]) is type(value["ended"]) is type(value["host"]) is str
            and _number(value["seconds"])
            and _number(value["pid"])
            and (value["peak_memory"] is None or _number(value["peak_memory"]))
            and type(value.get("thread", "")) is str
        )
    except (KeyError, TypeError, AttributeError, IndexError):
        return False


_KIND = _matching("raised|timeout|killed|lost|unstorable|conflict")
_ATTEMPT = _with(exactly=True, kind=_KIND, exception=_text, message=_text, where=_text, ended=_text, seconds=_number)
_FAILURE = _with(exactly=True, kind=_KIND, exception=_text, message=_text, traceback=_text, notes_=_all(_text))
_MADE_BY: dict[str, Check] = {
    "call": _digest, "title": _text, "operator": _CALLED, "output": _all(_text), "provenance": _made,
    "history_": _all(_ATTEMPT), "inputs_": _all(_digest),
}  # fmt: skip
_COUNTS = _with(served=_number, run=_number, kept=_number, skipped=_number, open=_number)
_BLAME = _with(exactly=True, operator=_text, kind=_KIND, exception=_text, message=_text)
_SAID = {"old": _text, "by": _text, "since": _text, "why": _text}
_RESULT: dict[str, Check] = {
    **_MADE_BY, "value": is_stored_value, "observations": _each(is_stored_value), "over_failure": _flag,
    "stands_for_": _with(exactly=True, **_SAID),
}  # fmt: skip

_KINDS: dict[str, Fields] = {
    kind: _fields(checks)
    for kind, checks in {
        "recipes.json": {
            "operator": _operator, "payload": _all(_base64), "references": _all(_digest), "title": _text,
            "facts_": _maybe(_base64), "label_": _maybe(_label),
        },
        "recipes.call": {"call": _digest, "volatile_": _flag, "made_by_": _maybe(_hex)},
        "recipes.next": {"recipe": _digest},
        "results": _RESULT,
        "conflicts": _RESULT,
        "failures": {**_MADE_BY, "failure": _FAILURE},
        "skips": {"because": lambda value: value and _all(_BLAME)(value)},
        "labels": {
            "recipe": _digest, "value_": is_stored_value, "since": _time, "run_": _text, "by_": _text, "why_": _text,
            "adopted_": _maybe(_text),
        },
        "history": {"recipe": _digest, "run": _run, "target": _text},
        "equivalences": {"new": _digest, "value": _digest, "undone": _flag, **_SAID},
        "runs/start": {
            "run": _run, "target": _text, "command": _text, "started": _time, "environment": is_stored_value,
            "sources_": is_stored_value, "roots": _all(_with(recipe=_digest, label=_maybe(_label))),
            "keep_failures": _flag, "reasons": _each(_text), "note_": _text, "drift_": _text,
        },
        "runs/end": {"outcomes": _each(_text), "counts": _COUNTS, "ran": _number, "seconds": _number},
    }.items()
}  # fmt: skip
