"""The operators of the graphs that `expressions()` draws: small, pure and total, over whole numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from marin_dsl.encoding import encodable
from marin_dsl.operator import op


@encodable
@attrs.frozen
class Pair:
    """Two numbers."""

    left: int
    right: int


@op(version="1")
def number(value: int) -> int:
    """The number itself."""
    return value


@op(version="1")
def total(parts: Sequence[int], bias: int = 0) -> int:
    """The sum of numbers."""
    return bias + sum(parts)


@op(version="1")
def weighted(*parts: int, **weights: int) -> int:
    """A sum in which order and names count."""
    return sum(place * part for place, part in enumerate(parts, 1)) + len(weights) * sum(weights.values())


@op(version="1")
def listed(*parts: int) -> list[int]:
    """Numbers as a list."""
    return list(parts)


@op(version="1")
def pair(left: int, right: int) -> Pair:
    """Two numbers as one value."""
    return Pair(left, right)


@op(version="1")
def widths(pairs: Mapping[str, Pair], *, unit: int = 1) -> dict[str, int]:
    """How far the numbers of each pair are apart."""
    return {name: unit * (found.right - found.left) for name, found in pairs.items()}


@op(version="1")
def described(value: Any) -> str:
    """What kind of value it is; outcomes of attempts are values too."""
    return type(value).__name__


SMALL = (number, total, weighted, listed, pair, widths, described)
