import inspect
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equations import products
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from simulated_devices import on_devices

from marin_kernels.grouped_matmul import blocked, grouped_matmul

EVERYWHERE = ("reference", "blocked", "ragged_dot")
ROWS, INNER, OUTER, GROUPS = 70, 6, 5, 4


def arrays(seed, dtype=jnp.float32, rows=ROWS):
    keys = jax.random.split(jax.random.key(seed), 3)
    shapes = ((rows, INNER), (GROUPS, INNER, OUTER), (rows, OUTER))
    return [jax.random.normal(key, shape).astype(dtype) for key, shape in zip(keys, shapes, strict=True)]


@cache
def compiled(implementation):
    """Result, gradient of rows, gradient of matrices."""

    @jax.jit
    def run(rows, matrices, cotangent, sizes):
        call = partial(grouped_matmul, sizes=sizes, implementation=implementation)
        result, pull = jax.vjp(call, rows, matrices)
        return result, *pull(cotangent)

    return run


def by_definition(rows, matrices, cotangent, sizes):
    """The same three, one group after another, in double precision."""
    rows, matrices, cotangent = (np.asarray(x, np.float64) for x in (rows, matrices, cotangent))
    result, d_rows, d_matrices = np.zeros_like(cotangent), np.zeros_like(rows), np.zeros_like(matrices)
    first = 0
    for group, size in enumerate(np.asarray(sizes)):
        own = slice(first, first := first + size)
        result[own] = rows[own] @ matrices[group]
        d_rows[own] = cotangent[own] @ matrices[group].T
        d_matrices[group] = rows[own].T @ cotangent[own]
    return result, d_rows, d_matrices


def assert_near(found, expected, sizes, tolerance):
    """Errors over each group's peak: no group hides behind a larger one. What should be zero is."""
    ends = np.cumsum(sizes)
    for x, wanted in zip(found[:2], expected[:2], strict=True):
        for own in map(slice, ends - np.asarray(sizes), ends):
            peak = np.abs(wanted[own]).max(initial=0)
            np.testing.assert_allclose(np.asarray(x[own], np.float64), wanted[own], rtol=0, atol=tolerance * peak)
        np.testing.assert_array_equal(x[ends[-1] :], np.zeros_like(x[ends[-1] :]))
    for x, wanted in zip(found[2], expected[2], strict=True):
        atol = tolerance * np.abs(wanted).max()
        np.testing.assert_allclose(np.asarray(x, np.float64), wanted, rtol=0, atol=atol)


SIZES = [
    pytest.param((17, 1, 30, 22), id="full"),
    pytest.param((9, 0, 33, 8), id="an empty group and a tail"),
    pytest.param((0, 0, 70, 0), id="all rows in one group"),
    pytest.param((0, 0, 0, 0), id="no row in any group"),
    pytest.param((64, 1, 1, 1), id="groups of one row"),
]


@pytest.mark.parametrize("implementation", EVERYWHERE)
@pytest.mark.parametrize("sizes", SIZES)
def test_product_and_gradients_equal_their_definition(implementation, sizes):
    inputs = arrays(0)
    found = compiled(implementation)(*inputs, jnp.array(sizes))
    assert_near(found, by_definition(*inputs, sizes), sizes, 1e-6)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, ROWS), min_size=GROUPS, max_size=GROUPS), seed=st.integers(0, 9))
@pytest.mark.parametrize("implementation", ["blocked", "ragged_dot"])
def test_any_sizes_give_the_reference_and_what_exceeds_the_rows_is_cut_off(implementation, sizes, seed):
    inputs = arrays(seed)
    cut = np.diff(np.minimum(np.cumsum(sizes), ROWS), prepend=0)
    found = compiled(implementation)(*inputs, jnp.array(sizes))
    assert_near(found, by_definition(*inputs, cut), cut, 1e-6)


def test_an_implementation_is_told_of_no_more_rows_than_there_are(monkeypatch):
    told = []

    def product(rows, matrices, sizes):
        jax.debug.callback(lambda sizes: told.append(sizes.tolist()), sizes)
        return blocked.product(rows, matrices, sizes)

    monkeypatch.setattr(blocked, "OPERATIONS", blocked.OPERATIONS._replace(product=product))
    rows, matrices, _ = arrays(8)
    for sizes in ((30, 30, 20, 5), (0, 80, 0, 3), (10, 10, 10, 10)):
        jax.block_until_ready(grouped_matmul(rows, matrices, jnp.array(sizes), implementation="blocked"))
    jax.effects_barrier()
    assert told == [[30, 30, 10, 0], [0, 70, 0, 0], [10, 10, 10, 10]]


@pytest.mark.parametrize("implementation", EVERYWHERE)
def test_bfloat16_is_summed_in_float32(implementation):
    inputs, sizes = arrays(1, jnp.bfloat16), (17, 1, 30, 20)
    found = compiled(implementation)(*inputs, jnp.array(sizes))
    assert {x.dtype for x in found} == {jnp.dtype(jnp.bfloat16)}
    assert_near(found, by_definition(*inputs, sizes), sizes, 5e-3)


@pytest.mark.parametrize(("dtype", "precision"), [("bfloat16", "DEFAULT"), ("float32", "HIGHEST")])
@pytest.mark.parametrize("implementation", EVERYWHERE)
def test_sums_are_float32_and_so_are_products_of_float32_on_every_device(implementation, dtype, precision):
    inputs, sizes = arrays(1, jnp.dtype(dtype)), jnp.array((17, 1, 30, 20))
    assert products(compiled(implementation), *inputs, sizes) == {(precision, "float32")}


@pytest.mark.parametrize("implementation", EVERYWHERE)
def test_rows_of_no_group_are_never_looked_at(implementation):
    sizes = (17, 0, 30, 8)
    rows, matrices, cotangent = arrays(2)
    clean = compiled(implementation)(rows, matrices, cotangent, jnp.array(sizes))
    rows, cotangent = rows.at[55:].set(jnp.nan), cotangent.at[55:].set(jnp.nan)
    if implementation == "blocked":  # the others multiply the unused matrix by zeros
        matrices = matrices.at[1].set(jnp.nan)
    dirty = compiled(implementation)(rows, matrices, cotangent, jnp.array(sizes))
    for x, y in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("rows", [1, 7, 8, 9])
def test_fewer_rows_than_a_block_are_a_block(rows):
    inputs, sizes = arrays(3, rows=rows), (0, rows // 2, 0, rows - rows // 2)
    found = compiled("blocked")(*inputs, jnp.array(sizes))
    assert_near(found, by_definition(*inputs, sizes), sizes, 1e-6)


@settings(max_examples=200, deadline=None)
@given(rows=st.integers(1, 10_000), groups=st.integers(1, 300))
def test_heights_rise_and_fit_the_rows(rows, groups):
    found = blocked.heights(rows, groups)
    assert list(found) == sorted(set(found))
    assert 1 <= found[0] <= found[-1] <= rows


def assert_covered_once(rows, sizes):
    heights = blocked.heights(rows, len(sizes))
    blocks = jax.tree.map(np.asarray, jax.jit(blocked.cut, static_argnums=(0, 2))(rows, jnp.array(sizes), heights))
    owners = np.full(rows, -1)
    for kind, height in enumerate(heights):
        for i in range(blocks.bounds[kind], blocks.bounds[kind + 1]):
            assert 0 < blocks.end[i] - blocks.first[i] <= height
            own = slice(blocks.first[i], blocks.end[i])
            assert (owners[own] == -1).all()
            owners[own] = blocks.group[i]
    np.testing.assert_array_equal(owners, [*np.repeat(np.arange(len(sizes)), sizes), *[-1] * (rows - sum(sizes))])


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(0, 300), min_size=7, max_size=7))
def test_blocks_cover_each_row_of_a_group_once(sizes):
    assert_covered_once(2200, sizes)


@pytest.mark.parametrize("whole", [0, 1, 4])
def test_groups_of_a_row_more_than_whole_blocks_have_as_many_as_there_can_be(whole):
    groups = 7
    rows = next(n for n in range(2200, 4000) if n % blocked.heights(n, groups)[-1] >= groups)
    highest = blocked.heights(rows, groups)[-1]
    sizes = [1] * groups
    sizes[whole % groups] += (rows - groups) // highest * highest
    assert sum(-(-size // highest) for size in sizes) == rows // highest + groups
    assert_covered_once(rows, sizes)


def test_blocks_compute_at_most_a_quarter_beyond_groups_of_usual_sizes():
    sizes = np.random.default_rng(0).multinomial(4096, np.random.default_rng(1).dirichlet(np.full(16, 4.0)))
    heights = blocked.heights(4096, 16)
    bounds = np.asarray(blocked.cut(4096, jnp.array(sizes), heights).bounds)
    assert np.diff(bounds) @ heights <= 1.25 * 4096


def test_no_rows_give_no_results():
    _, matrices, _ = arrays(4)
    for implementation in EVERYWHERE:
        result = grouped_matmul(jnp.zeros((0, INNER)), matrices, jnp.zeros(GROUPS, int), implementation=implementation)
        assert result.shape == (0, OUTER)


@on_devices(8)
@pytest.mark.parametrize("implementation", EVERYWHERE)
def test_gradients_of_shared_matrices_are_summed_over_the_devices_that_share_them(implementation):
    mesh = jax.make_mesh((2, 2), ("data", "expert"), (AxisType.Explicit,) * 2, devices=jax.devices()[:4])
    rows, matrices, cotangent = arrays(5, rows=4 * ROWS)
    sizes = jnp.array([[17, 30], [0, 70], [33, 0], [1, 2]])

    @jax.shard_map(
        mesh=mesh, in_specs=(P(("data", "expert")), P("expert"), P(("data", "expert"))), out_specs=P(("data", "expert"))
    )
    def shards(rows, matrices, sizes):
        return grouped_matmul(rows, matrices, sizes[0], implementation=implementation)

    @jax.jit
    def run(rows, matrices, cotangent):
        result, pull = jax.vjp(lambda *x: shards(*x, sizes), rows, matrices)
        return result, *pull(cotangent)

    with jax.set_mesh(mesh):

        def place(x, spec):
            return jax.device_put(x, jax.NamedSharding(mesh, spec))

        sizes = place(sizes, P(("data", "expert")))
        found = run(
            place(rows, P(("data", "expert"))), place(matrices, P("expert")), place(cotangent, P(("data", "expert")))
        )
    found = [np.asarray(x) for x in found]
    d_matrices = np.zeros(matrices.shape)
    for shard in range(4):
        own, experts = slice(shard * ROWS, (shard + 1) * ROWS), slice(shard % 2 * 2, shard % 2 * 2 + 2)
        result, d_rows, d_own = by_definition(rows[own], matrices[experts], cotangent[own], np.asarray(sizes)[shard])
        np.testing.assert_allclose(found[0][own], result, atol=1e-5)
        np.testing.assert_allclose(found[1][own], d_rows, atol=1e-5)
        d_matrices[experts] += d_own
    np.testing.assert_allclose(found[2], d_matrices, atol=1e-4)


def test_dtypes_that_differ_are_refused():
    rows, matrices, _ = arrays(6)
    with pytest.raises(ValueError, match="rows are bfloat16 and matrices are float32; cast one to the other's dtype"):
        grouped_matmul(rows.astype(jnp.bfloat16), matrices, jnp.zeros(GROUPS, int))


def test_an_unknown_implementation_is_refused_with_the_known_ones():
    rows, matrices, _ = arrays(7)
    # The run-time type checker of these tests objects first; without it the function's own message appears.
    unchecked = inspect.unwrap(grouped_matmul)
    with pytest.raises(
        ValueError, match="unknown implementation 'sonic'; choose one of 'default', 'reference', 'blocked'"
    ):
        unchecked(rows, matrices, jnp.zeros(GROUPS, int), implementation="sonic")
