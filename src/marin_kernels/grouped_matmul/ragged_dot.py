"""Grouped matmul as XLA's own ``ragged_dot``: grouped kernels on TPUs and GPUs, dense and masked (slow) on CPUs."""

import jax
import jax.numpy as jnp

from marin_kernels.grouped_matmul.operations import Matrices, Operations, Results, Rows, Sizes
from marin_kernels.precision import precision


def _dot(left, right, sizes, contracted, groups):
    dimensions = jax.lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(contracted, ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=groups
    )
    product = jax.lax.ragged_dot_general(
        left, right, sizes, dimensions, precision=precision(left.dtype), preferred_element_type=jnp.float32
    )
    return product.astype(left.dtype)


def product(rows: Rows, matrices: Matrices, sizes: Sizes) -> Results:
    """``rows @ matrices[group]``."""
    return _dot(rows, matrices, sizes, ((1,), (1,)), [0])


def transposed_product(results: Results, matrices: Matrices, sizes: Sizes) -> Rows:
    """``results @ matrices[group].T``."""
    return _dot(results, matrices, sizes, ((1,), (2,)), [0])


def outer_product(rows: Rows, results: Results, sizes: Sizes) -> Matrices:
    """``rows[group].T @ results[group]``."""
    return _dot(rows, results, sizes, ((0,), (0,)), [])


OPERATIONS = Operations(product, transposed_product, outer_product)
