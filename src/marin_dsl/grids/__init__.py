"""Labelled collections of expressions: sweeps, means, selections."""

from marin_dsl.grids.grid import (
    Cell,
    Grid,
    contents,
    grid,
)

__all__ = [
    "Cell",
    "Grid",
    "contents",
    "grid",
]
