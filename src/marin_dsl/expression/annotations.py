"""What is said of an expression and is never part of what it is: how to evaluate it, and what people call it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from marin_dsl.evaluation.durations import seconds_of


def _timeout(given: str | float | datetime.timedelta | None) -> float | None:
    if given is None:
        return None
    try:
        return seconds_of(given)
    except ValueError as error:
        raise ValueError(f"timeout: {error}") from None


def _retries(_: Any, __: Any, given: Any) -> None:
    if given is not None and (type(given) is not int or given < 0):
        raise ValueError(f"retries={given!r}: expected how often to try again, a number like 0, 1 or 2")


def _isolate(_: Any, __: Any, given: Any) -> None:
    if type(given) is not bool:
        raise TypeError(f"isolate={given!r}: expected True or False")


def _hosts(_: Any, __: Any, given: Any) -> None:
    if type(given) is not int or given < 1:
        raise ValueError(f"hosts={given!r}: expected how many processes run it together, a number like 1, 2 or 8")


def _resources(given: Any) -> dict[str, float]:
    told = f'resources={given!r}: expected what a worker must have free, by name and amount, such as {{"GPU": 1}}'
    if not isinstance(given, Mapping):
        raise TypeError(told)
    for name, amount in given.items():
        number = isinstance(amount, int | float) and type(amount) is not bool
        if not (isinstance(name, str) and number and 0 <= amount < math.inf):
            raise ValueError(told)
    return dict(given)


def _priority(_: Any, __: Any, given: Any) -> None:
    if type(given) is not int:
        raise TypeError(f"priority={given!r}: expected a whole number; what has a larger one runs earlier")


def _text(_: Any, attribute: attrs.Attribute[Any], given: Any) -> None:
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{attribute.name}={given!r}: expected text")


def _transient(given: type[BaseException] | Iterable[type[BaseException]]) -> tuple[type[BaseException], ...]:
    kinds = (given,) if isinstance(given, type) else tuple(given)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError(f"transient: expected classes of exceptions, such as (ConnectionError,), and got {kind!r}")
    return kinds


@attrs.frozen
class Annotations:
    """How an expression is to be evaluated; never part of what it is.

    Attributes:
        resources: what a worker must have free, such as `{"CPU": 2}`.
        priority: larger runs earlier among what is ready.
        title: what people call this expression, instead of the operator with its arguments.
        retries: how often a call is tried again that timed out, that killed its process or lost its worker, or that
            raised something transient; None for 2 times, and never after a timeout.
        timeout: seconds from when a worker has loaded the code; None for no limit.
        isolate: whether it runs in a fresh process.
        transient: classes of exceptions that may not come again, so that the call is tried again.
        source: where external data lies.
        hosts: how many processes run it together; 1 for an ordinary call.
    """

    resources: Mapping[str, float] = attrs.field(factory=dict, converter=_resources)
    priority: int = attrs.field(default=0, validator=_priority)
    title: str | None = attrs.field(default=None, validator=_text)
    retries: int | None = attrs.field(default=None, validator=_retries)
    timeout: float | None = attrs.field(default=None, converter=_timeout)
    isolate: bool = attrs.field(default=False, validator=_isolate)
    transient: tuple[type[BaseException], ...] = attrs.field(default=(), converter=_transient)
    source: str | None = attrs.field(default=None, validator=_text)
    hosts: int = attrs.field(default=1, validator=_hosts)

    @property
    def limit(self) -> float | None:
        """The timeout in seconds, None when there is none (an infinite one takes an operator's default away)."""
        return self.timeout if self.timeout is not None and math.isfinite(self.timeout) else None


@attrs.frozen
class Label:
    """A name and a version that a person gave to an expression."""

    name: str
    version: str

    @property
    def moves(self) -> bool:
        """Whether it follows its expression: a version ending in `dev` does, any other one is fixed."""
        return self.version.endswith("dev")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"
