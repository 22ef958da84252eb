"""Lengths of time as people write them."""

from __future__ import annotations

import datetime
import math
import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|m|h|d)")


def seconds_of(given: str | float | datetime.timedelta) -> float:
    """A length of time in seconds.

    >>> seconds_of("2h"), seconds_of("1h 30m"), seconds_of("1.5m"), seconds_of(90)
    (7200.0, 5400.0, 90.0, 90.0)

    Raises:
        ValueError: it is no length of time, or is none at all.
    """
    if isinstance(given, datetime.timedelta):
        found = given.total_seconds()
    elif isinstance(given, int | float) and not isinstance(given, bool):
        found = float(given)
    else:
        found = _read(given) if isinstance(given, str) else math.nan
    if not found > 0:
        raise ValueError(
            f"{given!r} is no length of time; write '90s', '1.5m', '2h', '1d', '1h 30m', a number of seconds or a "
            "datetime.timedelta, more than nothing"
        )
    return found


def _read(text: str) -> float:
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        return math.nan
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def spelled(seconds: float) -> str:
    """Seconds as `seconds_of` reads them.

    >>> spelled(5400), spelled(0.25), spelled(2)
    ('1h 30m', '0.25s', '2s')
    """
    if seconds < 60 or seconds != int(seconds):
        return f"{seconds:g}s"
    units = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    found, rest = [], int(seconds)
    for size, unit in units:
        count, rest = divmod(rest, size)
        found += [f"{count}{unit}"] if count else []
    return " ".join(found)
