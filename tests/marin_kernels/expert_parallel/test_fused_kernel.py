"""`fused_tpu` in the interpreter: against the oracle, in both ways that copies may take their time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interpreted import complaints, interpreted, uneven
from routed_cases import assert_agrees, assert_close, layer, mesh_of, run
from simulated_devices import on_devices

from marin_kernels.expert_parallel import moe
from marin_kernels.expert_parallel.fused.tiles import choose_tiles

MODES = ("on_wait", "eager")


def compared(case, mesh, mode, tolerances=(1e-5, 2e-5), **options):
    """Run a case on the kernel and on the oracle; they agree, and nothing raced."""
    with interpreted(mode) as told:
        result = run(case, mesh, implementation="fused_tpu", **options)
    assert complaints(told) == []
    oracle = run(case, mesh, implementation="reference", **options)
    assert_agrees(result, oracle, case[1], forward=tolerances[0], backward=tolerances[1])
    for count, expected in zip(result[1], oracle[1], strict=True):
        np.testing.assert_array_equal(count, expected)
    return result


@on_devices(4, NPROC="32")
def test_outputs_and_gradients_of_uneven_chunks_are_the_oracles():
    compared(uneven(), mesh_of(expert=4), "eager")


@on_devices(4, NPROC="32")
def test_results_do_not_depend_on_when_copies_are_made():
    """Copies made as late as can be: whatever is read before it was waited for is NaN."""
    compared(uneven(shards=2, padded=3), mesh_of(expert=2), "on_wait")


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("factor", [None, 1.0])
@pytest.mark.parametrize(("dtype", "tolerances"), [("float32", (1e-5, 2e-5)), ("bfloat16", (2e-2, 2e-2))])
@on_devices(4, NPROC="32")
def test_dropless_and_with_drops_in_both_precisions(mode, factor, dtype, tolerances):
    result = compared(uneven(dtype=jnp.dtype(dtype)), mesh_of(expert=4), mode, tolerances, capacity_factor=factor)
    assert (result[1].dropped_by_receiver > 0) == (factor is not None)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axes", [{"data": 2, "expert": 2}, {"expert": 2, "model": 2}, {"expert": 1}])
@on_devices(4, NPROC="32")
def test_on_meshes_of_several_axes_and_of_one_shard(mode, axes):
    compared(layer(32, 128, 256, 4, padded=3), mesh_of(**axes), mode)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@on_devices(4, NPROC="32")
def test_without_a_mesh_on_one_device(mode):
    compared(layer(16, 128, 128, 4, top_k=3), None, mode)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@on_devices(4, NPROC="32")
def test_all_tokens_to_one_expert_whose_matrices_are_fetched_once(mode):
    x, routing, experts = layer(32, 128, 128, 8, top_k=1)
    compared((x, routing._replace(experts=jnp.full((32, 1), 5)), experts), mesh_of(expert=4), mode)


@pytest.mark.long
@on_devices(4, NPROC="32")
def test_nothing_routed_is_nothing_computed():
    x, routing, experts = layer(16, 128, 128, 4)
    result = compared((x, routing._replace(valid=jnp.zeros(16, bool)), experts), mesh_of(expert=2), "on_wait")
    assert_close(result[0], np.zeros((16, 128)), 0)


def test_away_from_tpus_it_says_where_it_runs():
    case = jax.tree.map(jnp.asarray, layer(16, 128, 128, 4))
    with pytest.raises(ValueError, match=r"'fused_tpu' runs on TPUs, and these devices are cpu; choose 'ragged'"):
        moe(*case, implementation="fused_tpu")


@pytest.mark.parametrize(("dtype", "chunk"), [("bfloat16", 16), ("float32", 8)])
def test_tiles_of_real_sizes_fit_the_smallest_fast_memory(dtype, chunk):
    tiles = choose_tiles(2048, 1024, jnp.dtype(dtype))
    assert tiles.memory < 16 << 20
    assert tiles.grain.chunk == chunk
    assert tiles.grain.tile >= 64
    assert 1024 % tiles.inner == 0


def test_widths_that_do_not_fill_registers_are_refused():
    with pytest.raises(ValueError, match=r"multiples of 128, but the model's is 100 and an expert's, .* 256; choose"):
        choose_tiles(100, 256, jnp.dtype("float32"))


def test_a_width_that_no_tile_fits_is_refused():
    with pytest.raises(ValueError, match="a width of 65536 in float32 leaves no room for a tile in 16 MiB"):
        choose_tiles(65536, 128, jnp.dtype("float32"))
