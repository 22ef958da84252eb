"""Every transport against the oracle, on simulated devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import products
from routed_cases import BFLOAT16, FLOAT32, TRANSPORTS, check, layer, mesh_of, run, special_cases
from simulated_devices import on_devices

from marin_kernels.expert_parallel import moe


@on_devices(8)
def over_two_by_four(implementation, factor):
    drops = 0
    for case in special_cases().values():
        _, counts, _ = check(case, implementation, groups=2, shards=4, lanes=2, factor=factor)
        drops += int(counts.dropped_by_sender + counts.dropped_by_receiver)
    assert (drops > 0) == (factor is not None)


@pytest.mark.parametrize("implementation", TRANSPORTS)
def test_with_capacity_what_is_kept_is_computed_and_what_is_dropped_counts_nowhere(implementation):
    over_two_by_four(implementation, 1.0)


@pytest.mark.parametrize(
    "implementation", ["ring", "ragged", *(pytest.param(name, marks=pytest.mark.long) for name in TRANSPORTS[1:])]
)
def test_without_capacity_nothing_is_dropped(implementation):
    over_two_by_four(implementation, None)


@pytest.mark.parametrize("implementation", [*TRANSPORTS, "local", "reference"])
def test_products_of_float32_are_such_on_every_device(implementation):
    x, routing, experts = jax.tree.map(jnp.asarray, layer())

    def loss(x, experts):
        return jnp.sum(moe(x, routing, experts, implementation=implementation)[0])

    assert products(jax.grad(loss, (0, 1)), x, experts) == {("HIGHEST", "float32")}


@on_devices(8)
def over_shards(implementation, shards, factor, dtype):
    tolerances = FLOAT32 if dtype == "float32" else BFLOAT16
    case = layer(tokens=8 * 9, padded=5, dtype=jnp.dtype(dtype))
    options = {"shards": shards, "lanes": min(2, shards), "factor": factor, "tolerances": tolerances}
    check(case, implementation, groups=8 // shards, **options)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("factor", [None, 0.8])
@pytest.mark.parametrize("shards", [1, 2, 4, 8])
@pytest.mark.parametrize("implementation", TRANSPORTS)
def test_any_number_of_shards_in_both_dtypes(implementation, shards, factor, dtype):
    over_shards(implementation, shards, factor, dtype)


@on_devices(8)
def with_top_k(implementation, top_k, factor):
    check(layer(top_k=top_k, skew=1.0, padded=3), implementation, shards=4, lanes=2, factor=factor)


@pytest.mark.long
@pytest.mark.parametrize("factor", [None, 0.01, 1.0])
@pytest.mark.parametrize("top_k", [1, 7])
@pytest.mark.parametrize("implementation", TRANSPORTS)
def test_one_expert_a_token_and_all_experts_but_one(implementation, top_k, factor):
    with_top_k(implementation, top_k, factor)


@on_devices(8)
def with_model_axis(implementation):
    case = layer(padded=3)
    mesh = mesh_of(replica=2, expert=2, model=2)
    check(case, implementation, groups=2, shards=2, factor=1.0, mesh=mesh)


@pytest.mark.long
@pytest.mark.parametrize("implementation", TRANSPORTS)
def test_the_inner_width_of_experts_is_split_over_the_model_axis(implementation):
    with_model_axis(implementation)


@on_devices(8)
def permuted(implementation):
    x, routing, experts = case = layer(padded=5)
    order = np.random.default_rng(1).permutation(len(x))
    moved = (x[order], type(routing)(*(values[order] for values in routing)), experts)
    options = {"mesh": mesh_of(data=2, expert=4), "implementation": implementation}
    first, again, other = run(case, **options), run(case, **options), run(moved, **options)
    np.testing.assert_array_equal(first[0], again[0])  # nothing depends on the order in which threads come
    np.testing.assert_allclose(other[0], first[0][order], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(other[1].load, first[1].load)


@pytest.mark.long
@pytest.mark.parametrize("implementation", TRANSPORTS)
def test_without_drops_the_order_of_tokens_over_the_shards_does_not_matter(implementation):
    permuted(implementation)
