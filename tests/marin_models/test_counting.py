import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import ROUTED, TINY

from marin_models import (
    MixtureOfExpertsConfig,
    TransformerConfig,
    active_parameter_count,
    flops_per_token,
    forward_flops_per_token,
    parameter_count,
)
from marin_models.counting import mean_visible
from marin_models.parameters import abstract_model

VARIANTS = {"attention_bias": True, "attention_gate": True, "norm_gate": 3, "qk_norm": "projection"}

mixtures = st.builds(
    MixtureOfExpertsConfig,
    experts=st.integers(3, 6),
    top_k=st.integers(1, 2),
    inner=st.integers(1, 8),
    shared_inner=st.integers(0, 5),
    latent=st.integers(0, 8),
)
configs = st.builds(
    lambda group, key_value_heads, half, mixture, **shape: TransformerConfig(
        heads=group * key_value_heads,
        key_value_heads=key_value_heads,
        head_size=2 * half,
        mixture=mixture and attrs.evolve(mixture, latent=min(mixture.latent, shape["width"])),
        dense_layers=0 if mixture is None else shape["layers"] // 2,
        **shape,
    ),
    group=st.integers(1, 3),
    key_value_heads=st.integers(1, 3),
    half=st.integers(1, 4),
    mixture=st.none() | mixtures,
    vocabulary=st.integers(2, 40),
    width=st.integers(1, 24),
    layers=st.integers(1, 5),
    feed_forward=st.integers(1, 30),
    tied_head=st.booleans(),
    qk_norm=st.sampled_from(["head", "projection", "none"]),
    attention_bias=st.booleans(),
    attention_gate=st.booleans(),
    norm_gate=st.integers(0, 2),
)


@settings(max_examples=15, deadline=None)
@given(configs)
def test_the_count_of_parameters_is_that_of_the_program(config):
    assert parameter_count(config) == sum(leaf.size for leaf in jax.tree.leaves(abstract_model(config)))


def test_active_parameters_are_all_but_those_of_experts_not_visited():
    fewer = attrs.evolve(ROUTED, mixture=attrs.evolve(ROUTED.mixture, experts=3, top_k=2))
    idle_expert = ROUTED.routed_layers * 3 * ROUTED.width * ROUTED.mixture.inner
    assert active_parameter_count(fewer) == parameter_count(fewer) - idle_expert
    router_column = ROUTED.routed_layers * ROUTED.width
    assert active_parameter_count(ROUTED) == active_parameter_count(fewer) + router_column
    assert active_parameter_count(TINY) == parameter_count(TINY)


def test_a_latent_space_makes_experts_narrower_and_adds_two_projections_and_a_norm():
    latent, shape = attrs.evolve(ROUTED, mixture=attrs.evolve(ROUTED.mixture, latent=5)), ROUTED.mixture
    a_layer = 2 * ROUTED.width * 5 + 5
    narrower = 3 * (ROUTED.width - 5) * shape.inner
    for count, experts in ((parameter_count, shape.experts), (active_parameter_count, shape.top_k)):
        assert count(latent) - count(ROUTED) == ROUTED.routed_layers * (a_layer - experts * narrower)


def product_flops(jaxpr, times=1):
    """Multiplications and additions of all matrix products in a program, loops included."""
    total = 0
    for equation in jaxpr.eqns:
        inner_times = times * equation.params.get("length", 1) if equation.primitive.name == "scan" else times
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += times * 2 * int(np.prod([left[axis] for axis in contracted])) * equation.outvars[0].aval.size
        if equation.primitive.name == "ragged_dot_general":
            rows, inner = equation.invars[0].aval.shape
            total += times * 2 * rows * inner * equation.outvars[0].aval.shape[-1]
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            total += product_flops(inner, inner_times) if hasattr(inner, "eqns") else 0
    return total


@pytest.mark.parametrize(
    "config",
    [
        TINY,
        attrs.evolve(TINY, tied_head=True),
        attrs.evolve(TINY, **VARIANTS, remat="full"),
        attrs.evolve(TINY, layers=7, window=3, local_to_global=(2, 1)),
        ROUTED,
        attrs.evolve(ROUTED, **VARIANTS, remat="save_moe"),
        attrs.evolve(ROUTED, layers=9, dense_layers=2, window=2, mixture=attrs.evolve(ROUTED.mixture, top_k=1)),
        attrs.evolve(ROUTED, dense_layers=0, mixture=attrs.evolve(ROUTED.mixture, scoring="softmax", shared_inner=0)),
        attrs.evolve(ROUTED, mixture=attrs.evolve(ROUTED.mixture, latent=5)),
        attrs.evolve(ROUTED, layers=7, remat="save_moe", mixture=attrs.evolve(ROUTED.mixture, latent=8, top_k=3)),
    ],
)
def test_the_operations_of_a_forward_pass_are_the_products_of_the_program(config):
    config, length = attrs.evolve(config, attention="reference"), 8
    if config.mixture is not None:
        config = attrs.evolve(config, mixture=attrs.evolve(config.mixture, grouped_matmul="ragged_dot"))
    tokens = jnp.zeros((3, length), jnp.int32)
    program = jax.make_jaxpr(lambda model: model(tokens))(abstract_model(config))
    # The program computes all length x length scores; the count takes those that a causal model needs.
    needed = sum(mean_visible(length, window) for window in config.windows)
    unneeded = 2 * 2 * config.heads * config.head_size * (config.layers * length - needed)
    counted = 3 * length * (forward_flops_per_token(config, length) + unneeded)
    assert product_flops(program.jaxpr) == pytest.approx(counted, rel=1e-12)


@pytest.mark.parametrize("window", [1, 3, 8, 20, None])
def test_a_token_sees_itself_and_what_its_window_holds(window):
    seen = [min(position, window or position) for position in range(1, 9)]
    assert mean_visible(8, window) == np.mean(seen)


def test_training_costs_three_forward_passes():
    assert flops_per_token(TINY, 32) == 3 * forward_flops_per_token(TINY, 32)


def test_counts_of_a_known_shape():
    config = TransformerConfig(2048, width=64, layers=2, heads=2, key_value_heads=1, feed_forward=176)
    matrices = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 176)
    assert parameter_count(config) == matrices + 2 * (2 * 64 + 2 * 32) + 64 + 2 * 2048 * 64
    assert flops_per_token(config, 127) == 6 * (matrices + 2048 * 64 + 2 * 2 * 64 * 64)
