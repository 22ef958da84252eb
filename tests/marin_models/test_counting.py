import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import TINY

from marin_models import TransformerConfig, flops_per_token, forward_flops_per_token, parameter_count
from marin_models.parameters import abstract_model

configs = st.builds(
    lambda group, key_value_heads, half, **shape: TransformerConfig(
        heads=group * key_value_heads, key_value_heads=key_value_heads, head_size=2 * half, **shape
    ),
    group=st.integers(1, 3),
    key_value_heads=st.integers(1, 3),
    half=st.integers(1, 4),
    vocabulary=st.integers(2, 40),
    width=st.integers(1, 24),
    layers=st.integers(1, 5),
    feed_forward=st.integers(1, 30),
    tied_head=st.booleans(),
)


@settings(max_examples=15, deadline=None)
@given(configs)
def test_the_count_of_parameters_is_that_of_the_program(config):
    assert parameter_count(config) == sum(leaf.size for leaf in jax.tree.leaves(abstract_model(config)))


def product_flops(jaxpr, times=1):
    """Multiplications and additions of all matrix products in a program, loops included."""
    total = 0
    for equation in jaxpr.eqns:
        inner_times = times * equation.params.get("length", 1) if equation.primitive.name == "scan" else times
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += times * 2 * int(np.prod([left[axis] for axis in contracted])) * equation.outvars[0].aval.size
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            total += product_flops(inner, inner_times) if hasattr(inner, "eqns") else 0
    return total


@pytest.mark.parametrize("tied", [False, True])
def test_the_operations_of_a_forward_pass_are_the_products_of_the_program(tied):
    config, length = attrs.evolve(TINY, tied_head=tied, attention="reference"), 8
    tokens = jnp.zeros((3, length), jnp.int32)
    program = jax.make_jaxpr(lambda model: model(tokens))(abstract_model(config))
    # The program computes all length x length scores; the count takes those that a causal model needs.
    unneeded = 2 * 2 * config.layers * config.heads * config.head_size * (length - (length + 1) / 2)
    assert product_flops(program.jaxpr) == 3 * length * (forward_flops_per_token(config, length) + unneeded)


def test_training_costs_three_forward_passes():
    assert flops_per_token(TINY, 32) == 3 * forward_flops_per_token(TINY, 32)


def test_counts_of_a_known_shape():
    config = TransformerConfig(2048, width=64, layers=2, heads=2, key_value_heads=1, feed_forward=176)
    matrices = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 176)
    assert parameter_count(config) == matrices + 2 * (2 * 64 + 2 * 32) + 64 + 2 * 2048 * 64
    assert flops_per_token(config, 127) == 6 * (matrices + 2048 * 64 + 2 * 2 * 64 * 64)
