"""The shapes of models and kernels are checked while tests run, whatever was imported first."""

import checked_shapes
import jax.numpy as jnp
import jaxtyping
import pytest

import library.training  # noqa: F401  (it imports the models)
from marin_kernels.cross_entropy import linear_cross_entropy


def test_every_imported_module_of_models_and_kernels_is_checked():
    modules = list(checked_shapes.imported())
    assert {module.__name__.split(".")[0] for module in modules} == set(checked_shapes.CHECKED)
    unchecked = [each.__name__ for each in modules if not type(each.__loader__).__module__.startswith("jaxtyping")]
    assert unchecked == []


def test_a_wrong_shape_is_refused():
    with pytest.raises(jaxtyping.TypeCheckError):
        linear_cross_entropy(jnp.zeros((4, 8)), jnp.zeros((9, 16)), jnp.zeros(4, int))
