"""Inline nodes: projections, arithmetic and `attempt`, evaluated by whoever needs them and never scheduled."""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import attrs

from marin_dsl.encoding.registry import codec_of
from marin_dsl.expression import Expression, caller
from marin_dsl.outcome import Failed, Ok, Skipped

T = TypeVar("T")


@attrs.frozen(slots=False)
class InlineOperator:
    """What an inline node applies: a small pure part of the language itself.

    Attributes:
        name: its name; all of its identity.
    """

    name: str
    is_inline: ClassVar[bool] = True

    @functools.cached_property
    def identity(self) -> bytes:
        """The digest of its name: its meaning is part of the language's contract."""
        return hashlib.sha256(b"marin-inline-1\0" + self.name.encode()).digest()

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)


@attrs.frozen(slots=False)
class InlineFunction(InlineOperator):
    """A function of values (or of outcomes).

    Attributes:
        function: what it computes from its named arguments.
        of_outcome: it is given outcomes in the places of its inputs instead of values, and so never fails with them.
        part: the same on values whose large leaves are unread, where the result is made of mere parts of them; raises
            `NotAPart` where the leaves would have to be read.
    """

    function: Callable[..., Any] = attrs.field(eq=False, repr=False)
    of_outcome: bool = False
    part: Callable[..., Any] | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(slots=False)
class Choice(InlineOperator):
    """What goes on with one expression or another, and demands none but that; its arguments are expressions.

    Attributes:
        first: the argument that is evaluated to choose by.
        choose: from the value of `first` and the arguments to the expression to go on with.
        of_outcome: it is told whether `first` has a value instead of the value.
        unread: it can be given a value whose large leaves are unread.
        makes: what it goes on with is made of the value, and is none of the arguments.
    """

    first: str
    choose: Callable[[Any, Mapping[str, Expression[Any]]], Expression[Any]] = attrs.field(eq=False, repr=False)
    of_outcome: bool = False
    unread: bool = False
    makes: bool = False


@attrs.frozen(slots=False)
class Recall(InlineOperator):
    """The value that a label stands for in the store of the evaluation."""


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


class TooFew(RuntimeError):
    """Fewer expressions than were asked for have a value."""


def _those_that_did(n: int, outcomes: Sequence[Ok[Any] | Failed | Skipped]) -> list[Any]:
    found = [outcome.value for outcome in outcomes if isinstance(outcome, Ok)]
    if len(found) < n:
        first = next(outcome.summary for outcome in outcomes if not isinstance(outcome, Ok))
        raise TooFew(
            f"{len(found)} of {len(outcomes)} expressions have a value, and at_least asks for {n}; without one: {first}"
        )
    return found


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lt", "le", "gt", "ge", "eq")

INLINE: dict[str, InlineOperator] = {
    "getitem": InlineFunction("getitem", lambda value, key: value[key], part=_item),
    "slice": InlineFunction("slice", lambda value, start, stop, step: value[start:stop:step]),
    "field": InlineFunction("field", lambda value, name: getattr(value, name), part=_encoded_field),
    "attempt": InlineFunction("attempt", lambda value: value, of_outcome=True),
    "nest": InlineFunction("nest", lambda value: value, part=lambda value: value),
    "at_least": InlineFunction("at_least", _those_that_did, of_outcome=True),
    "neg": InlineFunction("neg", lambda value: -value),
    "abs": InlineFunction("abs", lambda value: abs(value)),
    **{name: InlineFunction(name, _binary(getattr(operator, name))) for name in _BINARY},
}


def attempt(expression: Expression[T]) -> Expression[Ok[T] | Failed | Skipped]:
    """The outcome of an expression as a value: `Ok`, `Failed` or `Skipped`; an operator that receives it goes on.

    Only what happened is part of the value (kind, exception and message), not where, when or on which line.
    """
    if not isinstance(expression, Expression):
        raise TypeError(f"attempt(...) takes an expression, and got {expression!r:.80}, which cannot fail")
    return Expression.apply(INLINE["attempt"], {"value": expression}, origin=caller(1))
