"""From a table of values to cells that can be drawn: text, alignment, the best of a column, where an interval lies."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import attrs

from marin_dsl import quantities
from marin_dsl.pages.content import Cell, Column, Interval, Missing, Table

Mark: TypeAlias = Literal["", "best", "tied"]


@attrs.frozen
class Whisker:
    """Where an interval lies in its column, in percent of the column's whole range.

    Attributes:
        low: lower end.
        point: the estimate.
        high: upper end.
    """

    low: float
    point: float
    high: float


@attrs.frozen
class CellView:
    """One cell, ready to be drawn.

    Attributes:
        kind: text (aligned left), number, interval (both aligned right) or missing.
        text: the value, or what a missing cell says instead of one.
        detail: the ends of an interval, or the reason of a missing cell.
        mark: "best" for the best number of the column, "tied" for an interval that overlaps the best one's, else "".
        whisker: where the interval lies in its column.
    """

    kind: Literal["text", "number", "interval", "missing"]
    text: str
    detail: str = ""
    mark: Mark = ""
    whisker: Whisker | None = None


_MISSING = {"failed": "failed", "skipped": "skipped", "absent": quantities.ABSENT}


def point(cell: Cell) -> float | None:
    """The finite number that a cell stands for, if it does."""
    value = cell.point if isinstance(cell, Interval) else cell
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def best_of(column: Column, cells: tuple[Cell, ...]) -> int | None:
    """Index of the best cell of a column; None if nothing is to be marked or fewer than two cells have numbers."""
    numbers = [(value, index) for index, cell in enumerate(cells) if (value := point(cell)) is not None]
    if column.best is None or len(numbers) < 2:
        return None
    sign = 1 if column.best == "lowest" else -1
    return min(numbers, key=lambda pair: (sign * pair[0], pair[1]))[1]


def _overlap(one: Cell, other: Cell) -> bool:
    if not (isinstance(one, Interval) and isinstance(other, Interval)):
        return False
    return one.low <= other.high and other.low <= one.high


def _whiskers(cells: tuple[Cell, ...]) -> list[Whisker | None]:
    finite = [c for c in cells if isinstance(c, Interval) and all(map(math.isfinite, (c.low, c.point, c.high)))]
    if len(finite) < 2:
        return [None] * len(cells)
    low, high = min(c.low for c in finite), max(c.high for c in finite)
    width = (high - low) or 1.0

    def place(cell: Cell) -> Whisker | None:
        if not isinstance(cell, Interval) or cell not in finite:
            return None
        return Whisker(*(round(100 * (v - low) / width, 2) for v in (cell.low, cell.point, cell.high)))

    return [place(cell) for cell in cells]


def view(cell: Cell, column: Column) -> CellView:
    """One cell by itself, without what only its column can tell."""
    if isinstance(cell, Missing):
        return CellView("missing", _MISSING[cell.kind], cell.reason)
    if cell is None:
        return CellView("missing", quantities.ABSENT)
    if isinstance(cell, Interval):
        low, middle, high = (quantities.number(float(v), column.digits) for v in (cell.low, cell.point, cell.high))
        return CellView("interval", middle, f"{low} to {high}")
    if isinstance(cell, bool):
        return CellView("text", "yes" if cell else "no")
    if isinstance(cell, int | float):
        return CellView("number", quantities.number(cell, column.digits))
    return CellView("text", str(cell))


def _column(column: Column, cells: tuple[Cell, ...]) -> list[CellView]:
    best = best_of(column, cells)
    whiskers = _whiskers(cells)
    views = []
    for index, cell in enumerate(cells):
        tied = best is not None and _overlap(cell, cells[best])
        mark: Mark = "best" if index == best else "tied" if tied else ""
        views.append(attrs.evolve(view(cell, column), mark=mark, whisker=whiskers[index]))
    return views


def cells(table: Table) -> list[list[CellView]]:
    """The rows of a table, ready to be drawn."""
    columns = [_column(c, tuple(row[i] for row in table.rows)) for i, c in enumerate(table.columns)]
    return [list(row) for row in zip(*columns, strict=True)] if table.rows else []
