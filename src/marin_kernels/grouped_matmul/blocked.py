"""Grouped matmul in blocks of rows, in plain XLA: near the speed of one dense product on a CPU.

A group is cut into blocks of the largest height; what remains of it becomes one block of the smallest height that
covers it. Blocks of one height are the turns of one loop. No row is moved beforehand: a block begins where its rows
begin, and what it computes of rows that are not its own is discarded.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from marin_kernels.grouped_matmul.operations import Matrices, Operations, Results, Rows, Sizes, precision
from marin_kernels.manual_axes import zeros_like_varying

LOWEST, COARSEST = 8, 128
"""Heights are multiples of the first; the second limits how far one is above the next."""


class Blocks(NamedTuple):
    """Blocks in order of their height; those of height ``heights[i]`` are ``bounds[i]`` to ``bounds[i + 1]``."""

    group: Int[Array, " blocks"]
    first: Int[Array, " blocks"]
    end: Int[Array, " blocks"]
    bounds: Int[Array, " bounds"]


def heights(rows: int, groups: int) -> tuple[int, ...]:
    """The heights to use where ``rows`` are divided among ``groups``: up to one and a half times a group's mean size.

    They are a sixth of the mean apart: finer ones compute less in vain, but each is a loop to compile.
    """
    mean = rows / groups
    unit = min(COARSEST, LOWEST * math.ceil(mean / 6 / LOWEST))
    multiples = tuple(unit * (1 + i) for i in range(min(9, math.ceil(1.5 * mean / unit))))
    return (*(height for height in multiples if height < rows), *((rows,) if multiples[-1] >= rows else ()))


def cut(rows: int, sizes: Sizes, heights: tuple[int, ...]) -> Blocks:
    """Cut the groups into blocks."""
    groups, highest = len(sizes), heights[-1]
    ends = jnp.cumsum(sizes)
    counts = -(-sizes // highest)
    below = jnp.cumsum(counts)
    number = jnp.arange(rows // highest + groups)
    group = jnp.sum(below[None] <= number[:, None], axis=1)
    used, group = group < groups, jnp.minimum(group, groups - 1)
    first = (ends - sizes)[group] + (number - (below - counts)[group]) * highest
    end = jnp.minimum(first + highest, ends[group])
    kind = jnp.sum(jnp.array(heights)[None] < (end - first)[:, None], axis=1)
    kind = jnp.where(used, kind, len(heights))
    order = jnp.argsort(kind)
    bounds = jnp.sum(kind[None] < jnp.arange(len(heights) + 1)[:, None], axis=1)
    return Blocks(group[order], first[order], end[order], bounds)


def _loop(rows: int, sizes: Sizes, start: Array, turn: Callable) -> Array:
    """Let ``turn(total, group, start of the block, which of its rows are its own)`` change a total, block by block."""
    chosen = heights(rows, len(sizes))
    blocks = cut(rows, sizes, chosen)
    total = start
    for kind, height in enumerate(chosen):

        def step(i, total, height=height):
            first = jnp.minimum(blocks.first[i], rows - height)
            position = first + jnp.arange(height)
            own = (position >= blocks.first[i]) & (position < blocks.end[i])
            return turn(total, blocks.group[i], first, own[:, None])

        total = jax.lax.fori_loop(blocks.bounds[kind], blocks.bounds[kind + 1], step, total)
    return total


def _take(array: Array, first: Int[Array, ""], own: Bool[Array, "height 1"]) -> Array:
    return jax.lax.dynamic_slice_in_dim(array, first, own.shape[0])


def _dot(left: Array, right: Array, contracted: tuple[int, int]) -> Array:
    dimensions = (((contracted[0],), (contracted[1],)), ((), ()))
    return jax.lax.dot_general(
        left, right, dimensions, precision=precision(left.dtype), preferred_element_type=jnp.float32
    )


def _rowwise(rows, matrices, sizes, contracted: int):
    """``rows`` times each group's matrix, whose axis ``contracted`` is summed over."""

    def turn(total, group, first, own):
        matrix = jax.lax.dynamic_index_in_dim(matrices, group, keepdims=False)
        found = _dot(_take(rows, first, own), matrix, (1, contracted)).astype(total.dtype)
        return jax.lax.dynamic_update_slice_in_dim(total, jnp.where(own, found, _take(total, first, own)), first, 0)

    width = matrices.shape[2 - contracted]
    start = zeros_like_varying((rows.shape[0], width), rows.dtype, rows, matrices, sizes)
    return _loop(rows.shape[0], sizes, start, turn)


def product(rows: Rows, matrices: Matrices, sizes: Sizes) -> Results:
    """``rows @ matrices[group]``."""
    return _rowwise(rows, matrices, sizes, 0)


def transposed_product(results: Results, matrices: Matrices, sizes: Sizes) -> Rows:
    """``results @ matrices[group].T``."""
    return _rowwise(results, matrices, sizes, 1)


def outer_product(rows: Rows, results: Results, sizes: Sizes) -> Matrices:
    """``rows[group].T @ results[group]``, summed in fp32 over the group's blocks."""

    def turn(total, group, first, own):
        left, right = (jnp.where(own, _take(array, first, own), 0) for array in (rows, results))
        sum_ = jax.lax.dynamic_index_in_dim(total, group, keepdims=False) + _dot(left, right, (0, 0))
        return jax.lax.dynamic_update_index_in_dim(total, sum_, group, 0)

    shape = (len(sizes), rows.shape[1], results.shape[1])
    start = zeros_like_varying(shape, jnp.float32, rows, results, sizes)
    return _loop(rows.shape[0], sizes, start, turn).astype(rows.dtype)


OPERATIONS = Operations(product, transposed_product, outer_product)
