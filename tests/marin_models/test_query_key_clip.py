import jax.numpy as jnp
import numpy as np
import pytest

from marin_models.query_key_clip import clip_queries_and_keys

WIDTH, HEADS, SHARED, SIZE = 6, 4, 2, 3


def gaussian(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def logits(query, key, x):
    """[layers, heads, tokens, tokens] of grouped-query attention without normalization."""
    queries = jnp.einsum("td,ldk->ltk", x, query).reshape(2, -1, HEADS, SIZE)
    keys = jnp.repeat(jnp.einsum("td,ldk->ltk", x, key).reshape(2, -1, SHARED, SIZE), HEADS // SHARED, axis=2)
    return jnp.einsum("lqhs,lkhs->lhqk", queries, keys)


def test_heads_above_the_bound_come_down_to_it_and_the_others_keep_their_logits():
    query, key, x = (
        gaussian(2, WIDTH, HEADS * SIZE),
        gaussian(2, WIDTH, SHARED * SIZE, seed=1),
        gaussian(5, WIDTH, seed=2),
    )
    before = logits(query, key, x)
    peaks = jnp.abs(before).max((-2, -1))
    bound = float(np.median(np.asarray(peaks)))
    after = logits(*clip_queries_and_keys(query, key, peaks, bound), x)
    factors = np.minimum(1, bound / np.asarray(peaks))[..., None, None]
    assert (factors < 1).any()
    assert (factors == 1).any()
    np.testing.assert_allclose(after, factors * before, atol=1e-4)


def test_heads_without_logits_stay():
    query, key = gaussian(2, WIDTH, HEADS * SIZE), gaussian(2, WIDTH, SHARED * SIZE)
    clipped = clip_queries_and_keys(query, key, jnp.zeros((2, HEADS)), 100.0)
    np.testing.assert_array_equal(clipped[0], query)
    np.testing.assert_array_equal(clipped[1], key)


def test_heads_whose_logits_are_all_far_below_zero_stay():
    query, key = gaussian(2, WIDTH, HEADS * SIZE), gaussian(2, WIDTH, SHARED * SIZE)
    clipped = clip_queries_and_keys(query, key, jnp.full((2, HEADS), -1e4), 100.0)
    np.testing.assert_array_equal(clipped[0], query)
    np.testing.assert_array_equal(clipped[1], key)


def test_queries_and_keys_of_a_head_share_its_factor_equally():
    query, key = gaussian(2, WIDTH, HEADS * SIZE), gaussian(2, WIDTH, HEADS * SIZE)
    clipped = clip_queries_and_keys(query, key, jnp.full((2, HEADS), 400.0), 100.0)
    np.testing.assert_allclose(clipped[0], query / 2, rtol=1e-6)
    np.testing.assert_allclose(clipped[1], key / 2, rtol=1e-6)


def test_peaks_of_another_model_are_refused():
    query, key = gaussian(2, WIDTH, HEADS * SIZE), gaussian(2, WIDTH, SHARED * SIZE)
    with pytest.raises(ValueError, match="5 heads do not divide queries of 12 and keys of 6 columns; give the peak of"):
        clip_queries_and_keys(query, key, jnp.ones((2, 5)), 100.0)
