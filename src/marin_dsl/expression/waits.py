"""Order without data: what has to be evaluated before an expression and is no part of its identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from marin_dsl.expression import Expression

T = TypeVar("T")

Waits = dict[bytes, dict[bytes, Expression[Any]]]
"""By recipe key, what the expression waits for, by recipe key."""


class WaitsForItself(ValueError):
    """An expression waits (see `after`) for something that needs the expression."""


def after(expression: Expression[T], *others: Expression[Any]) -> Expression[T]:
    """The same expression, not run before the others have their values; skipped when one of them fails.

    It keeps its identity: when its value is in the store it is served, and the others are not looked at.

    Raises:
        TypeError: something is no expression.
    """
    for found in (expression, *others):
        if not isinstance(found, Expression):
            raise TypeError(f"after(expression, *others) takes expressions, and got {found!r:.80}")
    if not others:
        return expression
    labelled = expression.labelled or any(other.labelled for other in others)
    return expression._replace(waits=(*expression.waits, *others), ordered=True, labelled=labelled)


def merged(*roots: Expression[Any]) -> Waits:
    """All that expressions below the roots wait for; equal ones wait for what any mention of them waits for."""
    found: Waits = {}
    seen: set[int] = set()
    # By object, for equal expressions may wait for different things, or stand above such ones.
    stack = [root for root in roots if root.ordered]
    while stack:
        expression = stack.pop()
        if id(expression) in seen:
            continue
        seen.add(id(expression))
        if expression.waits:
            found.setdefault(expression.key, {}).update((other.key, other) for other in expression.waits)
        stack.extend(other for other in (*expression.references, *expression.waits) if other.ordered)
    return found


def check_order(roots: tuple[Expression[Any], ...], waits: Waits) -> None:
    """Make sure that nothing waits for itself.

    Raises:
        WaitsForItself: something does; the message names what waits for what.
    """
    if not waits:
        return
    done: set[bytes] = set()
    path: dict[bytes, Expression[Any]] = {}
    stack: list[tuple[Expression[Any], Iterator[Expression[Any]]]] = []

    def enter(expression: Expression[Any]) -> None:
        if expression.key in path:
            keys = list(path)
            circle = [path[key] for key in keys[keys.index(expression.key) :]]
            raise WaitsForItself(
                f"expressions wait for each other: {' needs '.join(map(_called, [*circle, expression]))}; "
                "take one of them out of after(...)"
            )
        if expression.key not in done:
            path[expression.key] = expression
            stack.append((expression, before(expression, waits)))

    for root in roots:
        enter(root)
        while stack:
            expression, rest = stack[-1]
            following = next(rest, None)
            if following is not None:
                enter(following)
            else:
                stack.pop()
                del path[expression.key]
                done.add(expression.key)


def before(expression: Expression[Any], waits: Mapping[bytes, Mapping[bytes, Expression[Any]]]) -> Iterator[Any]:
    """What has to be there before an expression: what it refers to, and what it waits for."""
    yield from expression.references
    yield from waits.get(expression.key, {}).values()


def _called(expression: Expression[Any]) -> str:
    from marin_dsl.expression.recipe import title

    return title(expression)
