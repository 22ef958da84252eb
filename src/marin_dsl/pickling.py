"""Expressions on their way to another process: a graph as a list, so that its depth does not matter."""

from __future__ import annotations

from typing import Any

from marin_dsl.encoding import Leaf
from marin_dsl.expression import Expression, walk


def flattened(root: Expression[Any]) -> list[dict[str, Any]]:
    """A graph as a list, each expression after those it refers to (by position): of any depth, and picklable."""
    positions: dict[bytes, int] = {}
    rows: list[dict[str, Any]] = []
    for expression in walk(root):
        row: dict[str, Any] = {name: getattr(expression, name) for name in Expression.__slots__[1:]}
        row["references"] = tuple(positions[reference.key] for reference in expression.references)
        row["leaves"] = {digest: _picklable(leaf) for digest, leaf in expression.leaves.items()}
        positions[expression.key] = len(rows)
        rows.append(row)
    return rows


def _picklable(leaf: Leaf) -> tuple[int, Any]:
    return leaf.size, bytes(leaf.content) if isinstance(leaf.content, memoryview) else leaf.content


def _unpickled(digest: bytes, size: int, content: Any) -> Leaf:
    return Leaf(digest, size, memoryview(content) if isinstance(content, bytes) else content)


def rebuilt(rows: list[dict[str, Any]]) -> Expression[Any]:
    """The expression that `flattened` made a list of: the last row."""
    made: list[Expression[Any]] = []
    for row in rows:
        row = {
            **row,
            "references": tuple(made[position] for position in row["references"]),
            "leaves": {digest: _unpickled(digest, *leaf) for digest, leaf in row["leaves"].items()},
        }
        made.append(Expression.__new__(Expression))
        for name, value in row.items():
            object.__setattr__(made[-1], name, value)
    return made[-1]
