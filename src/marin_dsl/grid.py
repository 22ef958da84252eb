"""Labelled collections of expressions: sweeps over named axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import attrs

from marin_dsl.encoding import encodable
from marin_dsl.encoding.writer import WRITERS, Encoder
from marin_dsl.expression import Expression, encode_arguments

S = TypeVar("S")
T = TypeVar("T")


@encodable(name="marin:Cell")
@attrs.frozen
class Cell(Generic[T]):
    """One cell of a grid: its coordinates on the named axes, and what is there.

    An operator that is given a grid receives a list of cells with values; before that they hold expressions.
    """

    coordinates: Mapping[str, Any]
    value: T


class Points:
    """Coordinates without content: what `grid(...)` makes, to be filled by a function of the axes.

    Points add up, so that parts of a sweep can have different ranges: `grid(a=[1], b=[2, 3]) + grid(a=[4], b=[5])`.
    """

    __slots__ = ("axes", "coordinates")

    def __init__(self, axes: tuple[str, ...], coordinates: Iterable[Mapping[str, Any]]) -> None:
        self.axes = axes
        self.coordinates: tuple[dict[str, Any], ...] = tuple(dict(point) for point in coordinates)

    def __add__(self, other: Points) -> Points:
        if set(self.axes) != set(other.axes):
            raise ValueError(
                f"only grids over the same axes add up: {', '.join(self.axes)} here, {', '.join(other.axes)} there"
            )
        return Points(self.axes, (*self.coordinates, *({a: p[a] for a in self.axes} for p in other.coordinates)))

    def __call__(self, build: Callable[..., T]) -> Grid[T]:
        """The grid of `build(axis=coordinate, ...)` at every point, in the order of the points."""
        return Grid(self.axes, (Cell(point, build(**point)) for point in self.coordinates))

    def __len__(self) -> int:
        return len(self.coordinates)

    def __repr__(self) -> str:
        return f"<grid of {len(self)} points over {', '.join(self.axes)}>"


class Grid(Generic[T]):
    """Expressions at named coordinates. As an argument of an operator it is a list of `Cell`s.

    Equal coordinates collapse to one cell.

    Raises:
        ValueError: different expressions stand at equal coordinates.
    """

    __slots__ = ("axes", "cells")

    def __init__(self, axes: tuple[str, ...], cells: Iterable[Cell[T]]) -> None:
        self.axes = axes
        found: dict[Any, Cell[T]] = {}
        for cell in cells:
            known = found.setdefault(_place(cell), cell)
            if isinstance(known.value, Expression) and known.value != cell.value:
                raise ValueError(
                    f"two different cells at {_spelled(cell.coordinates)}: {known.value!r} and {cell.value!r}; "
                    "tell them apart by another axis"
                )
        self.cells: tuple[Cell[T], ...] = tuple(found.values())

    def map(self, function: Callable[[T], S]) -> Grid[S]:
        """The grid of `function(content)` at the same coordinates."""
        return Grid(self.axes, (Cell(cell.coordinates, function(cell.value)) for cell in self.cells))

    def where(self, **coordinates: Any) -> Grid[T]:
        """The cells with these coordinates.

        Raises:
            KeyError: the grid has no such axis.
        """
        for axis in coordinates:
            if axis not in self.axes:
                raise KeyError(f"the grid has no axis `{axis}`; it has {', '.join(self.axes)}")
        return Grid(
            self.axes,
            (cell for cell in self.cells if all(cell.coordinates[axis] == at for axis, at in coordinates.items())),
        )

    def __add__(self, other: Grid[T]) -> Grid[T]:
        if set(self.axes) != set(other.axes):
            raise ValueError(
                f"only grids over the same axes add up: {', '.join(self.axes)} here, {', '.join(other.axes)} there"
            )
        return Grid(self.axes, (*self.cells, *other.cells))

    def __iter__(self) -> Iterator[Cell[T]]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)

    def __repr__(self) -> str:
        return f"<grid of {len(self)} cells over {', '.join(self.axes)}>"


def _place(cell: Cell[Any]) -> Any:
    """What is equal for cells at equal coordinates; a coordinate may be an expression."""
    payload, references, _ = encode_arguments(cell.coordinates)
    return payload, tuple(reference.key for reference in references)


def _spelled(coordinates: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis}={at!r:.40}" for axis, at in coordinates.items())


def grid(**axes: Iterable[Any]) -> Points:
    """The points of a sweep: the product of the named axes, the last one fastest.

    >>> runs = grid(rate=[0.1, 0.2], seed=range(2))
    >>> len(runs)
    4

    Raises:
        ValueError: an axis is empty, or there is none.
        TypeError: an axis is a single value.
    """
    for name, values in axes.items():
        if isinstance(values, str | bytes | Expression) or not isinstance(values, Iterable):
            raise TypeError(
                f"the axis `{name}` is {values!r:.60}; an axis needs several values, such as [{values!r:.60}]"
            )
    ranges = {name: list(values) for name, values in axes.items()}
    if not ranges:
        raise ValueError("grid(...) needs at least one axis, such as grid(seed=range(3))")
    for name, values in ranges.items():
        if not values:
            raise ValueError(f"the axis `{name}` is empty, so the grid would have no cells")
    return Points(
        tuple(ranges), (dict(zip(ranges, point, strict=True)) for point in itertools.product(*ranges.values()))
    )


def contents(value: Any) -> list[Expression[Any]]:
    """The expressions that a root of an evaluation stands for: itself, or those of a grid."""
    if isinstance(value, Expression):
        return [value]
    if isinstance(value, Grid):
        return [found for cell in value.cells for found in contents(cell.value)]
    raise TypeError(f"{value!r:.80} is no expression; call an operator (@op) to build one")


def _write_grid(encoder: Encoder, value: Grid[Any]) -> None:
    encoder.write(list(value.cells))


WRITERS[Grid] = _write_grid
