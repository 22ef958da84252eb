"""Validators of configuration attributes: a message names the class, the attribute, the value and what is possible."""

from collections.abc import Callable
from typing import Any


def _refuse(owner: Any, attribute: Any, value: Any, expected: str) -> None:
    raise ValueError(f"{type(owner).__name__}: {attribute.name} must be {expected}, not {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


INT32 = 2**31 - 1
"""The largest number of steps, and the largest seed, that a compiled program counts with."""


def integer_up_to_int32(lowest: int) -> Callable[[Any, Any, Any], None]:
    """The attribute is an integer from ``lowest`` to `INT32`."""

    def check(owner: Any, attribute: Any, value: Any) -> None:
        at_least(lowest)(owner, attribute, value)
        if value > INT32:
            _refuse(owner, attribute, value, f"an integer from {lowest} to {INT32}")

    return check


def at_least(lowest: int) -> Callable[[Any, Any, Any], None]:
    """The attribute is an integer not below ``lowest``."""

    def check(owner: Any, attribute: Any, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
            _refuse(owner, attribute, value, f"an integer of at least {lowest}")

    return check


def positive(owner: Any, attribute: Any, value: Any) -> None:
    """The attribute is a finite number above 0."""
    if not (_is_number(value) and 0 < value < float("inf")):
        _refuse(owner, attribute, value, "a finite number above 0")


def not_negative(owner: Any, attribute: Any, value: Any) -> None:
    """The attribute is a finite number of at least 0."""
    if not (_is_number(value) and 0 <= value < float("inf")):
        _refuse(owner, attribute, value, "a finite number of at least 0")


def fraction(owner: Any, attribute: Any, value: Any) -> None:
    """The attribute is a number from 0 to 1."""
    if not (_is_number(value) and 0 <= value <= 1):
        _refuse(owner, attribute, value, "a number from 0 to 1")


def below_one(owner: Any, attribute: Any, value: Any) -> None:
    """The attribute is a number from 0 to below 1."""
    if not (_is_number(value) and 0 <= value < 1):
        _refuse(owner, attribute, value, "a number from 0 to below 1")


def one_of(*choices: Any) -> Callable[[Any, Any, Any], None]:
    """The attribute is one of ``choices``; 1 is not True."""

    def check(owner: Any, attribute: Any, value: Any) -> None:
        if not any(isinstance(value, type(choice)) and value == choice for choice in choices):
            _refuse(owner, attribute, value, f"one of {', '.join(map(repr, choices))}")

    return check


def instance_of(kind: type) -> Callable[[Any, Any, Any], None]:
    """The attribute is a ``kind``."""

    def check(owner: Any, attribute: Any, value: Any) -> None:
        if not isinstance(value, kind):
            _refuse(owner, attribute, value, f"a {kind.__name__}")

    return check


def optional(check: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    """The attribute is None or passes ``check``."""
    return lambda owner, attribute, value: None if value is None else check(owner, attribute, value)
