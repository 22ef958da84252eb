"""Expressions and grids for eyes: small trees and tables, as text and as HTML.

Nothing is evaluated and no large leaf is read. What is shown is bounded whatever the size of the graph, parts that are
shared are shown once and numbered, and all of it is iterative.
"""

from __future__ import annotations

import html
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import attrs

from marin_dsl.expression import Expression
from marin_dsl.expression.recipe import short, shortened, title
from marin_dsl.grids import Grid

WIDTH = 100
LINES = 40
LINES_HTML = 200
CHILDREN = 10
DEPTH = 16
OPEN = 3


class Branching(Protocol):
    """What can be shown as a tree: an expression, or what a store recorded of one."""

    @property
    def key(self) -> bytes:
        """What it is known by: the same thing has the same key wherever it is met."""
        ...

    @property
    def references(self) -> Sequence[Any]:
        """What it refers to, each of its own kind."""
        ...


Titled = Callable[[Any], str]


@attrs.frozen
class Line:
    """One line of a tree.

    Attributes:
        depth: how far below the root.
        last: for each level down to this line, whether it or its ancestor there is the last child.
        item: what it is about; None for a line that counts what was left out.
        text: what it says.
        again: whether the expression has its full line further above.
        more: whether there is something below it that is not shown anywhere.
    """

    depth: int
    last: tuple[bool, ...]
    item: Branching | None
    text: str
    again: bool = False
    more: bool = False


def tree(root: Branching, titled: Titled | None = None, most: int = LINES) -> str:
    """An expression as a tree of about 40 lines at most; a shared part is numbered, and later only referred to.

    Args:
        root: an expression, or something else that refers to others of its kind.
        titled: what to call one of them.
        most: about how many lines.

    >>> from marin_dsl import op
    >>> @op(version="1")
    ... def double(n): ...
    >>> print(tree(double(double(1)) + double(1)))
    add(double, double)
    ├─ double(double)
    │  └─ [1] double(n=1)
    └─ ↑ [1] double(n=1)
    """
    lines = list(_lines(root, most, titled or _title))
    numbers = _numbers(lines)
    shown = [shortened(f"{_branches(line)}{_marked(line, numbers)}", WIDTH) for line in lines]
    return "\n".join([*shown, *_left_out(root, lines)])


def tree_html(root: Expression[Any]) -> str:
    """An expression as nested details of HTML, in the colours of whatever it stands in."""
    lines = list(_lines(root, LINES_HTML, _title))
    numbers = _numbers(lines)
    parts: list[str] = []
    for line, following in zip(lines, [*lines[1:], None], strict=True):
        below = following.depth if following is not None else 0
        text = html.escape(shortened(_marked(line, numbers), WIDTH))
        if below > line.depth:
            parts.append(f"<details{' open' if line.depth < OPEN else ''}{_INDENT}><summary>{text}</summary>")
        else:
            parts.append(f"<div{_INDENT}>{text}</div>")
        parts.append("</details>" * (line.depth - below))
    parts += [f"<div{_FAINT}>{html.escape(text)}</div>" for text in _left_out(root, lines)]
    return f"<div{_FRAME}>{''.join(parts)}</div>"


def rows(grid: Grid[Any]) -> str:
    """A grid as a line for each cell: its coordinates and what is there; at most about 40 lines."""
    shown = [
        [*(_content(cell.coordinates[axis], 24) for axis in grid.axes), _content(cell.value)] for cell in _few(grid)
    ]
    table = [[*grid.axes, ""], *shown]
    widths = [max(len(row[column]) for row in table) for column in range(len(grid.axes))]
    lines = ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in table]
    return "\n".join([repr(grid), *(shortened(f"  {line}", WIDTH) for line in lines), *_cells_left_out(grid)])


def rows_html(grid: Grid[Any]) -> str:
    """A grid as a table of HTML, in the colours of whatever it stands in."""
    head = "".join(f"<th>{html.escape(axis)}</th>" for axis in [*grid.axes, ""])
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(_content(cell.coordinates[axis], 24))}</td>" for axis in grid.axes)
        + f"<td>{html.escape(_content(cell.value))}</td></tr>"
        for cell in _few(grid)
    )
    more = "".join(f"<div{_FAINT}>{html.escape(text)}</div>" for text in _cells_left_out(grid))
    return (
        f"<div{_FRAME}><div>{html.escape(repr(grid))}</div>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>"
    )


_FRAME = ' style="font-family:monospace;color:inherit;background:transparent;color-scheme:light dark"'
_INDENT = ' style="margin-left:1.2em"'
_FAINT = ' style="opacity:.65"'


def _lines(root: Branching, most: int, titled: Titled) -> Iterator[Line]:
    expanded = _expanded(root, most)
    seen: set[bytes] = set()
    stack: list[tuple[Branching | str, tuple[bool, ...]]] = [(root, ())]
    while stack:
        item, last = stack.pop()
        depth = len(last)
        if isinstance(item, str):
            yield Line(depth, last, None, item)
            continue
        again = item.key in seen
        below = () if again or item.key not in expanded or depth == DEPTH else _children(item)
        cut = bool(item.references) and not (below or again)
        yield Line(depth, last, item, titled(item), again, cut)
        if not cut or depth < DEPTH:  # what is too deep to be shown here has its full line where it is met next
            seen.add(item.key)
        for position, child in reversed(list(enumerate(below))):
            stack.append((child, (*last, position == len(below) - 1)))


def _expanded(root: Branching, most: int) -> set[bytes]:
    """The expressions whose children are shown: the nearest to the root, so that no branch uses up all lines."""
    found: set[bytes] = set()
    queue, count = deque([root]), 1
    while queue:
        expression = queue.popleft()
        if expression.key in found or not expression.references:
            continue
        children = _children(expression)
        if count + len(children) > most and found:
            break
        found.add(expression.key)
        count += len(children)
        queue.extend(child for child in children if not isinstance(child, str))
    return found


def _children(item: Branching) -> list[Any]:
    distinct: list[Any] = list({found.key: found for found in item.references}.values())
    if len(distinct) <= CHILDREN:
        return [*distinct]
    return [*distinct[: CHILDREN - 1], f"… {len(distinct) - CHILDREN + 1:,} more"]


def _numbers(lines: list[Line]) -> dict[bytes, int]:
    """A number for each expression that is shown more than once, in the order of their first lines."""
    repeated = {line.item.key for line in lines if line.item is not None and line.again}
    order = dict.fromkeys(line.item.key for line in lines if line.item is not None)
    return {key: number for number, key in enumerate((key for key in order if key in repeated), 1)}


def _branches(line: Line) -> str:
    if not line.last:
        return ""
    return "".join("   " if last else "│  " for last in line.last[:-1]) + ("└─ " if line.last[-1] else "├─ ")


def _marked(line: Line, numbers: dict[bytes, int]) -> str:
    number = numbers.get(line.item.key) if line.item is not None else None
    mark = "" if number is None else f"↑ [{number}] " if line.again else f"[{number}] "
    return f"{mark}{line.text}{' …' if line.more else ''}"


def _left_out(root: Branching, lines: list[Line]) -> list[str]:
    shown = {line.item.key for line in lines if line.item is not None}
    total = sum(1 for _ in _all(root))
    return [f"{len(shown):,} of {total:,} expressions are shown"] if total > len(shown) else []


def _all(root: Branching) -> Iterator[bytes]:
    """The key of everything below a root, each once."""
    seen, stack = {root.key}, [root]
    while stack:
        item = stack.pop()
        yield item.key
        for found in item.references:
            if found.key not in seen:
                seen.add(found.key)
                stack.append(found)


def _title(expression: Expression[Any]) -> str:
    label = f" · {expression.label}" if expression.label is not None else ""
    return f"{printable(title(expression))}{label}"


def printable(text: str) -> str:
    """A text in one line, without signs that would steer a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _content(value: Any, limit: int = 60) -> str:
    if isinstance(value, Expression):
        return shortened(_title(value), limit)
    return printable(short(value, limit))


def _few(grid: Grid[Any]) -> tuple[Any, ...]:
    return grid.cells if len(grid) <= LINES - 2 else grid.cells[: LINES - 3]


def _cells_left_out(grid: Grid[Any]) -> list[str]:
    left = len(grid) - len(_few(grid))
    return [f"  … {left:,} more"] if left else []
