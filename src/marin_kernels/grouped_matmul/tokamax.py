"""Grouped matmul by the library tokamax (https://github.com/openxla/tokamax), where it is installed.

It chooses among its own kernels by device. Whether its kernels write rows of no group is theirs to decide: here they
are zeroed.
"""

from importlib import import_module
from importlib.util import find_spec

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marin_kernels.grouped_matmul.operations import Matrices, Operations, Results, Rows, Sizes
from marin_kernels.precision import precision


def obstacle(rows: Array, matrices: Array) -> str | None:
    """Why it cannot run: it is not installed."""
    return None if find_spec("tokamax") else "tokamax is not installed: pip install tokamax"


def _grouped(array: Array, sizes: Sizes) -> Array:
    return jnp.where((jnp.arange(len(array)) < jnp.sum(sizes))[:, None], array, 0)


def product(rows: Rows, matrices: Matrices, sizes: Sizes) -> Results:
    """``rows @ matrices[group]``."""
    ragged_dot = import_module("tokamax").ragged_dot
    result = ragged_dot(
        rows, matrices, sizes, precision=precision(rows.dtype), preferred_element_type=jnp.dtype("float32")
    )
    return _grouped(result, sizes).astype(rows.dtype)


def transposed_product(results: Results, matrices: Matrices, sizes: Sizes) -> Rows:
    """``results @ matrices[group].T``."""
    return product(results, matrices.swapaxes(1, 2), sizes)


def outer_product(rows: Rows, results: Results, sizes: Sizes) -> Matrices:
    """``rows[group].T @ results[group]``: tokamax's own gradient."""
    rows, results = _grouped(rows, sizes), _grouped(results, sizes)
    none = jnp.zeros((len(sizes), rows.shape[1], results.shape[1]), rows.dtype)
    return jax.vjp(lambda matrices: product(rows, matrices, sizes), none)[1](results)[0]


OPERATIONS = Operations(product, transposed_product, outer_product)
