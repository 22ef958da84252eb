"""Expressions that decide while they are evaluated what to go on with: `when`, `recover`, `op.map`, `at_least`.

Only what is decided for is demanded. What is decided is part of the evaluation and not of identity: all branches are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from marin_dsl.encoding import Encoded, encode_with_leaves
from marin_dsl.expression import Expression, arguments_of, caller
from marin_dsl.expression.inline import INLINE, Choice
from marin_dsl.expression.keys import recipe_key

if TYPE_CHECKING:
    from marin_dsl.grids import Grid
    from marin_dsl.operator import Operator

T = TypeVar("T")
U = TypeVar("U")

Origin = tuple[str, int]


@overload
def when(condition: Expression[Any] | bool, then: Expression[T], otherwise: Expression[U]) -> Expression[T | U]: ...
@overload
def when(condition: Expression[Any] | bool, then: Expression[T], otherwise: U) -> Expression[T | U]: ...
@overload
def when(condition: Expression[Any] | bool, then: T, otherwise: Expression[U]) -> Expression[T | U]: ...
@overload
def when(condition: Expression[Any] | bool, then: T, otherwise: U) -> Expression[T | U]: ...
def when(condition: Any, then: Any, otherwise: Any) -> Expression[Any]:
    """One of two expressions (or values, or nests of both), by the truth of a third; the other one is not demanded.

    Args:
        condition: an expression whose value decides, or True or False.
        then: what to go on with when it is true.
        otherwise: what to go on with when it is not.

    Raises:
        TypeError: the condition is a value that is neither True nor False.
        WrongCall: a branch is no value.
    """
    if not isinstance(condition, Expression | bool):
        raise TypeError(
            f"when(condition, then, otherwise): the condition is {condition!r:.80}, of which the truth is known; "
            "write `then if condition else otherwise`"
        )
    origin = caller(1)
    branches = {"condition": condition, "then": then, "otherwise": otherwise}
    arguments = {name: nest(value, origin, f"when(...): `{name}`") for name, value in branches.items()}
    return Expression.apply(INLINE["when"], arguments, origin=origin)


def recover(expression: Expression[Any], other: Any, origin: Origin) -> Expression[Any]:
    """What `expression.recover(other)` is."""
    arguments = {"value": expression, "other": nest(other, origin, "recover(other): it")}
    return Expression.apply(INLINE["recover"], arguments, origin=origin)


def at_least(n: int, expressions: Iterable[Expression[T]] | Grid[Expression[T]]) -> Expression[list[T]]:
    """The values of those expressions that have one, in their order, if that are `n` of them or more.

    With fewer it fails, naming how many there are and what became of another. All are waited for, so that the value
    does not depend on which was ready first.

    Raises:
        TypeError: `n` is no whole number, or a member is no expression.
        ValueError: `n` is negative, or more than there are expressions.
    """
    members = _members(expressions)
    for member in members:
        if not isinstance(member, Expression):
            raise TypeError(f"at_least(n, expressions) takes expressions, and got {member!r:.80}, which cannot fail")
    if type(n) is not int:
        raise TypeError(f"at_least(n, expressions): n is how many at least, a whole number, and not {n!r:.80}")
    if not 0 <= n <= len(members):
        raise ValueError(f"at_least({n}, ...): there are {len(members)} expressions, so n is from 0 to {len(members)}")
    return Expression.apply(INLINE["at_least"], {"n": n, "outcomes": members}, origin=caller(1))


def mapped(operator: Operator[..., T], items: Any, others: Mapping[str, Any], origin: Origin) -> Expression[list[T]]:
    """What `operator.map(items, **others)` is."""
    if not isinstance(items, Expression):
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise TypeError(
                f"{operator.short_name}.map(items, ...) takes a list or an expression of one, and got {items!r:.80}"
            )
        calls = [operator.applied((item,), others, origin) for item in _members(items)]
        return nest(calls, origin, "map(items)")
    # The template of the elements' calls: they are it with the element in the place of the node that stands for it.
    element = Expression.apply(INLINE["element"], {"of": items}, origin=origin)
    each = operator.applied((element,), others, origin)
    return Expression.apply(INLINE["map"], {"items": items, "each": each}, origin=origin)


def _members(found: Iterable[Any] | Grid[Any]) -> list[Any]:
    from marin_dsl.grids import Grid, contents

    return list(contents(found) if isinstance(found, Grid) else found)


def held(value: Any, origin: Origin | None = None) -> Expression[Any]:
    """A value with expressions somewhere inside as one expression; an expression is itself.

    Raises:
        Unencodable: a part is no value.
    """
    return value if isinstance(value, Expression) else Expression.apply(INLINE["nest"], {"value": value}, origin=origin)


def nest(value: Any, origin: Origin | None, what: str = "it") -> Expression[Any]:
    """The same, for a value that a user wrote at `origin` as what the message is to call it.

    Raises:
        WrongCall: a part is no value.
    """
    from marin_dsl.encoding import Unencodable
    from marin_dsl.operator.signature import WrongCall

    try:
        return held(value, origin)
    except Unencodable as error:
        raise WrongCall(f"{f'{origin[0]}:{origin[1]}: ' if origin else ''}{what} is no value: {error}") from None


def _elements(items: Any, arguments: Mapping[str, Expression[Any]]) -> Expression[Any]:
    each = arguments["each"]
    if not isinstance(items, list | tuple):
        raise TypeError(
            f"{each.operator.name.rpartition('.')[2]}.map(items) takes a list, and the value of items is a "
            f"{type(items).__name__}; make a list of it in an operator"
        )
    return nest([_with_element(each, item) for item in items], each.origin)


def _with_element(each: Expression[Any], item: Any) -> Expression[Any]:
    """The call for one element, which is identified by the element and not by its place in the list.

    Raises:
        WrongCall: the element does not fit the operator's parameter.
    """
    encoded = encode_with_leaves(item, functions="any")
    place = next(position for position, found in enumerate(each.references) if found.operator is INLINE["element"])
    _check_element(each, item, encoded)
    pieces, references = list(each.payload), list(each.references)
    pieces[place : place + 2] = [pieces[place] + encoded.data + pieces[place + 1]]
    del references[place]
    payload = tuple(pieces)
    return each._replace(
        payload=payload,
        references=tuple(references),
        leaves={**each.leaves, **encoded.leaves},
        key=recipe_key(each.identity, payload, (reference.key for reference in references)),
    )


def _check_element(each: Expression[Any], item: Any, encoded: Encoded) -> None:
    from marin_dsl.operator import Operator

    assert isinstance(each.operator, Operator)
    if not encoded.leaves:  # what is unread cannot be looked at
        each.operator.signature.check_first(item, each.origin)


INLINE |= {
    "when": Choice(
        "when",
        "condition",
        lambda value, arguments: arguments["then" if value else "otherwise"],
    ),
    "recover": Choice(
        "recover",
        "value",
        lambda has_value, arguments: arguments["value" if has_value else "other"],
        of_outcome=True,
    ),
    "map": Choice("map", "items", _elements, unread=True, makes=True),
    "element": Choice("element", "of", lambda value, arguments: arguments["of"]),
}


def template_of(expression: Expression[Any]) -> Expression[Any]:
    """What the calls are made of that `op.map` over an expression makes."""
    found: Expression[Any] = arguments_of(expression)["each"]
    return found


def first_of(expression: Expression[Any]) -> Expression[Any]:
    """The argument of a choice that is evaluated to choose by."""
    assert isinstance(expression.operator, Choice)
    found: Expression[Any] = arguments_of(expression)[expression.operator.first]
    return found
