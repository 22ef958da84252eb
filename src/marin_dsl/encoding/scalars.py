"""Small immutable standard types, each written as its name and plain values."""

from __future__ import annotations

import datetime
import decimal
import fractions
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

import attrs

from marin_dsl.encoding.registry import Unencodable


@attrs.frozen
class SimpleKind:
    """A standard type: its name in the encoding, to plain values, and back."""

    name: str
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]


def _zone_to_plain(zone: datetime.tzinfo | None, given: object) -> list[Any]:
    if isinstance(zone, zoneinfo.ZoneInfo) and zone.key is not None:
        return ["zone", zone.key]
    if type(zone) is datetime.timezone:
        return ["offset", _timedelta_to_plain(zone.utcoffset(None))]
    raise Unencodable(f"{given!r} has no time zone that can be written; give it one, e.g. tzinfo=datetime.timezone.utc")


def _zone_from_plain(plain: Any) -> datetime.tzinfo:
    kind, content = plain
    return zoneinfo.ZoneInfo(content) if kind == "zone" else datetime.timezone(datetime.timedelta(*content))


def _timedelta_to_plain(value: datetime.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _datetime_to_plain(value: datetime.datetime) -> list[Any]:
    return [value.replace(tzinfo=None, fold=0).isoformat(), _zone_to_plain(value.tzinfo, value), value.fold]


def _datetime_from_plain(plain: Any) -> datetime.datetime:
    moment, zone, fold = plain
    return datetime.datetime.fromisoformat(moment).replace(tzinfo=_zone_from_plain(zone), fold=fold)


def _decimal_to_plain(value: decimal.Decimal) -> list[Any]:
    sign, digits, exponent = value.as_tuple()
    return [sign, "".join(map(str, digits)), exponent]


def _decimal_from_plain(plain: Any) -> decimal.Decimal:
    sign, digits, exponent = plain
    return decimal.Decimal((sign, tuple(map(int, digits)), exponent))


SIMPLE_KINDS: dict[type, SimpleKind] = {
    complex: SimpleKind("complex", lambda v: [v.real, v.imag], lambda p: complex(*p)),
    range: SimpleKind("range", lambda v: [v.start, v.stop, v.step], lambda p: range(*p)),
    decimal.Decimal: SimpleKind("decimal", _decimal_to_plain, _decimal_from_plain),
    fractions.Fraction: SimpleKind(
        "fraction", lambda v: [v.numerator, v.denominator], lambda p: fractions.Fraction(*p)
    ),
    uuid.UUID: SimpleKind("uuid", lambda v: v.bytes, lambda p: uuid.UUID(bytes=p)),
    datetime.date: SimpleKind("date", lambda v: v.isoformat(), datetime.date.fromisoformat),
    datetime.timedelta: SimpleKind("timedelta", _timedelta_to_plain, lambda p: datetime.timedelta(*p)),
    datetime.datetime: SimpleKind("datetime", _datetime_to_plain, _datetime_from_plain),
}
KINDS_BY_NAME: dict[str, SimpleKind] = {kind.name: kind for kind in SIMPLE_KINDS.values()}
