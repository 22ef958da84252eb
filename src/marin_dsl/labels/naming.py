"""What can be a label, and what one label stands for in one run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from marin_dsl.expression import Expression
from marin_dsl.expression.annotations import Label

# Lower case alone is the same on disks that fold case; what ends in a dot is another file without it on some of them.
_PART = r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9_-])?"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_VERSION = re.compile(_PART)
# On Windows these are devices, whatever follows after a dot.
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")


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
        device = next((part for part in text.split("/") if _DEVICE.fullmatch(part)), None) if what == "name" else None
        if device is not None:
            raise ValueError(
                f"{text!r} cannot be the name of a label: `{device}` is the name of a device on some systems"
            )
    return Label(name, version)


def read_label(text: str) -> Label:
    """The label that a person wrote as `name@version`.

    Raises:
        ValueError: that is no label; the message says what is allowed.
    """
    name, at, version = text.partition("@") if isinstance(text, str) else ("", "", "")
    if not at:
        raise ValueError(f"{text!r} is no label: write name@version, such as first-model@1.0")
    return check_label(name, version)


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
    """Every mention of an expression with a label: equal ones may have different labels, or be over such ones."""
    seen: set[int] = set()
    stack = [root for root in reversed(roots) if root.labelled]
    while stack:
        expression = stack.pop()
        if id(expression) in seen:
            continue
        seen.add(id(expression))
        yield expression
        below = (*expression.references, *expression.waits)
        stack += [other for other in reversed(below) if other.labelled]


def _origin(expression: Expression[Any]) -> str:
    place = f" ({expression.origin[0]}:{expression.origin[1]})" if expression.origin else ""
    return f"{expression!r}{place}"
