"""Where chunks lie: against a plain count, and the alignment that compiled kernels are promised."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.fused.layout import Grain, Layout, away_rows, home_rows, lay_out
from marin_kernels.expert_parallel.fused.transport import places_at_home
from marin_kernels.expert_parallel.movement import NOWHERE
from marin_kernels.expert_parallel.planner import plan_receivers, sort_assignments

SIZES = (
    (Extent(12, 2, 6, 3), Grain(8, 8)),
    (Extent(12, 3, 8, 4), Grain(8, 32)),
    (Extent(5, 1, 4, 2), Grain(1, 1)),
    (Extent(7, 2, 3, 1), Grain(16, 32)),
)


@st.composite
def counted(draw):
    """Sizes, a grain, and counts that a real routing of these sizes has; some experts and shards may have none."""
    extent, grain = draw(st.sampled_from(SIZES))
    seed, skew = draw(st.integers(0, 2**16)), draw(st.sampled_from([0.0, 3.0]))
    scores = np.random.default_rng(seed).normal(size=(extent.shards, extent.tokens, extent.experts))
    chosen = np.argsort(scores + skew * np.arange(extent.experts), axis=-1)[..., : extent.top_k]
    used = draw(st.integers(0, extent.experts))
    kept = [np.bincount(c[c < used], minlength=extent.experts) for c in chosen.reshape(extent.shards, -1)]
    return extent, grain, np.stack(kept).astype(np.int32)


@functools.partial(jax.jit, static_argnums=(1, 2))
def every_view(kept, extent, grain):
    return [lay_out(kept, shard, extent, grain) for shard in range(extent.shards)]


def layouts(kept, extent, grain):
    return jax.tree.map(np.asarray, every_view(jnp.asarray(kept), extent, grain))


@given(counted())
def test_every_chunk_has_a_place_of_its_own_and_both_ends_agree_on_it(case):
    extent, grain, kept = case
    views = layouts(kept, extent, grain)
    taken_away = np.zeros((extent.shards, away_rows(extent, grain)), int)
    taken_home = np.zeros((extent.shards, home_rows(extent, grain)), int)
    for source, expert in np.ndindex(kept.shape):
        owner, local = divmod(expert, extent.local_experts)
        chunk = local * extent.shards + (owner - source) % extent.shards
        count, home, away = (int(views[source][field][expert]) for field in range(3))
        assert count == -(-kept[source, expert] // grain.chunk) * grain.chunk
        assert (count, away, home) == tuple(int(views[owner][field][chunk]) for field in (3, 4, 5))
        taken_away[owner, away : away + count] += 1
        taken_home[source, home : home + count] += 1
        assert away + count <= taken_away.shape[1]
        assert home + count <= taken_home.shape[1]
    assert taken_away.max(initial=0) <= 1
    assert taken_home.max(initial=0) <= 1


@given(counted())
def test_what_kernels_promise_the_compiler_of_alignment_is_true(case):
    extent, grain, kept = case
    for view in layouts(kept, extent, grain):
        for field in ("sent", "home", "away", "received", "place", "origin"):
            assert not np.any(getattr(view, field) % grain.chunk), field
    assert home_rows(extent, grain) % grain.chunk == 0
    assert away_rows(extent, grain) % grain.tile == 0


@given(counted())
def test_a_tile_has_rows_of_one_expert_and_knows_how_many(case):
    extent, grain, kept = case
    for view in layouts(kept, extent, grain):
        owner_of_row = np.full(away_rows(extent, grain), extent.local_experts)
        for chunk, (count, place) in enumerate(zip(view.received, view.place, strict=True)):
            owner_of_row[place : place + count] = chunk // extent.shards
        tiles = owner_of_row.reshape(-1, grain.tile)
        assert view.tiles[0] == (tiles != extent.local_experts).any(1).sum()
        for tile, (rows, expert, count) in enumerate(zip(tiles, view.tile_expert, view.tile_rows, strict=True)):
            assert (tile < view.tiles[0]) == (expert < extent.local_experts)
            assert list(rows) == [expert] * count + [extent.local_experts] * (grain.tile - count)


@given(counted())
def test_chunks_of_an_expert_are_ordered_by_distance_around_the_ring(case):
    extent, grain, kept = case
    for view in layouts(kept, extent, grain):
        places = view.place.reshape(extent.local_experts, extent.shards)
        counts = view.received.reshape(places.shape)
        np.testing.assert_array_equal(places[:, 1:], places[:, :-1] + counts[:, :-1])
        np.testing.assert_array_equal(places[:, 0] % grain.tile, 0)


def test_kept_assignments_are_at_home_in_their_chunks_and_dropped_ones_nowhere():
    extent, grain = Extent(6, 2, 4, 2), Grain(8, 8)
    experts = np.random.default_rng(0).permuted(np.tile(np.arange(4), (12, 1)), axis=1)[:, :2].astype(np.int32)
    sorted_ones = [sort_assignments(part, 4) for part in jnp.asarray(experts).reshape(2, 6, 2)]
    sent = np.stack([s.counts for s in sorted_ones])
    kept = np.minimum(sent, 2)
    for source, (assignments, layout) in enumerate(zip(sorted_ones, layouts(kept, extent, grain), strict=True)):
        places = np.asarray(places_at_home(assignments, jnp.asarray(kept[source]), Layout(*map(jnp.asarray, layout))))
        assert np.sum(places == NOWHERE) == (sent - kept)[source].sum()
        for token, slot in np.argwhere(places != NOWHERE):
            expert = experts[6 * source + token, slot]
            assert 0 <= places[token, slot] - layout.home[expert] < kept[source, expert]


def test_room_for_all_rows_holds_with_a_capacity():
    extent, grain = Extent(40, 2, 4, 2, Fraction(1)), Grain(8, 16)
    sent = np.zeros((2, 4), np.int32)
    sent[:, 1], sent[:, 0] = 40, 39
    kept = np.asarray(plan_receivers(jnp.asarray(sent), extent).kept)
    assert 0 < kept.sum() < sent.sum()
    assert layouts(kept, extent, grain)[0].tiles[0] <= away_rows(extent, grain) // grain.tile


def test_a_tile_that_is_no_multiple_of_a_chunk_is_refused():
    with pytest.raises(ValueError, match="a tile of 24 rows is no multiple of a chunk of 16 rows"):
        Grain(16, 24)
