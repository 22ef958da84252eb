"""Expressions on their way to another process: a graph as a list, so that its depth does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from marin_dsl.encoding import Leaf
from marin_dsl.expression import Expression
from marin_dsl.expression.expression import sealed
from marin_dsl.expression.fields import NAMES, Fields

Row = dict[str, Any]


def flattened(root: Expression[Any], *, with_contents: bool = True) -> list[Row]:
    """A graph as a list, each expression after those it refers to or waits for (by position): of any depth.

    Args:
        root: the expression.
        with_contents: take large literals along; without, whoever evaluates it has to find them in the store.
    """
    positions: dict[int, int] = {}
    rows: list[Row] = []
    for expression in mentioned(root):
        row: Row = {name: getattr(expression, name) for name in NAMES}
        for others in ("references", "waits"):
            row[others] = tuple(positions[id(other)] for other in row[others])
        row["leaves"] = {
            digest: (leaf.size, _content(leaf) if with_contents else None) for digest, leaf in expression.leaves.items()
        }
        positions[id(expression)] = len(rows)
        rows.append(row)
    return rows


def mentioned(root: Expression[Any]) -> Iterator[Expression[Any]]:
    """Every object below the root: equal expressions can have different labels, and wait for different things."""
    seen: set[int] = set()
    stack: list[tuple[Expression[Any], bool]] = [(root, False)]
    while stack:
        expression, expanded = stack.pop()
        if expanded:
            yield expression
        elif id(expression) not in seen:
            seen.add(id(expression))
            stack.append((expression, True))
            stack.extend((other, False) for other in reversed((*expression.references, *expression.waits)))


def _content(leaf: Leaf) -> Any:
    return bytes(leaf.content) if isinstance(leaf.content, memoryview) else leaf.content


def rebuilt(rows: list[Row]) -> Expression[Any]:
    """The expression that `flattened` made a list of: the last row."""
    made: list[Expression[Any]] = []
    for row in rows:
        leaves = {digest: _leaf(digest, *leaf) for digest, leaf in row["leaves"].items()}
        others = {name: tuple(made[position] for position in row[name]) for name in ("references", "waits")}
        made.append(sealed(Fields(**{**row, **others, "leaves": leaves})))
    return made[-1]


def _leaf(digest: bytes, size: int, content: Any) -> Leaf:
    return Leaf(digest, size, memoryview(content) if isinstance(content, bytes) else content)
