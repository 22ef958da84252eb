"""The experts' whole computation block by block, for CPUs: what a block makes stays in the cache until it is used.

The blocks are those of the grouped matmul in blocks. One loop in each direction takes the place of three and six.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from marin_kernels.expert_parallel.routing import Experts
from marin_kernels.expert_parallel.saved import DISPATCHED, GATED, RAISED
from marin_kernels.grouped_matmul.blocked import Block, add_to_matrix, dot, matrix_of, over_blocks, put, take


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
        return put(made, dot(hidden, matrix_of(experts.down, block), (1, 0)), block)

    return over_blocks(rows.shape[0], sizes, jnp.zeros_like(rows), turn)


def _forward(rows, sizes, experts):
    def turn(made, block):
        gated, raised = _inner(rows, experts, block)
        hidden = (jax.nn.silu(gated) * raised).astype(rows.dtype)
        result = dot(hidden, matrix_of(experts.down, block), (1, 0))
        return tuple(put(old, new, block) for old, new in zip(made, (result, gated, raised), strict=True))

    inner = jnp.zeros((rows.shape[0], experts.gate.shape[2]), rows.dtype)
    made, gated, raised = over_blocks(rows.shape[0], sizes, (jnp.zeros_like(rows), inner, inner), turn)
    return made, (rows, sizes, experts, checkpoint_name(gated, GATED), checkpoint_name(raised, RAISED))


def _backward(saved, cotangent):
    rows, sizes, experts, gated, raised = saved

    def turn(gradients, block):
        d_rows, d_experts = gradients
        pulled = take(cotangent, block)
        d_hidden = dot(pulled, matrix_of(experts.down, block), (1, 1))
        d_gated, d_raised, hidden = _through_gate(take(gated, block), take(raised, block), d_hidden, block, rows.dtype)
        d_block = dot(d_gated, matrix_of(experts.gate, block), (1, 1))
        d_block += dot(d_raised, matrix_of(experts.up, block), (1, 1))
        x = take(rows, block)
        added = Experts(dot(x, d_gated, (0, 0)), dot(x, d_raised, (0, 0)), dot(hidden, pulled, (0, 0)))
        return put(d_rows, d_block, block), jax.tree.map(lambda t, a: add_to_matrix(t, a, block), d_experts, added)

    sums = jax.tree.map(lambda matrix: jnp.zeros(matrix.shape, jnp.float32), experts)
    d_rows, d_experts = over_blocks(rows.shape[0], sizes, (jnp.zeros_like(rows), sums), turn)
    return d_rows, None, jax.tree.map(lambda gradient: gradient.astype(rows.dtype), d_experts)


_feed_forward.defvjp(_forward, _backward)


def _through_gate(gated: Array, raised: Array, d_hidden: Array, block: Block, dtype: jnp.dtype) -> list[Array]:
    """Gradients of ``silu(gated) * raised``, and its value; zero in rows that are not the block's own."""
    gated, raised = gated.astype(jnp.float32), raised.astype(jnp.float32)
    share = jax.nn.sigmoid(gated)
    silu = gated * share
    results = (d_hidden * raised * (share + silu * (1 - share)), d_hidden * silu, silu * raised)
    return [jnp.where(block.own, result, 0).astype(dtype) for result in results]


def _inner(rows: Array, experts: Experts, block: Block) -> tuple[Array, Array]:
    x = take(rows, block)
    return dot(x, matrix_of(experts.gate, block), (1, 0)), dot(x, matrix_of(experts.up, block), (1, 0))
