"""All experts on the shard of their tokens: against the oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from routed_cases import BFLOAT16, check, layer, run, special_cases
from simulated_devices import on_devices

from marin_kernels.expert_parallel import Experts
from marin_kernels.expert_parallel.blocked_feed_forward import blocked_feed_forward


@on_devices(8)
def over_data(implementation, **options):
    check(layer(padded=7, tokens=8 * 9), implementation, groups=8, **options)


def test_local_experts_compute_what_the_oracle_computes():
    for case in special_cases().values():
        check(case, "local", grouped_matmul="default")


def test_the_reference_transport_is_the_oracle():
    check(layer(padded=7), "reference")


def test_local_experts_are_copied_to_every_shard_of_the_data_axis():
    over_data("local", grouped_matmul="default")


@pytest.mark.long
@pytest.mark.parametrize("top_k", [1, 7])
def test_local_experts_with_one_expert_a_token_or_all_but_one(top_k):
    check(layer(top_k=top_k, tokens=37), "local", grouped_matmul="default")


@pytest.mark.long
def test_local_experts_in_bfloat16():
    check(layer(padded=3, dtype=jnp.bfloat16), "local", tolerances=BFLOAT16, grouped_matmul="default")


@on_devices(8)
def reference_over(shards):
    check(layer(padded=3), "reference", groups=8 // shards, shards=shards, factor=1.0)


@pytest.mark.long
@pytest.mark.parametrize("shards", [2, 8])
def test_the_reference_transport_is_the_oracle_with_drops(shards):
    reference_over(shards)


@pytest.mark.long
def test_local_experts_with_a_grouped_matmul_by_name():
    check(layer(padded=3), "local", grouped_matmul="ragged_dot")


def test_local_experts_have_room_for_all_whatever_capacity_is_given():
    case = layer()
    found, wanted = (run(case, implementation="local", **room) for room in ({"capacity_factor": 0.01}, {}))
    jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_the_gradients_of_an_expert_are_summed_in_float32():
    """In bf16, a sum over many blocks of rows would hardly grow any more long before the last."""
    random, rows, count = np.random.default_rng(0), 4096, 64
    x = jnp.asarray(random.uniform(0.5, 1, (rows, 4)), jnp.bfloat16)
    shapes = (count, 4, 8), (count, 4, 8), (count, 8, 4)
    experts = Experts(*(jnp.full(shape, 0.5, jnp.bfloat16) for shape in shapes))
    sizes = jnp.zeros(count, jnp.int32).at[0].set(rows)  # of a share of a 64th, blocks have the height

    def total(experts, x):
        return jnp.sum(blocked_feed_forward(x, sizes, experts).astype(jnp.float32))

    wanted = jax.grad(total)(*jax.tree.map(lambda array: array.astype(jnp.float32), (experts, x)))
    for found, exact in zip(jax.jit(jax.grad(total))(experts, x), wanted, strict=True):
        np.testing.assert_allclose(found.astype(jnp.float32), exact, rtol=6e-3)


def test_no_rows_make_no_rows():
    x, _, experts = jax.tree.map(jnp.asarray, layer())
    assert blocked_feed_forward(x[:0], jnp.zeros(8, jnp.int32), experts).shape == (0, 4)
