"""Grouped matmul in blocks of rows, in plain XLA: near the speed of one dense product on a CPU.

A group is cut into blocks of the largest height; what remains of it becomes one block of the smallest height that
covers it. Blocks of one height are the turns of one loop. No row is moved beforehand: a block begins where its rows
begin, and what it computes of rows that are not its own is discarded.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from marin_kernels.grouped_matmul.operations import Matrices, Operations, Results, Rows, Sizes
from marin_kernels.manual_axes import zeros_like_varying
from marin_kernels.precision import precision

Total = TypeVar("Total")

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


class Block(NamedTuple):
    """Where a block's rows begin, which of them are its own (a column), and its group."""

    first: Int[Array, ""]
    own: Bool[Array, "height 1"]
    group: Int[Array, ""]


def over_blocks(rows: int, sizes: Sizes, start: Total, turn: Callable[[Total, Block], Total]) -> Total:
    """Let ``turn(total, block)`` change a total, block by block."""
    chosen = heights(rows, len(sizes))
    blocks = cut(rows, sizes, chosen)
    total = start
    for kind, height in enumerate(chosen):

        def step(i, total, height=height):
            first = jnp.minimum(blocks.first[i], rows - height)
            position = first + jnp.arange(height)
            own = (position >= blocks.first[i]) & (position < blocks.end[i])
            return turn(total, Block(first, own[:, None], blocks.group[i]))

        total = jax.lax.fori_loop(blocks.bounds[kind], blocks.bounds[kind + 1], step, total)
    return total


def take(array: Array, block: Block) -> Array:
    """The rows where a block lies, those that are not its own included."""
    return jax.lax.dynamic_slice_in_dim(array, block.first, block.own.shape[0])


def put(total: Array, values: Array, block: Block) -> Array:
    """The total with a block's own rows replaced."""
    kept = jnp.where(block.own, values.astype(total.dtype), take(total, block))
    return jax.lax.dynamic_update_slice_in_dim(total, kept, block.first, 0)


def matrix_of(matrices: Array, block: Block) -> Array:
    """The matrix of a block's group."""
    return jax.lax.dynamic_index_in_dim(matrices, block.group, keepdims=False)


def add_to_matrix(total: Array, values: Array, block: Block) -> Array:
    """The total with something added to the matrix of a block's group."""
    return jax.lax.dynamic_update_index_in_dim(total, matrix_of(total, block) + values, block.group, 0)


def dot(left: Array, right: Array, contracted: tuple[int, int]) -> Array:
    """The product over one axis of each, in fp32."""
    dimensions = (((contracted[0],), (contracted[1],)), ((), ()))
    return jax.lax.dot_general(
        left, right, dimensions, precision=precision(left.dtype), preferred_element_type=jnp.float32
    )


def _rowwise(rows, matrices, sizes, contracted: int):
    """``rows`` times each group's matrix, whose axis ``contracted`` is summed over."""

    def turn(total, block):
        return put(total, dot(take(rows, block), matrix_of(matrices, block), (1, contracted)), block)

    width = matrices.shape[2 - contracted]
    start = zeros_like_varying((rows.shape[0], width), rows.dtype, rows, matrices, sizes)
    return over_blocks(rows.shape[0], sizes, start, turn)


def product(rows: Rows, matrices: Matrices, sizes: Sizes) -> Results:
    """``rows @ matrices[group]``."""
    return _rowwise(rows, matrices, sizes, 0)


def transposed_product(results: Results, matrices: Matrices, sizes: Sizes) -> Rows:
    """``results @ matrices[group].T``."""
    return _rowwise(results, matrices, sizes, 1)


def outer_product(rows: Rows, results: Results, sizes: Sizes) -> Matrices:
    """``rows[group].T @ results[group]``, summed in fp32 over the group's blocks."""

    def turn(total, block):
        left, right = (jnp.where(block.own, take(array, block), 0) for array in (rows, results))
        return add_to_matrix(total, dot(left, right, (0, 0)), block)

    shape = (len(sizes), rows.shape[1], results.shape[1])
    start = zeros_like_varying(shape, jnp.float32, rows, results, sizes)
    return over_blocks(rows.shape[0], sizes, start, turn).astype(rows.dtype)


OPERATIONS = Operations(product, transposed_product, outer_product)
