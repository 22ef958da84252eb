import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import equations
from hypothesis import given, settings
from hypothesis import strategies as st
from optax.contrib._muon import orthogonalize_via_newton_schulz

from marin_models.newton_schulz import COEFFICIENTS, orthogonalize


@functools.cache
def compiled(coefficients, dtype):
    return jax.jit(functools.partial(orthogonalize, coefficients=coefficients, dtype=dtype))


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def definition(matrix, coefficients):
    """The polynomials applied to the singular values, in double precision."""
    left, singular, right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
    singular = singular / np.sqrt(np.sum(singular**2))
    for a, b, c in COEFFICIENTS[coefficients]:
        singular = a * singular + b * singular**3 + c * singular**5
    return (left * singular) @ right


@pytest.mark.parametrize("coefficients", ["quintic", "polar_express"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_singular_values_of_a_wide_gaussian_matrix_come_to_one(coefficients, dtype):
    found = np.asarray(compiled(coefficients, dtype)(gaussian(256, 1024)), np.float64)
    singular = np.linalg.svd(found, compute_uv=False)
    assert singular.min() >= 0.95
    assert singular.max() <= 1.07


@pytest.mark.parametrize(
    ("shape", "coefficients"),
    [((8, 8), "quintic"), ((40, 8), "quintic"), ((8, 12), "simple"), ((8, 40), "polar_express")],
)
def test_fp32_is_the_definition(shape, coefficients):
    matrix = gaussian(*shape)
    wanted = definition(matrix, coefficients)
    np.testing.assert_allclose(compiled(coefficients, "float32")(matrix), wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("columns", [24, 64])
def test_fp32_keeps_singular_values_that_are_a_millionth_of_the_largest(columns):
    left, _, right = np.linalg.svd(gaussian(24, columns).astype(np.float64), full_matrices=False)
    matrix = ((left * np.logspace(0, -6, 24)) @ right).astype(np.float32)
    wanted = definition(matrix, "quintic")
    found = compiled("quintic", "float32")(matrix)
    np.testing.assert_allclose(found, wanted, atol=5e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(("shape", "coefficients"), [((8, 12), "simple"), ((40, 8), "quintic")])
def test_it_is_what_optax_iterates(shape, coefficients):
    matrix = gaussian(*shape)
    wanted = orthogonalize_via_newton_schulz(jnp.asarray(matrix), jnp.asarray(COEFFICIENTS[coefficients]), eps=1e-8)
    found = compiled(coefficients, "float32")(matrix)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * float(jnp.abs(wanted).max()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("stack", [(2, 3)])
def test_matrices_of_a_stack_are_worked_on_one_by_one(stack, dtype):
    matrices = gaussian(*stack, 8, 24)
    found = compiled("quintic", dtype)(matrices)
    assert found.dtype == jnp.dtype(dtype)
    for index in np.ndindex(*stack):
        alone = np.asarray(compiled("quintic", dtype)(matrices[index]), np.float32)
        tolerance = 1e-6 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(np.asarray(found[index], np.float32), alone, atol=tolerance)
        assert not np.allclose(np.asarray(found[index], np.float32), matrices[index], atol=0.1)


def test_a_matrix_of_zeros_stays_one():
    np.testing.assert_array_equal(compiled("quintic", "float32")(np.zeros((2, 4, 8), np.float32)), np.zeros((2, 4, 8)))


@given(st.integers(-5, 15), st.integers(0, 2**31))
@settings(max_examples=10)
def test_the_size_of_a_matrix_does_not_matter(exponent, seed):
    matrix = gaussian(8, 12, seed=seed)
    one, other = (
        compiled("quintic", "float32")(matrix),
        compiled("quintic", "float32")(matrix * np.float32(2.0**exponent)),
    )
    np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_wide_matrix_is_multiplied_with_itself_as_it_lies(dtype):
    """XLA:CPU multiplies bf16 as fp32, in twice the time, where it sees a transpose before a product."""
    iterate = functools.partial(orthogonalize, dtype=dtype)
    names = {one.primitive.name for one in equations(jax.make_jaxpr(iterate)(gaussian(3, 8, 12)).jaxpr)}
    assert "dot_general" in names
    assert "transpose" not in names
