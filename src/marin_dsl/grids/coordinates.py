"""Where a cell is: coordinates compared, checked and chosen."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from marin_dsl.encoding import Unencodable
from marin_dsl.expression import encode_arguments


def place(value: Any) -> Any:
    """What is equal for equal content and has an order; the content may hold expressions."""
    payload, references, _, _ = encode_arguments({"at": value})
    return payload, tuple(reference.key for reference in references)


def same(one: Any, other: Any) -> bool:
    """Whether two cells have the same content, by its encoding where it has one."""
    try:
        return bool(place(one) == place(other))
    except Unencodable:
        return one is other or bool(one == other)


def equal(one: Any, other: Any) -> bool:
    """Whether a coordinate is the one that was asked for: `1` finds `1.0`, and an array or NaN finds itself."""
    try:
        return bool(one == other) or same(one, other)
    except ValueError:  # arrays do not compare to one truth
        return same(one, other)


def spelled(coordinates: Mapping[str, Any]) -> str:
    """Coordinates as a message names them."""
    return ", ".join(f"{axis}={at!r:.40}" for axis, at in coordinates.items())


def check_axes(known: tuple[str, ...], named: Iterable[str]) -> None:
    """Refuse the name of an axis that a grid does not have.

    Raises:
        KeyError: there is no such axis.
    """
    for axis in named:
        if axis not in known:
            raise KeyError(f"the grid has no axis `{axis}`; it has {', '.join(known)}")


def check_same_axes(here: tuple[str, ...], there: tuple[str, ...]) -> None:
    """Refuse to put together what is over different axes.

    Raises:
        ValueError: the axes differ.
    """
    if set(here) != set(there):
        raise ValueError(f"only grids over the same axes add up: {', '.join(here)} here, {', '.join(there)} there")


def chooser(
    axes: tuple[str, ...], predicate: Callable[..., Any] | None, coordinates: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a point is chosen by the coordinates and by the predicate."""
    check_axes(axes, coordinates)
    if predicate is not None and not callable(predicate):
        raise TypeError(f"where(...) takes a predicate or axes by name, and got {predicate!r:.60}")
    named = _named_axes(axes, predicate) if predicate is not None else ()

    def chosen(point: Mapping[str, Any]) -> bool:
        by_value = all(equal(point[axis], at) for axis, at in coordinates.items())
        return by_value and (predicate is None or bool(predicate(**{axis: point[axis] for axis in named})))

    return chosen


def _named_axes(axes: tuple[str, ...], predicate: Callable[..., Any]) -> tuple[str, ...]:
    parameters = inspect.signature(predicate).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return axes
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    check_axes(axes, required)
    return tuple(parameter.name for parameter in parameters if parameter.name in axes)
