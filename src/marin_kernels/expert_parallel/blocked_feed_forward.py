"""The experts' whole computation block by block, for CPUs: what a block makes stays in the cache until it is used.

The blocks are those of the grouped matmul in blocks. One loop in each direction takes the place of three and six.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from marin_kernels.expert_parallel.routing import Experts
from marin_kernels.expert_parallel.saved import DISPATCHED, GATED, RAISED
from marin_kernels.grouped_matmul.blocked import cut, heights
from marin_kernels.grouped_matmul.operations import precision


class _Block(NamedTuple):
    """Where a block's rows begin, which of them are its own (a column), and its expert."""

    first: Array
    own: Array
    expert: Array


def blocked_feed_forward(
    rows: Float[Array, "rows width"], sizes: Int[Array, " experts"], experts: Experts
) -> Float[Array, "rows width"]:
    """``(silu(x @ gate) * (x @ up)) @ down`` with the matrices of each row's expert; zero behind the last expert."""
    if 0 in (*rows.shape, *experts.gate.shape):
        return jnp.zeros_like(rows)
    rows = checkpoint_name(rows, DISPATCHED)
    return _feed_forward(rows, sizes, Experts(*(matrix.astype(rows.dtype) for matrix in experts)))


@jax.custom_vjp
def _feed_forward(rows, sizes, experts):
    def turn(made, block):
        gated, raised = _inner(rows, experts, block)
        hidden = (jax.nn.silu(gated) * raised).astype(rows.dtype)
        return _put(made, _dot(hidden, _matrix(experts.down, block), (1, 0)), block)

    return _over_blocks(turn, jnp.zeros_like(rows), rows, sizes)


def _forward(rows, sizes, experts):
    def turn(made, block):
        gated, raised = _inner(rows, experts, block)
        hidden = (jax.nn.silu(gated) * raised).astype(rows.dtype)
        result = _dot(hidden, _matrix(experts.down, block), (1, 0))
        return tuple(_put(old, new, block) for old, new in zip(made, (result, gated, raised), strict=True))

    inner = jnp.zeros((rows.shape[0], experts.gate.shape[2]), rows.dtype)
    made, gated, raised = _over_blocks(turn, (jnp.zeros_like(rows), inner, inner), rows, sizes)
    return made, (rows, sizes, experts, checkpoint_name(gated, GATED), checkpoint_name(raised, RAISED))


def _backward(saved, cotangent):
    rows, sizes, experts, gated, raised = saved

    def turn(gradients, block):
        d_rows, d_experts = gradients
        pulled = _get(cotangent, block)
        d_hidden = _dot(pulled, _matrix(experts.down, block), (1, 1))
        d_gated, d_raised, hidden = _through_gate(_get(gated, block), _get(raised, block), d_hidden, block, rows.dtype)
        d_block = _dot(d_gated, _matrix(experts.gate, block), (1, 1))
        d_block += _dot(d_raised, _matrix(experts.up, block), (1, 1))
        x = _get(rows, block)
        added = Experts(_dot(x, d_gated, (0, 0)), _dot(x, d_raised, (0, 0)), _dot(hidden, pulled, (0, 0)))
        return _put(d_rows, d_block, block), jax.tree.map(lambda t, a: _add(t, a, block), d_experts, added)

    sums = jax.tree.map(lambda matrix: jnp.zeros(matrix.shape, jnp.float32), experts)
    d_rows, d_experts = _over_blocks(turn, (jnp.zeros_like(rows), sums), rows, sizes)
    return d_rows, None, jax.tree.map(lambda gradient: gradient.astype(rows.dtype), d_experts)


_feed_forward.defvjp(_forward, _backward)


def _through_gate(gated: Array, raised: Array, d_hidden: Array, block: _Block, dtype: jnp.dtype) -> list[Array]:
    """Gradients of ``silu(gated) * raised``, and its value; zero in rows that are not the block's own."""
    gated, raised = gated.astype(jnp.float32), raised.astype(jnp.float32)
    share = jax.nn.sigmoid(gated)
    silu = gated * share
    results = (d_hidden * raised * (share + silu * (1 - share)), d_hidden * silu, silu * raised)
    return [jnp.where(block.own, result, 0).astype(dtype) for result in results]


def _inner(rows: Array, experts: Experts, block: _Block) -> tuple[Array, Array]:
    x = _get(rows, block)
    return _dot(x, _matrix(experts.gate, block), (1, 0)), _dot(x, _matrix(experts.up, block), (1, 0))


def _over_blocks(turn: Callable, start, rows: Array, sizes: Array):
    """Let ``turn(total, block)`` change a total, block by block."""
    count = rows.shape[0]
    chosen = heights(count, len(sizes))
    blocks = cut(count, sizes, chosen)
    total = start
    for kind, height in enumerate(chosen):

        def step(i, total, height=height):
            first = jnp.minimum(blocks.first[i], count - height)
            position = first + jnp.arange(height)
            own = (position >= blocks.first[i]) & (position < blocks.end[i])
            return turn(total, _Block(first, own[:, None], blocks.group[i]))

        total = jax.lax.fori_loop(blocks.bounds[kind], blocks.bounds[kind + 1], step, total)
    return total


def _get(array: Array, block: _Block) -> Array:
    return jax.lax.dynamic_slice_in_dim(array, block.first, block.own.shape[0])


def _put(total: Array, values: Array, block: _Block) -> Array:
    kept = jnp.where(block.own, values.astype(total.dtype), _get(total, block))
    return jax.lax.dynamic_update_slice_in_dim(total, kept, block.first, 0)


def _add(total: Array, values: Array, block: _Block) -> Array:
    return jax.lax.dynamic_update_index_in_dim(total, _matrix(total, block) + values, block.expert, 0)


def _matrix(matrices: Array, block: _Block) -> Array:
    return jax.lax.dynamic_index_in_dim(matrices, block.expert, keepdims=False)


def _dot(left: Array, right: Array, contracted: tuple[int, int]) -> Array:
    dimensions = (((contracted[0],), (contracted[1],)), ((), ()))
    return jax.lax.dot_general(
        left, right, dimensions, precision=precision(left.dtype), preferred_element_type=jnp.float32
    )
