"""How two results differ: place by place, by their encodings, and numbers by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from marin_dsl.encoding import Named
from marin_dsl.lineage.difference import alike, told

ABSENT = "(absent)"
_LONG = 60


@attrs.frozen
class ValueChange:
    """One place at which two values differ.

    Attributes:
        path: the place (`scores[3].loss`); empty for the whole.
        old: what was there, shortened.
        new: what is there now, shortened.
        absolute: new - old, where both are numbers; the largest difference, where both are arrays of one shape.
        relative: the same in parts of the old one, where that is not 0.
    """

    path: str
    old: str
    new: str
    absolute: float | None = None
    relative: float | None = None

    def __str__(self) -> str:
        place = f"{self.path}  " if self.path else ""
        return f"{place}{self.old} → {self.new}{self.by}"

    @property
    def by(self) -> str:
        """By how much a number changed, in brackets."""
        if self.absolute is None:
            return ""
        relative = f", {self.relative:+.3g}×" if self.relative is not None and abs(self.relative) >= 10 else ""
        if self.relative is not None and not relative:
            relative = f", {100 * self.relative:+.3g} %"
        return f"  ({self.absolute:+.6g}{relative})"


def value_changes(old: Any, new: Any) -> Iterator[ValueChange]:
    """Every place at which two decoded values differ, in their order; none if and only if they encode alike.

    Args:
        old: the earlier value; objects of classes as `Named`, large parts unread.
        new: the later value.
    """
    stack = [("", old, new)]
    while stack:
        path, before, after = stack.pop()
        if not _differ(before, after):
            continue
        members = None if before is _Absent or after is _Absent else _members(path, before, after)
        if members is None:
            yield ValueChange(path, _said(before), _said(after), *_by(before, after))
        else:
            stack += reversed(members)


class _Absent:
    """There is nothing at this place."""


def _said(value: Any) -> str:
    return ABSENT if value is _Absent else told(value, _LONG)


_Members = list[tuple[str, Any, Any]]


def _members(path: str, old: Any, new: Any) -> _Members | None:
    """The parts of two values, paired by place; None where they are to be told as wholes."""
    if isinstance(old, Named) and isinstance(new, Named) and old.name == new.name:
        old, new = dict(old.fields), dict(new.fields)
    if isinstance(old, dict) and isinstance(new, dict):
        return _items(path, old, new)
    if isinstance(old, list | tuple) and type(old) is type(new):
        longest = max(len(old), len(new))
        return [(f"{path}[{place}]", _at(old, place), _at(new, place)) for place in range(longest)] or None
    return None


def _at(values: Any, place: int) -> Any:
    return values[place] if place < len(values) else _Absent


def _items(path: str, old: Mapping[Any, Any], new: Mapping[Any, Any]) -> _Members | None:
    keys = {**dict.fromkeys(old), **dict.fromkeys(new)}
    found = [(_under(path, key), old.get(key, _Absent), new.get(key, _Absent)) for key in keys]
    # Keys that a dict takes for one (1, 1.0, True) are several for the encoding: then the wholes are told.
    return found if any(_differ(before, after) for _, before, after in found) else None


def _differ(old: Any, new: Any) -> bool:
    return old is _Absent or new is _Absent or not alike(old, new)


def _under(path: str, key: Any) -> str:
    name = key if isinstance(key, str) else told(key, 24)
    return f"{path}.{name}" if path else name


def _by(old: Any, new: Any) -> tuple[float | None, float | None]:
    """By how much a number, or the most of an array, changed: absolute, relative."""
    if _is_number(old) and _is_number(new):
        try:
            by, whole = float(new - old), abs(float(old))
        except OverflowError:  # whole numbers that no float can hold
            return None, None
        return _relative(by, whole)
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray) and old.shape == new.shape and old.size:
        if old.dtype != new.dtype or old.dtype.kind not in "iuf":
            return None, None
        by = float(np.max(np.abs(new.astype(np.float64) - old.astype(np.float64))))
        whole = float(np.max(np.abs(old.astype(np.float64))))
        return _relative(by, whole)
    return None, None


def _relative(by: float, whole: float) -> tuple[float | None, float | None]:
    if by == 0 or not math.isfinite(by):
        return None, None  # equal numbers of different types; or infinite ones
    return by, by / whole if whole else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
