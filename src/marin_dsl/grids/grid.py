"""Labelled collections of expressions: sweeps over named axes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Generic, Literal, TypeVar

from marin_dsl.encoding.writer import WRITERS, Encoder
from marin_dsl.expression import Expression
from marin_dsl.expression.inline import INLINE
from marin_dsl.grids import cells as operators
from marin_dsl.grids.cells import Best, Cell
from marin_dsl.grids.coordinates import check_axes, check_same_axes, chooser, place, same, spelled
from marin_dsl.operator import Operator

S = TypeVar("S")
T = TypeVar("T")

By = Callable[[Any], Any] | str | None


class Points:
    """Coordinates without content: what `grid(...)` makes, to be filled by a function of the axes.

    Points add up, so that parts of a sweep can have different ranges: `grid(a=[1], b=[2, 3]) + grid(a=[4], b=[5])`.
    """

    __slots__ = ("axes", "coordinates")

    def __init__(self, axes: tuple[str, ...], coordinates: Iterable[Mapping[str, Any]]) -> None:
        self.axes = axes
        self.coordinates: tuple[dict[str, Any], ...] = tuple(dict(point) for point in coordinates)

    def where(self, predicate: Callable[..., Any] | None = None, /, **coordinates: Any) -> Points:
        """The points with these coordinates, and for which the predicate holds; see `Grid.where`."""
        keep = chooser(self.axes, predicate, coordinates)
        return Points(self.axes, filter(keep, self.coordinates))

    def __add__(self, other: Points) -> Points:
        check_same_axes(self.axes, other.axes)
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

    Equal coordinates collapse to one cell. A grid whose cells are grids is one grid over the axes of both.

    Raises:
        ValueError: different things stand at equal coordinates; an inner axis has the name of an outer one, or the
            inner grids are not all over the same axes.
    """

    __slots__ = ("axes", "cells")

    def __init__(self, axes: tuple[str, ...], cells: Iterable[Cell[T]]) -> None:
        self.axes, flat = _flattened(axes, list(cells))
        found: dict[Any, Cell[T]] = {}
        for cell in flat:
            known = found.setdefault(place(cell.coordinates), cell)
            if known is not cell and not same(known.value, cell.value):
                raise ValueError(
                    f"two different cells at {spelled(cell.coordinates)}: {known.value!r} and {cell.value!r}; "
                    "tell them apart by another axis"
                )
        self.cells: tuple[Cell[T], ...] = tuple(found.values())

    def map(self, function: Callable[[T], S]) -> Grid[S]:
        """The grid of `function(content)` at the same coordinates."""
        return Grid(self.axes, (Cell(cell.coordinates, function(cell.value)) for cell in self.cells))

    def where(self, predicate: Callable[..., Any] | None = None, /, **coordinates: Any) -> Grid[T]:
        """The cells with these coordinates, and for which the predicate holds.

        Args:
            predicate: called with the coordinates on the axes that its parameters name: `lambda rate: rate < 0.1`.
            coordinates: the coordinate to keep, by axis.

        Raises:
            KeyError: the grid has no such axis.
        """
        keep = chooser(self.axes, predicate, coordinates)
        return Grid(self.axes, (cell for cell in self.cells if keep(cell.coordinates)))

    def mean(self, *axes: str) -> Any:
        """The mean of the cells' numbers over these axes (all of them when none is named).

        A mean over a cell that failed is skipped and names it: a mean of the others would pass for one of all. To leave
        cells out, say so: `.where(...)`.

        Returns:
            The grid of means over the remaining axes; an expression where none remains.

        Raises:
            KeyError: the grid has no such axis.
            ValueError: the grid has no cells.
        """
        # By place, so that a mean has one key in whatever order its axes were written.
        return self._over(
            axes,
            lambda group: _apply(
                operators.mean, values=[cell.value for cell in sorted(group, key=lambda c: place(c.coordinates))]
            ),
        )

    def argmin(self, *axes: str, by: By = None) -> Any:
        """Where on these axes (all of them when none is named) the number is smallest: a `Best`.

        `best["rate"]` is its coordinate and `best.field("value")` its number. A cell that failed, or is NaN, does not
        compete, and is named with its reason in `best.field("failed")`; where none competes, the result has failed. Of
        equal numbers the first one in the grid is taken.

        Args:
            axes: the axes to choose on.
            by: a function from the content of a cell to its number, or the key of the number in the content.

        Returns:
            The grid of choices over the remaining axes; an expression where none remains.

        Raises:
            KeyError: the grid has no such axis.
            ValueError: the grid has no cells.
        """
        return self._best(operators.argmin, axes, by)

    def argmax(self, *axes: str, by: By = None) -> Any:
        """Where on these axes the number is largest; see `argmin`."""
        return self._best(operators.argmax, axes, by)

    def table(
        self,
        heading: str = "",
        *,
        caption: str = "",
        digits: int = 3,
        best: Literal["lowest", "highest"] | None = None,
    ) -> Expression[Any]:
        """The coordinates and values of all cells as a `marin_dsl.pages.Table`, which a page can show.

        A cell that failed has its reason in the place of a value. Dicts with text keys have a column for each key.

        Args:
            heading: title of the table.
            caption: what the numbers are.
            digits: decimals of floats.
            best: which number of each column is marked.
        """
        return _apply(
            operators.table,
            axes=list(self.axes),
            cells=[_attempted_cell(cell, self.axes) for cell in self.cells],
            heading=heading,
            caption=caption,
            digits=digits,
            best=best,
        )

    def _best(self, operator: Operator[Any, Best], axes: tuple[str, ...], by: By) -> Any:
        named = axes or self.axes
        choose: Callable[[Any], Any] | None = itemgetter(by) if isinstance(by, str) else by
        numbers: Grid[Any] = self if choose is None else self.map(choose)
        return numbers._over(
            axes,
            lambda group: _apply(
                operator,
                cells=[_attempted_cell(cell, named) for cell in group],
            ),
        )

    def _over(self, axes: tuple[str, ...], build: Callable[[list[Cell[T]]], Expression[Any]]) -> Any:
        """One expression for the cells that differ on these axes only."""
        check_axes(self.axes, axes)
        if not self.cells:
            raise ValueError(f"the grid over {', '.join(self.axes)} has no cells; what does its .where(...) leave?")
        remaining = tuple(axis for axis in self.axes if axis not in (axes or self.axes))
        groups: dict[Any, list[Cell[T]]] = {}
        for cell in self.cells:
            groups.setdefault(place({axis: cell.coordinates[axis] for axis in remaining}), []).append(cell)
        if not remaining:
            return build(list(self.cells))
        return Grid(
            remaining,
            (Cell({axis: group[0].coordinates[axis] for axis in remaining}, build(group)) for group in groups.values()),
        )

    def __add__(self, other: Grid[T]) -> Grid[T]:
        check_same_axes(self.axes, other.axes)
        return Grid(self.axes, (*self.cells, *other.cells))

    def __iter__(self) -> Iterator[Cell[T]]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)

    def __repr__(self) -> str:
        return f"<grid of {len(self)} cells over {', '.join(self.axes)}>"

    def __str__(self) -> str:
        from marin_dsl.expression.display import rows

        return rows(self)

    def _repr_html_(self) -> str:
        from marin_dsl.expression.display import rows_html

        return rows_html(self)


class _Grids:
    """What makes points: called for a product of axes, and `zip` for axes that go together."""

    __slots__ = ()
    __marin_identity__ = b"marin_dsl.grids.grid"

    def __call__(self, *parts: Points, **axes: Iterable[Any]) -> Points:
        """The points of a sweep: the product of the given points and of the named axes, the last one fastest.

        >>> len(grid(rate=[0.1, 0.2], seed=range(2)))
        4
        >>> len(grid(grid.zip(rate=[0.1, 0.2], warmup=[10, 20]), seed=range(3)))
        6

        Raises:
            ValueError: an axis is empty or named twice, or there is none.
            TypeError: an axis is a single value.
        """
        for part in parts:
            if not isinstance(part, Points):
                raise TypeError(f"grid(...) takes axes by name, grid(seed=range(3)), and got {part!r:.60} without one")
        factors = [*parts, *(_axis(name, values) for name, values in axes.items())]
        if not factors:
            raise ValueError("grid(...) needs at least one axis, such as grid(seed=range(3))")
        names = [axis for factor in factors for axis in factor.axes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the axis `{name}` is named twice; rename one")
        points = itertools.product(*(factor.coordinates for factor in factors))
        return Points(tuple(names), ({a: at for part in point for a, at in part.items()} for point in points))

    def zip(self, **axes: Iterable[Any]) -> Points:
        """The points of axes that go together: the first values of all, the second ones, and so on.

        >>> grid.zip(rate=[0.1, 0.2], warmup=[10, 20]).coordinates
        ({'rate': 0.1, 'warmup': 10}, {'rate': 0.2, 'warmup': 20})

        Raises:
            ValueError: the axes have different lengths, one is empty, or there is none.
            TypeError: an axis is a single value.
        """
        columns = [_axis(name, values) for name, values in axes.items()]
        if not columns:
            raise ValueError("grid.zip(...) needs axes, such as grid.zip(rate=[0.1, 0.2], warmup=[10, 20])")
        if len({len(column) for column in columns}) > 1:
            lengths = ", ".join(f"`{column.axes[0]}` has {len(column)}" for column in columns)
            raise ValueError(f"axes that are zipped need the same number of values, and {lengths}")
        rows = zip(*(column.coordinates for column in columns), strict=True)
        return Points(tuple(axes), ({a: at for part in row for a, at in part.items()} for row in rows))

    def __repr__(self) -> str:
        return "<grid: call it with axes, grid(rate=[0.1, 0.2], seed=range(3))>"

    def __reduce__(self) -> str:
        return "grid"


grid = _Grids()


def _axis(name: str, values: Any) -> Points:
    if isinstance(values, str | bytes | Expression) or not isinstance(values, Iterable):
        raise TypeError(f"the axis `{name}` is {values!r:.60}; an axis needs several values, such as [{values!r:.60}]")
    points = Points((name,), ({name: value} for value in values))
    if not points.coordinates:
        raise ValueError(f"the axis `{name}` is empty, so the grid would have no cells")
    return points


def _flattened(axes: tuple[str, ...], cells: list[Cell[Any]]) -> tuple[tuple[str, ...], Iterable[Cell[Any]]]:
    """Cells that are grids become the cells of those, with the coordinates of both."""
    if not any(isinstance(cell.value, Grid) for cell in cells):
        return axes, cells
    inner: tuple[str, ...] | None = None
    flat: list[Cell[Any]] = []
    for cell in cells:
        if not isinstance(cell.value, Grid):
            raise ValueError(f"the cell at {spelled(cell.coordinates)} is no grid, although others are")
        inner = cell.value.axes if inner is None else inner
        if set(inner) != set(cell.value.axes):
            raise ValueError(
                f"the inner grid at {spelled(cell.coordinates)} is over {', '.join(cell.value.axes)}, "
                f"and others are over {', '.join(inner)}"
            )
        for axis in inner:
            if axis in axes:
                raise ValueError(f"an inner grid has an axis `{axis}`, and the outer one has it too; rename one")
        flat += [Cell({**cell.coordinates, **below.coordinates}, below.value) for below in cell.value]
    return (*axes, *(inner or ())), flat


def _apply(operator: Operator[Any, Any], **arguments: Any) -> Expression[Any]:
    """A call of an operator of the language, built where the user called the grid's method."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return Expression.apply(operator, arguments, origin=(frame.f_code.co_filename, frame.f_lineno))


def _attempted_cell(cell: Cell[Any], axes: tuple[str, ...]) -> Cell[Any]:
    """A cell of outcomes, so that one that fails takes nothing else with it; a coordinate may be an expression too."""
    return Cell({axis: _attempted(cell.coordinates[axis]) for axis in axes}, _attempted(cell.value))


def _attempted(value: Any) -> Any:
    if isinstance(value, Expression):
        return Expression.apply(INLINE["attempt"], {"value": value}, origin=value.origin)
    return {key: _attempted(item) for key, item in value.items()} if isinstance(value, dict) else value


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

__all__ = ["Cell", "Grid", "Points", "contents", "grid"]
