"""Inline nodes: projections, arithmetic and `attempt`, evaluated by whoever needs them and never scheduled."""

from __future__ import annotations

import functools
import hashlib
import operator
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from marin_dsl.encoding.registry import codec_of
from marin_dsl.expression import Expression
from marin_dsl.outcome import Failed, Ok, Skipped

T = TypeVar("T")


@attrs.frozen
class InlineOperator:
    """A small pure function of the language itself.

    Attributes:
        name: its name; all of its identity.
        function: what it computes from its named arguments.
        of_outcome: it is given the outcome of its argument instead of the value, and so never fails with it.
        part: the same on a value whose large leaves are unread, where the result is a mere part of it; raises
            `NotAPart` where the leaves would have to be read.
    """

    name: str
    function: Callable[..., Any] = attrs.field(eq=False, repr=False)
    of_outcome: bool = False
    part: Callable[..., Any] | None = attrs.field(default=None, eq=False, repr=False)

    @functools.cached_property
    def identity(self) -> bytes:
        """The digest of its name: its meaning is part of the language's contract."""
        return hashlib.sha256(b"marin-inline-1\0" + self.name.encode()).digest()

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)


def _named(name: str) -> InlineOperator:
    return INLINE[name]


class NotAPart(LookupError):
    """A projection is no part of the value as it is encoded: it has to be computed from the whole value."""


def _item(value: Any, key: Any) -> Any:
    if type(value) not in (list, tuple, dict):
        raise NotAPart(key)
    return value[key]


def _encoded_field(value: Any, name: str) -> Any:
    codec = codec_of(type(value))
    fields = codec.to_fields(value) if codec is not None else {}
    if name not in fields or getattr(value, name, None) is not fields[name]:
        raise NotAPart(name)
    return fields[name]


def _binary(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda left, right: function(left, right)


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lt", "le", "gt", "ge", "eq")

INLINE: dict[str, InlineOperator] = {
    "getitem": InlineOperator("getitem", lambda value, key: value[key], part=_item),
    "slice": InlineOperator("slice", lambda value, start, stop, step: value[start:stop:step]),
    "field": InlineOperator("field", lambda value, name: getattr(value, name), part=_encoded_field),
    "attempt": InlineOperator("attempt", lambda value: value, of_outcome=True),
    "neg": InlineOperator("neg", lambda value: -value),
    "abs": InlineOperator("abs", lambda value: abs(value)),
    **{name: InlineOperator(name, _binary(getattr(operator, name))) for name in _BINARY},
}


def attempt(expression: Expression[T]) -> Expression[Ok[T] | Failed | Skipped]:
    """The outcome of an expression as a value: `Ok`, `Failed` or `Skipped`; an operator that receives it goes on.

    Only what happened is part of the value (kind, exception and message), not where, when or on which line.
    """
    if not isinstance(expression, Expression):
        raise TypeError(f"attempt(...) takes an expression, and got {expression!r:.80}, which cannot fail")
    frame = sys._getframe(1)
    return Expression.apply(INLINE["attempt"], {"value": expression}, origin=(frame.f_code.co_filename, frame.f_lineno))
