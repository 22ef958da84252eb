"""Equality of values that looks at types and bits; written without the encoding, so that it can be held against it."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import struct
from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np


def same(one: Any, other: Any) -> bool:
    """Whether two values are one typed value: `1`, `1.0` and `True` are three, `0.0` and `-0.0` two, NaN is itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return _same_array(one, other)
    if isinstance(one, enum.Flag):
        return one.value == other.value  # Python makes those with bits that have no name anew each time
    if isinstance(one, enum.Enum):
        return one is other
    if dataclasses.is_dataclass(one) or attrs.has(type(one)):
        names = _field_names(type(one))
        return all(same(getattr(one, name, None), getattr(other, name, None)) for name in names)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return _same_members(one.items(), other.items())
    if isinstance(one, set | frozenset):
        return _same_members(one, other)
    return _same_scalar(one, other)


def _same_array(one: Any, other: Any) -> bool:
    if isinstance(one, np.str_ | np.bytes_):
        return bool(one == other)
    one, other = (np.asarray(array, array.dtype.newbyteorder("<")) for array in (one, other))
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _same_members(some: Iterable[Any], others: Iterable[Any]) -> bool:
    left = list(others)
    for member in some:
        place = next((n for n, candidate in enumerate(left) if same(member, candidate)), None)
        if place is None:
            return False
        del left[place]
    return not left


def _same_scalar(one: Any, other: Any) -> bool:
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other) or (one != one and other != other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, decimal.Decimal):
        return one.as_tuple() == other.as_tuple()
    if isinstance(one, range):
        return (one.start, one.stop, one.step) == (other.start, other.stop, other.step)
    if isinstance(one, datetime.datetime):
        return one.replace(tzinfo=None) == other.replace(tzinfo=None) and _same_zone(one, other)
    return bool(one == other)


def _same_zone(one: datetime.datetime, other: datetime.datetime) -> bool:
    zone, another = one.tzinfo, other.tzinfo
    named_alike = type(zone) is type(another) and (zone == another or str(zone) == str(another))
    return named_alike and one.fold == other.fold


def _field_names(cls: Any) -> list[str]:
    return [field.name for field in (attrs.fields(cls) if attrs.has(cls) else dataclasses.fields(cls))]
