"""How exactly factors are multiplied: by their dtypes."""

import jax
import jax.numpy as jnp

from marin_kernels.precision import precision


def test_only_two_factors_of_float32_are_multiplied_exactly():
    wide, narrow = jnp.dtype("float32"), jnp.dtype("bfloat16")
    assert precision(wide) is precision(wide, wide) is jax.lax.Precision.HIGHEST
    assert precision(narrow) is precision(wide, narrow) is jax.lax.Precision.DEFAULT
