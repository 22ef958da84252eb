"""Expressions by the code that their operators have now.

An expression is identified when it is built, and evaluated later. Between the two a notebook's cell may have defined a
helper anew, or a script have set a constant of a module: what would run is the new code, and so the new code has to be
what it is identified by. Looking costs no look at the graph as long as no code has changed in this process.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from marin_dsl.encoding import Functions, encode
from marin_dsl.encoding.functions import meaning_of
from marin_dsl.expression.keys import recipe_key
from marin_dsl.expression.pickling import mentioned

if TYPE_CHECKING:
    from marin_dsl.expression import Expression
    from marin_dsl.operator.operator import Operator

_LOOKED_AT: weakref.WeakSet[Operator[Any, Any]] = weakref.WeakSet()
_CHANGED: weakref.WeakSet[Operator[Any, Any]] = weakref.WeakSet()
"""Expressions that were built before may hold another identity of these than they have."""
_FUNCTIONS_CHANGED: list[bool] = []


def looked_at(operator: Operator[Any, Any]) -> None:
    """Note that an operator knows what its code is, so that it is asked to look again."""
    _LOOKED_AT.add(operator)


def by_current_code(expressions: Iterable[Expression[Any]]) -> tuple[Expression[Any], ...]:
    """The same expressions, identified by the code that their operators have now.

    Those whose code is what it was when they were built are returned as they are.
    """
    found = tuple(expressions)
    _CHANGED.update([operator for operator in tuple(_LOOKED_AT) if operator.look_again()])
    if not (_CHANGED or _any_function_changed()):
        return found
    anew: dict[int, Expression[Any]] = {}
    return tuple(_identified(expression, anew) for expression in found)


def _identified(root: Expression[Any], anew: dict[int, Expression[Any]]) -> Expression[Any]:
    for expression in mentioned(root):
        if id(expression) not in anew:
            references = tuple(anew[id(each)] for each in expression.references)
            waits = tuple(anew[id(each)] for each in expression.waits)
            payload, functions = _of_functions(expression)
            key = recipe_key(expression.identity, payload, [each.key for each in references])
            same = key == expression.key and all(map(_is, waits, expression.waits))
            same = same and all(map(_is, references, expression.references))
            anew[id(expression)] = (
                expression
                if same
                else expression._replace(
                    payload=payload, functions=functions, references=references, waits=waits, key=key
                )
            )
    return anew[id(root)]


def _any_function_changed() -> bool:
    """The same of functions that are values: once one was seen to change, expressions may hold its earlier code."""
    from marin_dsl.operator.functions import any_changed

    if not _FUNCTIONS_CHANGED and any_changed():
        _FUNCTIONS_CHANGED.append(True)
    return bool(_FUNCTIONS_CHANGED)


def _of_functions(expression: Expression[Any]) -> tuple[tuple[bytes, ...], Functions]:
    """Encoded arguments and functions by the code that these have now."""
    if not expression.functions:
        return expression.payload, expression.functions
    now, seen = {}, list[object]()
    payload = expression.payload
    for (place, code), function in expression.functions.items():
        meaning = meaning_of(function)
        seen.append(meaning and meaning.seen)
        if meaning is not None and meaning.code is not None and meaning.code != code:
            # A digest stands for nothing but what it is the digest of: wherever it is, that is meant.
            before, after = encode([place, code]), encode([place, meaning.code])
            payload = tuple(piece.replace(before, after) for piece in payload)
            code = meaning.code
        now[place, code] = function
    return payload, Functions(now, tuple(seen))


def _is(one: object, other: object) -> bool:
    return one is other
