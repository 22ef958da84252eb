"""The public function: which implementation runs, and its gradients."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels.grouped_matmul import blocked, ragged_dot, reference
from marin_kernels.grouped_matmul.operations import Operations
from marin_kernels.implementations import Obstacle, choose
from marin_kernels.manual_axes import equally_varying

GroupedMatmulImplementation = Literal["default", "reference", "blocked", "ragged_dot"]

_OPERATIONS: dict[str, Operations] = {
    "reference": reference.OPERATIONS,
    "blocked": blocked.OPERATIONS,
    "ragged_dot": ragged_dot.OPERATIONS,
}
_OBSTACLES: dict[str, Obstacle] = {
    "reference": lambda rows, matrices: None,
    "blocked": lambda rows, matrices: None,
    "ragged_dot": lambda rows, matrices: None,
}
_ORDER = {"cpu": ("blocked",), "gpu": ("ragged_dot",), "tpu": ("ragged_dot",)}


def grouped_matmul(
    rows: Float[Array, "rows inner"],
    matrices: Float[Array, "groups inner outer"],
    sizes: Int[Array, " groups"],
    *,
    implementation: GroupedMatmulImplementation = "default",
) -> Float[Array, "rows outer"]:
    """Multiply each row by the matrix of its group: the first ``sizes[0]`` rows by ``matrices[0]``, and so on.

    Args:
        rows: rows in order of their groups; those after the last group belong to none. fp32 or bf16.
        matrices: one matrix a group, in the dtype of ``rows``.
        sizes: how many rows each group has, 0 included; what exceeds the rows there are is cut off.
        implementation: ``"reference"`` masks; ``"blocked"`` is plain XLA in blocks of rows; ``"ragged_dot"`` is
            `jax.lax.ragged_dot`. ``"default"`` takes what suits the device: ``"blocked"`` on a CPU.

    Returns:
        The products, summed in fp32, in the dtype of ``rows``; zero for rows that belong to no group. Gradients flow
        to ``rows`` and ``matrices``; they are zero for rows of no group and for matrices of empty groups.

    Raises:
        ValueError: the dtypes differ, or the implementation named is unknown or cannot run here.

    Source: Gale et al. 2022, "MegaBlocks" (arXiv 2211.15841).
    """
    if rows.dtype != matrices.dtype:
        raise ValueError(
            f"grouped_matmul: rows are {rows.dtype} and matrices are {matrices.dtype}; cast one to the other's dtype"
        )
    name = choose("grouped_matmul", implementation, _OBSTACLES, _ORDER, rows, matrices)
    rows, matrices, sizes = equally_varying(rows, matrices, sizes)
    if 0 in (*rows.shape, *matrices.shape):
        name = "reference"  # nothing to compute, but zeros to return
    ends = jnp.minimum(jnp.cumsum(sizes), rows.shape[0])
    return _differentiable(_OPERATIONS[name], rows, matrices, jnp.diff(ends, prepend=0))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(operations, rows, matrices, sizes):
    return operations.product(rows, matrices, sizes)


def _forward(operations, rows, matrices, sizes):
    return operations.product(rows, matrices, sizes), (rows, matrices, sizes)


def _backward(operations, saved, cotangent):
    rows, matrices, sizes = saved
    d_rows = operations.transposed_product(cotangent, matrices, sizes)
    return d_rows, operations.outer_product(rows, cotangent, sizes), None


_differentiable.defvjp(_forward, _backward)
