"""What the records of a store consist of: for records that somebody else gives, which may be anything.

A record with a right digest can still be one that no store writes. What is read of records by name is looked at here,
so that whoever takes them in refuses them at once and nothing meets them later.
"""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any

from marin_dsl.encoding import parse_digest
from marin_dsl.expression.recipe import arguments, facts
from marin_dsl.store import StoredValue
from marin_dsl.store.closure import literal_leaves, values_in

Check = Callable[[Any], bool]


def misshapen(path: str, record: Mapping[str, Any]) -> str:
    """What a record has that none of its kind has; empty if it is as it should be.

    Args:
        path: where it is in a store.
        record: its content.
    """
    for name, check in _fields(path).items():
        plain = name.rstrip("_")
        if plain not in record:
            if name == plain:
                return f"it has no `{plain}`"
        elif not check(record[plain]):
            return f"its `{plain}` is no such thing"
    return "" if _readable(record) else "its parts do not fit together"


def _readable(record: Mapping[str, Any]) -> bool:
    """Whether what is decoded from a record can be; the result of a call without inputs has its expression in it."""
    try:
        list(values_in(record))
        if "payload" in record:
            arguments(record)
            facts(record)
            literal_leaves(record)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False
    return True


def _fields(path: str) -> dict[str, Check]:
    for pattern, fields in _KINDS:
        if re.fullmatch(pattern, path):
            return fields
    return {}


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _digest(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(parse_digest(value)) == 32
    except ValueError:
        return False


def _time(value: Any) -> bool:
    try:
        return isinstance(value, str) and datetime.datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _run(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]+|", value) is not None


def _base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and base64.b64decode(value, validate=True) is not None
    except ValueError:
        return False


def _hex(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("([0-9a-f]{2})*", value) is not None


def _stored(value: Any) -> bool:
    try:
        return isinstance(value, dict) and StoredValue.from_record(value) is not None
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _all(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _with(*, exactly: bool = False, **fields: Check) -> Check:
    """A record in a record; a field whose name ends in `_` may be left out, and `exactly` these may be there."""
    known = {name.rstrip("_") for name in fields}

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and not (exactly and value.keys() - known)
            and all(
                one(value[name.rstrip("_")]) if name.rstrip("_") in value else name.endswith("_")
                for name, one in fields.items()
            )
        )

    return check


_OPERATOR = _with(
    name=_text, identity=_digest, inline=_flag, version_=_maybe(_text), code_=_maybe(_digest), pinned_=_each(_text),
    listing_=_maybe(_stored), unseen_=_all(_text),
)  # fmt: skip
_CALLED = _with(name=_text, version=_maybe(_text), code=_maybe(_digest))
_MADE = _with(
    run=_run, started=_text, ended=_text, seconds=_number, host=_text, pid=_number, peak_memory=_maybe(_number),
    thread_=_text,
)  # fmt: skip
_ATTEMPT = _with(exactly=True, kind=_text, exception=_text, message=_text, where=_text, ended=_text, seconds=_number)
_FAILURE = _with(exactly=True, kind=_text, exception=_text, message=_text, traceback=_text, notes_=_all(_text))
_MADE_BY: dict[str, Check] = {
    "call": _digest, "title": _text, "operator": _CALLED, "output": _all(_text), "provenance": _MADE,
    "history_": _all(_ATTEMPT), "inputs_": _all(_digest),
}  # fmt: skip

_COUNTS = _with(served=_number, run=_number, kept=_number, skipped=_number, open=_number)
_BLAME = _with(exactly=True, operator=_text, kind=_text, exception=_text, message=_text)
_EXPRESSION: dict[str, Check] = {
    "operator": _OPERATOR, "payload": _all(_base64), "references": _all(_digest), "title": _text,
    "facts_": _maybe(_base64),
    "label_": _maybe(_text),
}  # fmt: skip
_RESULT: dict[str, Check] = {**_MADE_BY, "value": _stored, "observations": _each(_stored), "over_failure": _flag}

_KINDS: tuple[tuple[str, dict[str, Check]], ...] = (
    (r"recipes/.*\.json", _EXPRESSION),
    (r"recipes/.*\.call", {"call": _digest, "volatile_": _flag, "made_by_": _hex}),
    (r"recipes/.*\.next", {"recipe": _digest}),
    (r"results/.*|conflicts/.*", _RESULT),
    (r"failures/.*", {**_MADE_BY, "failure": _FAILURE}),
    (r"labels/.*", {
        "recipe": _digest, "value_": _stored, "since": _time, "run_": _run, "by_": _text, "why_": _text,
        "adopted_": _maybe(_text),
    }),
    (r"skips/.*", {"because": _all(_BLAME)}),
    (r"history/.*", {"recipe": _digest, "run": lambda run: bool(run) and _run(run), "target": _text}),
    (r"runs/.*/start/.*", {
        "run": _run, "target": _text, "command": _text, "started": _time, "environment": _stored, "sources_": _stored,
        "roots": _all(_with(recipe=_digest, label=_maybe(_text))), "keep_failures": _flag, "reasons": _each(_text),
        "note_": _text, "drift_": _text,
    }),
    (r"runs/.*/end/.*", {"outcomes": _each(_text), "counts": _COUNTS, "ran": _number, "seconds": _number}),
)  # fmt: skip
