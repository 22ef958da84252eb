"""All experts on the shard of their tokens: against the oracle."""

import jax
import jax.numpy as jnp
import pytest
from routed_cases import BFLOAT16, check, layer, special_cases
from simulated_devices import on_devices

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


def test_no_rows_make_no_rows():
    x, _, experts = jax.tree.map(jnp.asarray, layer())
    assert blocked_feed_forward(x[:0], jnp.zeros(8, jnp.int32), experts).shape == (0, 4)
