"""The planner, against one that counts on fingers."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_planner import Sources, in_turn

from marin_kernels.expert_parallel.extent import Extent, share
from marin_kernels.expert_parallel.movement import NOWHERE, inverse
from marin_kernels.expert_parallel.planner import (
    addresses,
    at_receiver,
    count_assignments,
    local_sizes,
    plan_receivers,
    room,
    sort_assignments,
    stable_order,
    tile_map,
    waterfill,
)

EXTENTS = [
    Extent(tokens=5, top_k=2, experts=4, shards=1, capacity_factor=Fraction(1), tile=4),
    Extent(tokens=6, top_k=3, experts=4, shards=2, capacity_factor=None, tile=4),
    Extent(tokens=6, top_k=1, experts=8, shards=4, capacity_factor=Fraction(1, 100)),
    Extent(tokens=5, top_k=2, experts=8, shards=4, capacity_factor=Fraction(5, 4), tile=4),
]
ALL_EXTENTS = [
    Extent(tokens, top_k, experts, shards, factor, tile)
    for shards, tokens, top_k, experts in [(1, 5, 2, 4), (2, 6, 3, 4), (4, 5, 2, 8), (8, 3, 4, 8)]
    for factor in [None, Fraction(1, 100), Fraction(1), Fraction(5, 4)]
    for tile in [1, 4]
]


@functools.cache
def planned(extent):
    """The plan of all sources, and the address of each of their assignments."""

    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    def plan(experts, valid):
        assignments = jax.vmap(lambda e, v: sort_assignments(e, extent.experts, v[:, None]))(experts, valid)
        plan = plan_receivers(assignments.counts, extent)
        shards = jnp.arange(extent.shards)
        address = jax.vmap(lambda a, s: addresses(plan, a, s, extent))(assignments, shards)
        rows = jax.vmap(lambda receiver: at_receiver(address, receiver, extent))(shards)
        tiles = jax.vmap(lambda receiver: tile_map(local_sizes(plan, receiver, extent), extent))(shards)
        return assignments, plan, address, rows, tiles

    return lambda *arrays: jax.tree.map(np.asarray, plan(*arrays))


@st.composite
def routed(draw, extents=EXTENTS):
    """An extent and routings of all its sources: skewed, with padding, idle shards and empty experts among them."""
    extent = draw(st.sampled_from(extents))
    shards, tokens, top_k, experts = extent.shards, extent.tokens, extent.top_k, extent.experts
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    popularity = random.standard_normal(experts) * draw(st.sampled_from([0, 2, 50]))
    scores = popularity + random.standard_normal((shards, tokens, experts))
    valid = random.random((shards, tokens)) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    valid[random.random(shards) < 0.2] = False
    return extent, np.argsort(-scores, axis=-1)[..., :top_k].astype(np.int32), valid


@given(routed())
def test_what_is_kept_is_what_counting_keeps(case):
    extent, experts, valid = case
    _, plan, address, _, _ = planned(extent)(experts, valid)
    counted = Sources(experts.tolist(), valid.tolist(), extent.experts, extent.capacity_factor).receivers()
    kept = {tuple(map(int, index)) for index in np.argwhere(address != NOWHERE)}
    assert kept == counted.kept
    assert int(np.sum(plan.sent - plan.kept)) == counted.by_receiver
    if extent.capacity_factor is None:
        assert counted.by_receiver == 0


@pytest.mark.long
@given(routed(ALL_EXTENTS))
def test_what_is_kept_is_what_counting_keeps_at_all_extents(case):
    test_what_is_kept_is_what_counting_keeps.hypothesis.inner_test(case)


@given(routed())
def test_rows_lie_by_expert_then_source_then_rank_and_experts_begin_at_tiles(case):
    extent, experts, valid = case
    _, plan, address, rows, tiles = planned(extent)(experts, valid)
    for receiver in range(extent.shards):
        assert rows[receiver].max() < extent.rows
        mine = sorted((row, *index) for index, row in np.ndenumerate(rows[receiver]) if row != NOWHERE)
        order = [(int(experts[s, t, k]), s, t, k) for _, s, t, k in mine]
        assert order == sorted(order)
        sizes = plan.sizes.reshape(extent.shards, -1)[receiver]
        assert not np.any(sizes % extent.tile)
        starts = np.cumsum(sizes) - sizes
        for local in range(extent.local_experts):
            expert = receiver * extent.local_experts + local
            places = [row for row, s, t, k in mine if experts[s, t, k] == expert]
            assert places == list(range(starts[local], starts[local] + len(places)))
            first = starts[local] // extent.tile
            np.testing.assert_array_equal(tiles[receiver][first : first + sizes[local] // extent.tile], local)
        np.testing.assert_array_equal(tiles[receiver][sizes.sum() // extent.tile :], extent.local_experts)
    assert (address != NOWHERE).sum() == (rows != NOWHERE).sum()


@given(routed())
def test_assignments_are_sorted_stably_and_what_is_none_comes_last(case):
    extent, experts, valid = case
    assignments = planned(extent)(experts, valid)[0]
    for source in range(extent.shards):
        ids = np.where(valid[source][:, None], experts[source], extent.experts).ravel()
        np.testing.assert_array_equal(assignments.order[source], np.argsort(ids, kind="stable"))
        np.testing.assert_array_equal(assignments.places[source].ravel()[assignments.order[source]], range(ids.size))
        np.testing.assert_array_equal(assignments.counts[source], np.bincount(ids, minlength=extent.experts + 1)[:-1])
        seen = dict.fromkeys(range(extent.experts + 1), 0)
        for expert, rank in zip(ids.tolist(), assignments.ranks[source].ravel().tolist(), strict=True):
            assert rank == seen[expert]
            seen[expert] += 1


@pytest.mark.parametrize("largest", [0, 1, 6, 2**29 - 1, 2**29, 2**31 - 1])
@pytest.mark.parametrize("size", [1, 7, 8])
def test_ids_of_any_size_are_ordered_stably(size, largest):
    ids = np.array([largest, 0, largest // 2, largest, 0, largest, 1 if largest else 0, largest], np.int32)[:size]
    found, order = jax.jit(stable_order, static_argnums=1)(ids, largest)
    np.testing.assert_array_equal(order, np.argsort(ids, kind="stable"))
    np.testing.assert_array_equal(found, np.sort(ids))
    assert found.dtype == order.dtype == np.int32


@given(st.lists(st.integers(0, 9), min_size=5, max_size=5), st.integers(0, 60))
def test_room_is_shared_one_in_turn(demands, room):
    granted = jax.jit(waterfill)(jnp.array([demands, demands[::-1]]), jnp.array([room, room]))
    np.testing.assert_array_equal(granted, [in_turn(demands, room), in_turn(demands[::-1], room)])


@given(st.integers(0, 2**22), st.sampled_from([1.0, 1.15, 1.25, 4.05, 0.01]), st.sampled_from([1, 8, 64]))
def test_shares_are_exact_where_floating_point_is_not(count, factor, shards):
    exact = Fraction(factor).limit_denominator(1000) / shards
    assert int(share(jnp.int32(count), exact)) == -(-count * exact.numerator // exact.denominator)


@given(st.integers(1, 2**22), st.sampled_from([513, 10**5, 10**6, 2**31 - 1]))
def test_a_share_beyond_int32_is_its_largest_number(count, factor):
    found = int(share(jnp.int32(count), Fraction(factor)))
    assert found == min(count * factor, 2**31 - 1) or (found == 2**31 - 1 and count * factor > 2**31 - 1 - factor)


@pytest.mark.parametrize("factor", [Fraction(1001, 2), Fraction(1001, 3), Fraction(7, 5)])
def test_a_share_that_is_just_beyond_int32_is_its_largest_number(factor):
    first = (2**31 - 1) * factor.denominator // factor.numerator + 1
    for count in range(first, first + 2 * factor.denominator):
        assert int(share(jnp.int32(count), factor)) == 2**31 - 1


@pytest.mark.parametrize(("experts", "top_k", "destinations"), [(256, 4, 8), (8, 2, 4), (64, 8, 2), (8, 7, 8)])
def test_the_share_of_tokens_that_need_a_destination_is_rounded_up_to_thousandths(experts, top_k, destinations):
    extent = Extent(tokens=100_000, top_k=top_k, experts=experts, shards=destinations, capacity_factor=Fraction(1))
    met, each = Fraction(1), experts // destinations
    for drawn in range(top_k):
        met *= Fraction(max(experts - each - drawn, 0), experts - drawn)
    assert 0 <= extent.hit(destinations) - (1 - met) < Fraction(1, 1000)
    assert extent.copies(destinations) == 100_000 * extent.hit(destinations)


def test_a_huge_capacity_factor_drops_nothing():
    extent = Extent(tokens=1024, top_k=4, experts=8, capacity_factor=Fraction(10**6))
    assert int(room(jnp.int32(4096), extent)) == extent.room == 4096


@pytest.mark.parametrize("tile", [1, 4, 8])
@pytest.mark.parametrize("experts", [1, 2, 5])
def test_a_buffer_has_rows_for_experts_that_each_fill_a_tile_with_one_row(experts, tile):
    for tokens in range(experts, 40):
        extent = Extent(tokens=tokens, top_k=1, experts=experts, tile=tile)
        needed = ((tokens - experts) // tile + experts) * tile  # one row each, and all others in whole tiles
        assert needed <= extent.rows <= needed + tile


def test_a_factor_too_fine_for_int32_is_refused():
    with pytest.raises(ValueError, match=r"capacity_factor: 0\.03.* is too fine a fraction .*round it to two or three"):
        share(jnp.int32(1), Fraction(999983, 31 * 10**6))


def test_ids_outside_of_the_experts_are_no_assignments():
    assignments = jax.jit(sort_assignments, static_argnums=1)(jnp.array([[0, 2], [-1, 1]]), 2)
    np.testing.assert_array_equal(assignments.counts, [1, 1])
    np.testing.assert_array_equal(assignments.experts, [[0, 2], [2, 1]])
    np.testing.assert_array_equal(count_assignments(jnp.array([[0, 2], [-1, 1]]), None, 2), [1, 1])


def test_the_inverse_of_places_names_the_position_of_each_row():
    np.testing.assert_array_equal(inverse(jnp.array([[3, NOWHERE], [0, 1]]), 5), [2, 3, NOWHERE, 0, NOWHERE])


def test_drops_fall_on_all_sources_alike():
    """Marin's pooled backend once dropped the last sources' assignments alone (its issue 8347)."""
    extent = EXTENTS[3]
    experts = np.tile(np.array([[0, 1]], np.int32), (extent.shards, extent.tokens, 1))
    plan = planned(extent)(experts, np.ones(experts.shape[:2], bool))[1]
    np.testing.assert_array_equal(plan.kept[:, :2], [[2, 2], [2, 2], [2, 1], [1, 1]])
