"""The public function: which implementation runs, and its gradients."""

from functools import partial
from types import ModuleType
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels.grouped_matmul import blocked, ragged_dot, reference, tokamax
from marin_kernels.implementations import Obstacle, choose
from marin_kernels.manual_axes import equally_varying

GroupedMatmulImplementation = Literal[
    "default", "reference", "blocked", "ragged_dot", "tokamax", "pallas_tpu", "pallas_triton", "mosaic_gpu"
]


def _kernels(name: str) -> ModuleType:
    """The module of an implementation; Pallas takes a second to import, so that only what is asked for is."""
    match name:
        case "pallas_tpu":
            from marin_kernels.grouped_matmul import pallas_tpu

            return pallas_tpu
        case "pallas_triton":
            from marin_kernels.grouped_matmul import pallas_triton

            return pallas_triton
        case "mosaic_gpu":
            from marin_kernels.grouped_matmul import mosaic_gpu

            return mosaic_gpu
    return {"reference": reference, "blocked": blocked, "ragged_dot": ragged_dot, "tokamax": tokamax}[name]


def _obstacle(name: str) -> Obstacle:
    return lambda rows, matrices: _kernels(name).obstacle(rows, matrices)


_OBSTACLES: dict[str, Obstacle] = {
    **dict.fromkeys(("reference", "blocked", "ragged_dot"), lambda rows, matrices: None),
    **{name: _obstacle(name) for name in ("tokamax", "pallas_tpu", "pallas_triton", "mosaic_gpu")},
}
_ORDER = {"cpu": ("blocked",), "gpu": ("pallas_triton", "ragged_dot"), "tpu": ("pallas_tpu", "ragged_dot")}


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
            `jax.lax.ragged_dot`; ``"tokamax"`` is that library's; ``"pallas_tpu"``, ``"pallas_triton"`` (sm80) and
            ``"mosaic_gpu"`` (sm90, 16-bit) are kernels for these devices. ``"default"`` is ``"blocked"`` on a CPU,
            ``"pallas_tpu"`` on a TPU and ``"pallas_triton"`` on a GPU; where widths or dtypes do not suit the latter
            two, ``"ragged_dot"`` runs instead and a `marin_kernels.implementations.FallbackWarning` says why.

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
    return _differentiable(_kernels(name).OPERATIONS, rows, matrices, jnp.diff(ends, prepend=0))


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
