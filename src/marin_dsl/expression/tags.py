"""Wanted repetition and other facts that tell equal calls apart: part of identity, and no argument of an operator."""

from __future__ import annotations

from typing import Any, TypeVar

from marin_dsl.encoding import Unencodable, decode, encode
from marin_dsl.expression import Expression
from marin_dsl.expression.inline import InlineOperator
from marin_dsl.expression.keys import recipe_key, tagged_identity

T = TypeVar("T")

_INDEX = "replicate"


def tagged(expression: Expression[T], **facts: Any) -> Expression[T]:
    """The same call under another identity: it is run and kept on its own, and its operator does not see the facts.

    Args:
        expression: what to tag; facts that it has already stay, unless they are given anew.
        facts: what tells it apart, such as `machine="a"`; values only, so that nothing is waited for.

    Raises:
        TypeError: `expression` is no expression, or there are no facts, or one of them is no value.
    """
    if not isinstance(expression, Expression):
        raise TypeError(f"tagged(...) takes an expression, and got {expression!r:.80}")
    if not facts:
        raise TypeError("tagged(...) takes the facts that enter identity as keywords, such as tagged(expr, try_=2)")
    if _INDEX in facts:
        raise TypeError(f"the fact `{_INDEX}` is the index of replicate(expr, n); use that, or another name")
    return _with_facts(expression, facts)


def replicate(expression: Expression[T], n: int) -> list[Expression[T]]:
    """The same call `n` times, told apart by an index that enters identity: the i-th is the same for every `n`.

    Raises:
        TypeError: `expression` is no call of an operator, so that repeating it would run nothing anew.
        ValueError: `n` is no count.
    """
    if not isinstance(expression, Expression):
        raise TypeError(f"replicate(...) takes an expression, and got {expression!r:.80}")
    if isinstance(expression.operator, InlineOperator):
        raise TypeError(
            f"replicate(...) repeats the call of an operator, and `{expression.operator.name}` is none: it would "
            "not be run anew; replicate the call that it is made from"
        )
    if type(n) is not int or n < 0:
        raise ValueError(f"replicate(...) takes how many times as a whole number from 0 on, and got {n!r:.80}")
    outer = _facts(expression).get(_INDEX, ())
    return [_with_facts(expression, {_INDEX: (*outer, index)}) for index in range(n)]


def _facts(expression: Expression[Any]) -> dict[str, Any]:
    """The facts of an expression, large ones among them unread."""
    found: dict[str, Any] = decode(expression.facts, lazy=True) if expression.facts else {}
    return found


def _with_facts(expression: Expression[T], facts: dict[str, Any]) -> Expression[T]:
    try:
        encoded = encode({**_facts(expression), **facts})
    except Unencodable as error:
        raise TypeError(f"a fact that {expression!r} is tagged with is no value: {error}") from None
    identity = tagged_identity(expression.operator.identity, encoded)
    keys = (reference.key for reference in expression.references)
    return expression._replace(facts=encoded, key=recipe_key(identity, expression.payload, keys), label=None)
