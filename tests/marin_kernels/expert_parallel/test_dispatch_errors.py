"""What cannot run says why and what can, before anything is compiled; what can runs without a mesh too."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from routed_cases import check, layer, mesh_of
from simulated_devices import on_devices

from marin_kernels.expert_parallel import moe
from marin_kernels.expert_parallel.dispatch import TRANSPORTS


def traced(case, **options):
    """Trace `moe`; nothing is compiled."""
    return jax.eval_shape(lambda case: moe(*case, **options), jax.tree.map(jnp.asarray, case))


def test_an_unknown_implementation_names_those_there_are():
    with pytest.raises(ValueError, match="unknown implementation 'magic'; choose one of 'reference', 'local', 'ring'"):
        inspect.unwrap(moe)(*layer(), implementation="magic")


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_capacity_that_leaves_no_room_is_refused(factor):
    with pytest.raises(ValueError, match=f"capacity_factor={factor} leaves no room, or is none; give a finite number"):
        traced(layer(), capacity_factor=factor)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x, r, e: (x[1:], r, e),
            r"for x of shape \(63, 4\), routing.experts has shape \(64, 2\), not \(63, 2\)",
        ),
        (
            lambda x, r, e: (x, r._replace(weights=r.weights[:, :1]), e),
            r"routing.weights has shape \(64, 1\), not \(64, 2\)",
        ),
        (lambda x, r, e: (x, r._replace(valid=np.ones(3, bool)), e), r"routing.valid has shape \(3,\), not \(64,\)"),
        (lambda x, r, e: (x, r._replace(experts=r.experts * 1.0), e), r"routing.experts holds float\d+, not integers"),
        (lambda x, r, e: (x, r, e._replace(up=e.up[1:])), r"experts.up has shape \(7, 4, 8\), not \(8, 4, 8\)"),
        (lambda x, r, e: (x[:, 1:], r, e), r"experts.gate has shape \(8, 4, 8\), not \(8, 3, 8\); experts.up has"),
    ],
)
def test_shapes_that_broadcasting_would_take_are_refused(change, message):
    x, routing, experts = jax.tree.map(jnp.asarray, layer(dtype=np.float32))
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(moe)(*change(x, routing, experts))


@pytest.mark.parametrize("implementation", sorted(set(TRANSPORTS) - {"fused_tpu", "grouped_gpu"}))
def test_without_a_mesh_every_transport_traces_on_one_shard(implementation):
    y, counts = traced(layer(dtype=np.float32), implementation=implementation, capacity_factor=1.0)
    assert (y.shape, y.dtype, counts.load.shape) == ((64, 4), jnp.float32, (8,))


@on_devices(8)
def refused():
    case = layer(tokens=60)
    with jax.set_mesh(mesh_of(expert=4)):
        with pytest.raises(ValueError, match=r"'local' needs all experts .*\(replica=1, data=1, expert=4, model=1\)"):
            traced(case, implementation="local")
        with pytest.raises(ValueError, match="choose one of 'reference', 'ring', 'ring_dedup'"):
            traced(case, implementation="local")
        with pytest.raises(ValueError, match=r"6 experts cannot be split evenly over 4 shards .*a multiple of 4"):
            traced(layer(tokens=60, experts=6), implementation="ring")
        with pytest.raises(ValueError, match=r"shards_per_host=3 does not divide the expert axis of size 4; give a"):
            traced(case, implementation="hierarchical", shards_per_host=3)
        with pytest.raises(ValueError, match=r"shards_per_host=0 does not divide the expert axis of size 4; give a"):
            traced(case, implementation="hierarchical", shards_per_host=0)
        with pytest.raises(ValueError, match=r"asked for the mesh .*but .* is in force here; enter `with jax.set_mesh"):
            traced(case, implementation="ring", mesh=mesh_of(expert=2))
    with (
        jax.set_mesh(mesh_of(expert=8)),
        pytest.raises(
            ValueError,
            match=r"60 tokens cannot be split evenly over 8 shards .*pad them with tokens that `routing.valid`",
        ),
    ):
        traced(case, implementation="ring")
    with (
        jax.set_mesh(mesh_of(model=8)),
        pytest.raises(
            ValueError,
            match="an expert's inner width of 12 cannot be split evenly over the model axis of size 8; make it",
        ),
    ):
        traced(layer(inner=12))
    with pytest.raises(ValueError, match="but none is in force here"):
        traced(case, implementation="ring", mesh=mesh_of(expert=2))


def test_what_a_mesh_does_not_allow_is_refused_with_the_reason():
    refused()


@pytest.mark.parametrize(("implementation", "receivers"), [("ring", 1), ("fixed", 8)])
def test_the_smallest_capacity_leaves_room_for_one_assignment(implementation, receivers):
    _, counts = moe(*jax.tree.map(jnp.asarray, layer()), implementation=implementation, capacity_factor=1e-9)
    dropped = counts.dropped_by_sender + counts.dropped_by_receiver
    assert counts.load.sum() - dropped == receivers


@on_devices(8)
def eager():
    case = jax.tree.map(jnp.asarray, layer(tokens=16, padded=0))
    mesh = mesh_of(expert=2)
    y, counts = moe(*case, implementation="ring", mesh=mesh)
    alone, _ = moe(*case, implementation="reference")
    np.testing.assert_allclose(np.asarray(y), np.asarray(alone), rtol=0, atol=1e-5)
    assert int(counts.load.sum()) == 32


@pytest.mark.long
def test_a_mesh_can_be_named_where_none_is_in_force():
    eager()


def test_kernels_for_gpus_are_refused_elsewhere():
    with pytest.raises(ValueError, match="'grouped_gpu' runs on GPUs, and these devices are cpu; choose 'local' for"):
        traced(layer(), implementation="grouped_gpu")


@on_devices(8)
def on_a_gpu():
    """As if the devices were GPUs, with a grouped matmul that runs anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("marin_kernels.expert_parallel.grouped_gpu.platform", lambda array: "gpu")
        check(layer(padded=3), "grouped_gpu", shards=4)
        case = jax.tree.map(jnp.asarray, layer())
        assert "ragged_all_to_all" not in str(jax.make_jaxpr(_grouped)(*case))
        with jax.set_mesh(mesh_of(expert=4)):
            assert "ragged_all_to_all" in str(jax.make_jaxpr(_grouped)(*case))


def test_kernels_for_gpus_are_used_unless_another_product_is_named(monkeypatch):
    monkeypatch.setattr("marin_kernels.expert_parallel.grouped_gpu.platform", lambda array: "gpu")
    with pytest.raises(ValueError, match="'pallas_triton' cannot run here"):
        traced(layer(), implementation="grouped_gpu")


@on_devices(8)
def hosts_of_four():
    """As if four of the eight devices were another process's, of which two share the inner width of each expert."""
    with pytest.MonkeyPatch.context() as patch, jax.set_mesh(mesh_of(expert=4, model=2)):
        patch.setattr("jax.local_device_count", lambda: 4)
        usual, *named = (
            str(jax.make_jaxpr(functools.partial(moe, implementation="hierarchical", shards_per_host=lanes))(*case))
            for case in [jax.tree.map(jnp.asarray, layer())]
            for lanes in (None, 2, 4)
        )
        assert usual == named[0] != named[1]


def test_the_devices_of_a_host_are_counted_over_the_model_axis():
    hosts_of_four()


def _grouped(*case):
    return moe(*case, implementation="grouped_gpu", grouped_matmul="reference")


def test_kernels_for_gpus_are_used_where_rows_are_sorted_by_expert():
    on_a_gpu()
