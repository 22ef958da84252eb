"""How exactly factors are multiplied."""

import jax
import jax.numpy as jnp


def precision(*dtypes: jnp.dtype) -> jax.lax.Precision:
    """Products of fp32 numbers are fp32 products also where the device would rather round them first (to bf16: TPUs).

    Args:
        dtypes: of both factors, or the one that both have.
    """
    return jax.lax.Precision.HIGHEST if all(one == jnp.float32 for one in dtypes) else jax.lax.Precision.DEFAULT


def exact_product(equation: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """``jnp.einsum`` with sums in fp32, and with products of fp32 numbers in fp32."""
    exact = precision(left.dtype, right.dtype)
    return jnp.einsum(equation, left, right, precision=exact, preferred_element_type=jnp.float32)
