"""Grouped matmul by masks: every row against every matrix. The oracle of the others; ``groups`` times too slow."""

import jax.numpy as jnp

from marin_kernels.grouped_matmul.operations import Matrices, Operations, Results, Rows, Sizes, membership
from marin_kernels.precision import exact_product


def _masked(rows: Rows, sizes: Sizes):
    return jnp.where(membership(rows.shape[0], sizes)[:, :, None], rows, 0)


def _sum(equation, left, right):
    return exact_product(equation, left, right).astype(left.dtype)


def product(rows: Rows, matrices: Matrices, sizes: Sizes) -> Results:
    """``rows @ matrices[group]``."""
    return _sum("gri,gio->ro", _masked(rows, sizes), matrices)


def transposed_product(results: Results, matrices: Matrices, sizes: Sizes) -> Rows:
    """``results @ matrices[group].T``."""
    return _sum("gro,gio->ri", _masked(results, sizes), matrices)


def outer_product(rows: Rows, results: Results, sizes: Sizes) -> Matrices:
    """``rows[group].T @ results[group]``."""
    return _sum("gri,gro->gio", _masked(rows, sizes), _masked(results, sizes))


OPERATIONS = Operations(product, transposed_product, outer_product)
