"""The Pallas kernels in interpret mode, their schedules and layouts, and what they say where they cannot run."""

import contextlib
import inspect
import io
import re
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compilers import GPUS, TPUS, on_compilers
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from simulated_devices import on_devices

from marin_kernels import implementations
from marin_kernels.grouped_matmul import grouped_matmul, mosaic_gpu, pallas_tpu, pallas_triton, tokamax
from marin_kernels.grouped_matmul.aligned import align, taken
from marin_kernels.grouped_matmul.operations import Operations
from marin_kernels.grouped_matmul.reference import OPERATIONS as REFERENCE
from marin_kernels.grouped_matmul.visits import visits
from marin_kernels.implementations import FallbackWarning
from marin_kernels.topologies import absent_devices

SIZES = [(17, 1, 30, 22), (9, 0, 33, 8), (0, 0, 70, 0), (0, 0, 0, 0), (64, 1, 1, 1), (0, 16, 16, 0)]
ROWS = 70


def arrays(dtype, inner, outer, rows=ROWS):
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = ((rows, inner), (4, inner, outer), (rows, outer))
    return [jax.random.normal(key, shape).astype(dtype) for key, shape in zip(keys, shapes, strict=True)]


def products(operations: Operations, rows, matrices, results, sizes):
    return (
        operations.product(rows, matrices, sizes),
        operations.transposed_product(results, matrices, sizes),
        operations.outer_product(rows, results, sizes),
    )


def assert_equal_to_reference(run, dtype, inner, outer):
    """For all sizes, with NaN in rows of no group."""
    rows, matrices, results = arrays(dtype, inner, outer)
    reference = jax.jit(lambda *inputs: products(REFERENCE, *inputs))
    for sizes in SIZES:
        used = sum(sizes)
        found = run(rows.at[used:].set(jnp.nan), matrices, results.at[used:].set(jnp.nan), jnp.array(sizes))
        for x, wanted in zip(found, reference(rows, matrices, results, jnp.array(sizes)), strict=True):
            assert x.dtype == dtype
            x, wanted = np.asarray(x, np.float64), np.asarray(wanted, np.float64)
            tolerance = 1e-5 if dtype == jnp.float32 else 1e-2
            np.testing.assert_allclose(x, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())
        for x in found[:2]:
            np.testing.assert_array_equal(x[used:], 0)
        for group in np.flatnonzero(np.array(sizes) == 0):
            np.testing.assert_array_equal(found[2][group], 0)


@pytest.mark.parametrize("mode", ["on_wait", pytest.param("eager", marks=pytest.mark.long)])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
@on_devices(8, NPROC="32")
def test_tpu_kernels_equal_the_reference_in_memory_full_of_nan_without_races(mode, dtype):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pallas_tpu, "HEIGHT", 16)
        patch.setattr(pallas_tpu, "WIDTH_BYTES", 512)
        interpret = pltpu.InterpretParams(
            uninitialized_memory="nan", detect_races=True, dma_execution_mode=mode, out_of_bounds_reads="uninitialized"
        )
        operations = pallas_tpu.operations(interpret)
        run = jax.jit(lambda *inputs: products(operations, *inputs))
        with contextlib.redirect_stdout(io.StringIO()) as told:  # the interpreter prints what it finds
            assert_equal_to_reference(run, jnp.dtype(dtype), 256, 128)
        assert "RACE" not in told.getvalue()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_triton_kernels_equal_the_reference(dtype):
    operations = pallas_triton.operations(interpret=True)
    run = jax.jit(lambda *inputs: products(operations, *inputs))
    assert_equal_to_reference(run, jnp.dtype(dtype), 64, 96)


def test_triton_kernels_take_fewer_rows_than_a_block():
    rows, matrices, results = arrays(jnp.float32, 32, 32, rows=3)
    sizes = jnp.array([1, 0, 1, 0])
    found = products(pallas_triton.operations(interpret=True), rows, matrices, results, sizes)
    for x, wanted in zip(found, products(REFERENCE, rows, matrices, results, sizes), strict=True):
        np.testing.assert_allclose(x, wanted, atol=1e-5)


LENGTH = 220
compiled_visits = jax.jit(visits, static_argnums=(0, 1))


def assert_met(length, height, sizes):
    rest = len(sizes)
    met = jax.tree.map(np.asarray, compiled_visits(length, height, jnp.array(sizes)))
    groups, tiles = met.group[: met.all], met.tile[: met.all]
    assert (np.diff(groups) >= 0).all()
    assert (np.diff(tiles) >= 0).all()  # a tile's meetings are consecutive: it stays in fast memory between them
    assert set(tiles) == set(range(-(-length // height)))
    assert set(groups) == set(range(rest + 1))
    assert (groups[: met.groups] < rest).all()
    assert (groups[met.groups :] == rest).all()
    owners = np.full(length, -1)
    for tile, group, first, end in zip(*met[:4], strict=True):
        assert first == end or tile * height <= first < end <= (tile + 1) * height
        assert (owners[first:end] == -1).all()
        owners[first:end] = group
    np.testing.assert_array_equal(owners, np.repeat(np.arange(rest + 1), [*sizes, length - sum(sizes)]))


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), min_size=5, max_size=5), height=st.sampled_from([16, 64]))
def test_visits_meet_each_row_once_each_tile_and_each_group(sizes, height):
    assert_met(LENGTH, height, sizes)


@partial(jax.jit, static_argnums=0)
def there_and_back(rows, sizes):
    alignment = align(rows, 8, sizes)
    spread = taken(jnp.arange(1.0, rows + 1)[:, None], alignment.source)
    return alignment, spread[:, 0], taken(spread, alignment.place)[:, 0]


def assert_aligned(rows, sizes):
    used = sum(sizes)
    alignment, spread, back = jax.tree.map(np.asarray, there_and_back(rows, jnp.array(sizes)))
    np.testing.assert_array_equal(back, np.where(np.arange(rows) < used, np.arange(1, rows + 1), 0))
    assert np.count_nonzero(spread) == used
    owners = np.repeat(np.arange(len(sizes)), sizes)
    for held, group in zip(spread.reshape(-1, 8).astype(int), alignment.group, strict=True):
        assert (owners[held[held > 0] - 1] == group).all()
    np.testing.assert_array_equal(alignment.tiles, -(-np.array(sizes) // 8))
    np.testing.assert_array_equal(alignment.first, np.cumsum(alignment.tiles) - alignment.tiles)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), min_size=5, max_size=5))
def test_aligned_rows_are_all_there_in_tiles_of_one_group(sizes):
    assert_aligned(LENGTH, sizes)


def test_groups_of_a_row_more_than_whole_tiles_have_as_many_as_there_can_be():
    assert_aligned(23, [1, 17, 1])
    assert_aligned(23, [9, 1, 9])


def test_groups_that_each_begin_within_a_tile_meet_as_many_as_there_can_be():
    assert_met(LENGTH, 16, [3, 31, 33, 1, 15])
    assert_met(10, 16, [2, 2, 2, 2, 2])
    assert_met(32, 16, [1, 16, 15])


def test_sums_of_aligned_tiles_are_the_products():
    """What the kernels of sm90 compute, by plain XLA: one product a tile, and a sum over each group's tiles."""
    rows, matrices, results = arrays(jnp.float32, 6, 5)
    for sizes in map(jnp.array, SIZES[:2]):
        alignment = align(ROWS, 8, sizes)
        tiles, cotangents = (taken(x, alignment.source).reshape(-1, 8, x.shape[1]) for x in (rows, results))
        product = jnp.einsum("tri,tio->tro", tiles, matrices[alignment.group]).reshape(-1, 5)
        outer = jnp.einsum("tri,tro->tio", tiles, cotangents)
        sums = jax.ops.segment_sum(outer, alignment.group, 4)
        wanted = products(REFERENCE, rows, matrices, results, sizes)
        np.testing.assert_allclose(taken(product, alignment.place), wanted[0], atol=1e-5)
        np.testing.assert_allclose(sums, wanted[2], atol=1e-5)


@pytest.mark.parametrize(
    ("implementation", "reason"),
    [
        ("pallas_tpu", "it is written for TPUs, and this program is for a cpu"),
        ("pallas_triton", "it is written for GPUs, and this program is for a cpu"),
        ("mosaic_gpu", "it is written for GPUs of sm90, and this program is for a cpu"),
    ],
)
def test_a_kernel_for_another_device_refuses_to_run(implementation, reason):
    rows, matrices, _ = arrays(jnp.float32, 128, 128)
    message = (
        f"grouped_matmul: implementation '{implementation}' cannot run here: {reason}; choose another, or 'default'"
    )
    with pytest.raises(ValueError, match=message):
        grouped_matmul(rows, matrices, jnp.zeros(4, int), implementation=implementation)


def test_tokamax_refuses_to_run_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(tokamax, "find_spec", lambda name: None)
    rows, matrices, _ = arrays(jnp.float32, 8, 8)
    with pytest.raises(ValueError, match="'tokamax' cannot run here: tokamax is not installed: pip install tokamax"):
        grouped_matmul(rows, matrices, jnp.zeros(4, int), implementation="tokamax")


class Tokamax:
    """Stands for the library: XLA's own ragged product, and rows of no group left as they come."""

    @staticmethod
    def ragged_dot(rows, matrices, sizes, *, precision, preferred_element_type):
        product = jax.lax.ragged_dot(rows, matrices, sizes, precision, preferred_element_type)
        return jnp.where((jnp.arange(len(rows)) < jnp.sum(sizes))[:, None], product, jnp.nan)


def test_tokamax_is_called_with_its_own_names_and_its_unused_rows_are_zeroed(monkeypatch):
    monkeypatch.setattr(tokamax, "import_module", lambda name: Tokamax)
    run = jax.jit(lambda *inputs: products(tokamax.OPERATIONS, *inputs))
    assert_equal_to_reference(run, jnp.float32, 6, 5)


def on(monkeypatch, platform, kind=""):
    """Let programs traced here seem to be for another device."""
    device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=None, platform=platform)
    for module in (implementations, mosaic_gpu):
        monkeypatch.setattr(module, "target_device", lambda array: device)


@pytest.mark.parametrize(
    ("platform", "usual", "reason"),
    [
        ("tpu", "pallas_tpu", "widths must be multiples of 128, and one is 96"),
        ("cuda", "pallas_triton", "widths must be multiples of 32, and one is 33"),
    ],
)
def test_widths_that_do_not_fit_the_usual_kernel_fall_back_and_say_why(monkeypatch, platform, usual, reason):
    on(monkeypatch, platform)
    rows, matrices, _ = arrays(jnp.float32, 96, 33 if platform == "cuda" else 128)
    with pytest.warns(FallbackWarning, match=f"'ragged_dot' runs instead of '{usual}', .* cannot run: {reason}"):
        found = grouped_matmul(rows, matrices, jnp.array(SIZES[0]))
    np.testing.assert_allclose(found, REFERENCE.product(rows, matrices, jnp.array(SIZES[0])), atol=1e-4)


@pytest.mark.parametrize(
    ("implementation", "kind", "dtype", "widths", "reason"),
    [
        ("pallas_tpu", "TPU v5", jnp.float16, (128, 128), "float32 and bfloat16, and the rows are float16"),
        ("pallas_triton", "NVIDIA A100", jnp.int8, (64, 64), "bfloat16 and float16, and the rows are int8"),
        ("mosaic_gpu", "NVIDIA A100", jnp.bfloat16, (128, 128), "sm90 .*, and this program is for NVIDIA A100"),
        ("mosaic_gpu", "NVIDIA H200", jnp.float32, (128, 128), "16-bit numbers, and the rows are float32"),
        ("mosaic_gpu", "NVIDIA H200", jnp.bfloat16, (128, 96), "widths must be multiples of 128, and one is 96"),
    ],
)
def test_what_a_kernel_cannot_take_is_said(monkeypatch, implementation, kind, dtype, widths, reason):
    on(monkeypatch, "tpu" if implementation == "pallas_tpu" else "cuda", kind)
    module = {"pallas_tpu": pallas_tpu, "pallas_triton": pallas_triton, "mosaic_gpu": mosaic_gpu}[implementation]
    found = inspect.unwrap(module.obstacle)(jnp.zeros((8, widths[0]), dtype), jnp.zeros((2, *widths), dtype))
    assert re.search(reason, found)


@cache
def sharding(topology):
    mesh = jax.make_mesh((1,), ("data",), (AxisType.Explicit,), devices=absent_devices(topology)[:1])
    return mesh, jax.NamedSharding(mesh, P())


def compile_everything(topology, implementation, dtype):
    """Forward and reverse at real sizes: T = 8,192, K = 4, H = 2,048, E = 64."""
    mesh, here = sharding(topology)
    rows, matrices, sizes = (
        jax.ShapeDtypeStruct(shape, kind, sharding=here)
        for shape, kind in (((32_768, 2048), dtype), ((64, 2048, 1024), dtype), ((64,), jnp.int32))
    )

    def run(rows, matrices, sizes):
        result, pull = jax.vjp(lambda *x: grouped_matmul(*x, sizes, implementation=implementation), rows, matrices)
        return result, *pull(result)

    with jax.set_mesh(mesh):
        return jax.jit(run).lower(rows, matrices, sizes).compile()


@pytest.mark.parametrize("topology", TPUS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@on_compilers
def test_tpu_kernels_compile_at_real_sizes(topology, dtype):
    text = compile_everything(topology, "default", jnp.dtype(dtype)).as_text()
    assert text.count('custom_call_target="tpu_custom_call"') == 3


@pytest.mark.parametrize("topology", GPUS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@on_compilers
def test_triton_kernels_compile_at_real_sizes(topology, dtype):
    assert compile_everything(topology, "default", jnp.dtype(dtype)).as_text().count("triton") >= 3


@pytest.mark.parametrize("topology", GPUS)
@on_compilers
def test_mosaic_kernels_compile_at_real_sizes(topology):
    assert compile_everything(topology, "mosaic_gpu", jnp.dtype("bfloat16")).as_text().count("mosaic_gpu") >= 3
