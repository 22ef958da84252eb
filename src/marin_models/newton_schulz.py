"""Newton–Schulz iteration: the nearest matrix with orthonormal rows, by matrix products alone."""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from marin_kernels.precision import exact_product

Coefficients = Literal["quintic", "polar_express", "simple"]
OrthogonalizationDtype = Literal["bfloat16", "float32"]

COEFFICIENTS: dict[Coefficients, tuple[tuple[float, float, float], ...]] = {
    "quintic": (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
    "polar_express": (
        (8.2051, -22.9019, 16.4607),
        (4.0664, -2.8612, 0.5184),
        (3.9096, -2.8234, 0.5250),
        (3.2856, -2.4153, 0.4853),
        (2.2779, -1.6198, 0.3985),
        (1.8726, -1.2307, 0.3585),
        (1.8564, -1.2132, 0.3568),
        (1.8750, -1.2500, 0.3750),
    ),
    "simple": ((3.4445, -4.7750, 2.0315),) * 5,
}
"""``(a, b, c)`` of each step ``X <- aX + b(XX')X + c(XX')(XX')X``.

Sources: ``quintic``, Ahn et al. 2025 (arXiv 2504.05295); ``polar_express``, Amsel et al. 2025 (arXiv 2505.16932);
``simple``, Jordan et al. 2024, "Muon".
"""

SMALLEST_NORM = 1e-8  # a matrix of zeros stays one
UNROLLED = 4  # matrices of a stack whose products a CPU computes side by side
GRAM_ASPECT = 2  # from here on, fp32 iterates the small square matrix XX' instead of X
GRAM_RESTART = 2  # after so many steps XX' is formed anew, which keeps small singular values exact


def orthogonalize(
    matrices: Float[Array, "*stack rows columns"],
    *,
    coefficients: Coefficients = "quintic",
    dtype: OrthogonalizationDtype = "bfloat16",
) -> Float[Array, "*stack rows columns"]:
    """Each matrix with its singular values moved to about 1, its singular vectors kept.

    Args:
        matrices: a stack of matrices that this device holds whole (see `marin_models.muon` for stacks on a mesh).
        coefficients: a key of `COEFFICIENTS`.
        dtype: of the factors of every product; sums are fp32. The larger share of the work is on the smaller side.

    Returns:
        The results, of ``dtype``.
    """
    rows, columns = matrices.shape[-2:]
    wide = matrices.astype(dtype) if rows <= columns else _transposed(matrices.astype(dtype))
    iterate = functools.partial(_iterate, steps=COEFFICIENTS[coefficients])
    # A few matrices at a time stay in a CPU's cache and keep its cores busy; an accelerator wants all at once.
    flat = wide.reshape(-1, *wide.shape[-2:])
    found = jax.lax.platform_dependent(flat, cpu=functools.partial(_few_at_a_time, iterate), default=iterate)
    found = found.reshape(wide.shape)
    return found if rows <= columns else _transposed(found)


def _few_at_a_time(function: Callable[[Array], Array], stack: Array) -> Array:
    return jax.lax.scan(lambda _, matrix: (None, function(matrix)), None, stack, unroll=UNROLLED)[1]


def _transposed(matrices: Array) -> Array:
    return jnp.swapaxes(matrices, -1, -2)


def _multiply(one: Array, other: Array) -> Array:
    """The product in fp32: of bf16 factors natively (CPUs too), of fp32 factors without shortcuts."""
    return exact_product("...ij,...jk->...ik", one, other)


def _gram(x: Array) -> Array:
    """``x @ x.T``; XLA:CPU multiplies bf16 natively only where no transpose of its own comes first."""
    return exact_product("...ij,...kj->...ik", x, x)


def _iterate(x: Array, steps: tuple[tuple[float, float, float], ...]) -> Array:
    exact = x.astype(jnp.float32)
    norm = jnp.sqrt(jnp.sum(jnp.square(exact), (-2, -1), keepdims=True))
    normalized = (exact / (norm + SMALLEST_NORM)).astype(x.dtype)
    if x.dtype == jnp.float32 and x.shape[-1] >= GRAM_ASPECT * x.shape[-2]:
        return _by_gram_matrix(normalized, steps)
    return _directly(normalized, steps)


def _directly(x: Array, steps: tuple[tuple[float, float, float], ...]) -> Array:
    for a, b, c in steps:
        gram = _gram(x)
        rounded = gram.astype(x.dtype)
        polynomial = (b * gram + c * _multiply(rounded, rounded)).astype(x.dtype)
        x = (a * x.astype(jnp.float32) + _multiply(polynomial, x)).astype(x.dtype)
    return x


def _by_gram_matrix(x: Array, steps: tuple[tuple[float, float, float], ...]) -> Array:
    """The same with fewer operations for wide matrices: powers of XX' commute, so X is multiplied only at the ends."""
    for part in (steps[:GRAM_RESTART], steps[GRAM_RESTART:]):
        gram, factor = _gram(x), None
        for index, (a, b, c) in enumerate(part):
            polynomial = b * gram + c * _multiply(gram, gram)
            factor = _plus_identity(a, polynomial) if factor is None else a * factor + _multiply(polynomial, factor)
            if index + 1 < len(part):
                half = a * gram + _multiply(polynomial, gram)
                gram = a * half + _multiply(half, polynomial)
        x = x if factor is None else _multiply(factor, x)
    return x


def _plus_identity(a: float, matrix: Array) -> Array:
    return matrix + a * jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
