"""Cells of a grid, and the operators of the language that are applied to them: mean, smallest and largest, table.

They have declared versions, so that their results outlive edits to this file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from marin_dsl.encoding import encodable
from marin_dsl.operator import op
from marin_dsl.outcome import Failed, Ok, Skipped

if TYPE_CHECKING:
    from marin_dsl.pages.content import Table

T = TypeVar("T")


@encodable(name="marin:Cell")
@attrs.frozen
class Cell(Generic[T]):
    """One cell of a grid: its coordinates on the named axes, and what is there.

    An operator that is given a grid receives a list of cells with values; before that they hold expressions.
    """

    coordinates: Mapping[str, Any]
    value: T


@encodable(name="marin:Best")
@attrs.frozen
class Best:
    """The cell with the smallest or largest number; `best["rate"]` is its coordinate on an axis.

    Attributes:
        coordinates: where it is.
        value: its number.
        failed: the cells that could not compete, each with the reason; one that hides them would mislead.
    """

    coordinates: Mapping[str, Any]
    value: float
    failed: tuple[Cell[str], ...] = ()

    def __getitem__(self, axis: str) -> Any:
        return self.coordinates[axis]


@op(name="marin.mean", version="1")
def mean(values: list) -> float:
    """The mean of numbers, correctly rounded, so that their order does not matter.

    Raises:
        TypeError: one of them is no number.
    """
    numbers = [_number(value, "mean") for value in values]
    try:
        return math.fsum(numbers) / len(numbers)
    except (OverflowError, ValueError):  # beyond the largest float, or both infinities
        return sum(number / len(numbers) for number in numbers)


@op(name="marin.argmin", version="1")
def argmin(cells: list) -> Best:
    """The cell with the smallest number, the first one of several; cells hold numbers or outcomes.

    Raises:
        ValueError: no cell has a number.
        TypeError: a cell has a value that is no number.
    """
    return _best(cells, 1)


@op(name="marin.argmax", version="1")
def argmax(cells: list) -> Best:
    """The cell with the largest number, the first one of several; see `argmin`."""
    return _best(cells, -1)


@op(name="marin.table", version="1")
def table(axes: list, cells: list, heading: str, caption: str, digits: int, best: str | None) -> Table:
    """A row for each cell: its coordinates, then its value, or the columns of a dict; or why there is none."""
    from marin_dsl.pages.content import Column, Table

    found = [(cell.coordinates, _opened(cell.value)) for cell in cells]
    names = _value_columns([value for _, value in found])
    marked: Any = best
    return Table(
        heading,
        caption,
        (*(Column(axis) for axis in axes), *(Column(name or "value", digits=digits, best=marked) for name in names)),
        tuple((*(_shown(at[axis]) for axis in axes), *_columns(value, names)) for at, value in found),
    )


def _opened(value: Any) -> Any:
    """The value in an outcome, however often it was attempted; a failure stays one."""
    while isinstance(value, Ok):
        value = value.value
    return value


def _number(value: Any, wanted: str) -> float:
    value = _opened(value)
    if isinstance(value, Failed | Skipped):
        raise ValueError(f"{wanted} of a cell that has no value ({value.summary}); leave it out with .where(...)")
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        return float(value)
    except TypeError:
        raise TypeError(
            f"{wanted} takes numbers, and got {value!r:.60} (a {type(value).__name__}); choose one with .map(...)"
        ) from None


def _best(cells: Sequence[Cell[Any]], sign: int) -> Best:
    competing: list[tuple[float, Cell[Any]]] = []
    failed: list[Cell[str]] = []
    for cell in cells:
        cell = Cell({axis: _opened(at) for axis, at in cell.coordinates.items()}, cell.value)
        value = _opened(cell.value)
        reason = value.summary if isinstance(value, Failed | Skipped) else None
        number = math.nan if reason else _number(value, "argmin" if sign > 0 else "argmax")
        if math.isnan(number):
            failed.append(Cell(cell.coordinates, reason or "its value is not a number (NaN)"))
        else:
            competing.append((number, cell))
    if not competing:
        raise ValueError(f"none of {len(cells)} cells has a number; the first: {failed[0].value}")
    number, chosen = min(competing, key=lambda pair: sign * pair[0])
    return Best(chosen.coordinates, number, tuple(failed))


def _value_columns(values: list[Any]) -> list[str | None]:
    """The keys, when what succeeded are dicts with text keys; else one column without a key."""
    there = [value for value in values if not isinstance(value, Failed | Skipped)]
    if not there or not all(isinstance(value, dict) and all(isinstance(key, str) for key in value) for value in there):
        return [None]
    return list(dict.fromkeys(key for value in there for key in value)) or [None]


def _columns(value: Any, names: list[str | None]) -> Iterator[Any]:
    for name in names:
        if name is None or isinstance(value, Failed | Skipped):
            yield _shown(value)
        else:
            yield _shown(value.get(name))


def _shown(value: Any) -> Any:
    """A value as a cell of a page's table."""
    from marin_dsl.expression.recipe import short
    from marin_dsl.pages.content import Interval, Missing

    value = _opened(value)
    if isinstance(value, Failed):
        return Missing(value.summary, "failed")
    if isinstance(value, Skipped):
        return Missing(value.summary, "skipped")
    if isinstance(value, Best):
        where = ", ".join(f"{axis}={short(at, 30)}" for axis, at in value.coordinates.items())
        out = f", {len(value.failed)} without a number" if value.failed else ""
        return f"{where} ({value.value:.6g}{out})"
    if value is None or isinstance(value, str | bool | int | float | Interval):
        return value
    item = getattr(value, "item", None)
    return item() if item is not None and getattr(value, "shape", None) == () else short(value)
