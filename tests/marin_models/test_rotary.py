import functools

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_models.rotary import rotary_table, rotate


@functools.partial(jax.jit, static_argnums=1)
def turn(x, theta):
    return rotate(x, rotary_table(x.shape[1], x.shape[3], theta))


def rotated(x, theta=100.0):
    """[length, size] -> the same, rotated."""
    return np.asarray(turn(x[None, :, None], theta))[0, :, 0]


def test_pairs_are_split_halves():
    x = np.zeros((2, 6), np.float32)
    x[1, 1] = 1
    angle = 100.0 ** (-2 / 6)
    np.testing.assert_allclose(rotated(x)[1], [0, np.cos(angle), 0, 0, np.sin(angle), 0], atol=1e-6)


def test_the_first_position_is_not_turned():
    x = np.asarray(jax.random.normal(jax.random.key(0), (3, 4)))
    np.testing.assert_array_equal(rotated(x)[0], x[0])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), first=st.integers(0, 5), second=st.integers(0, 5), shift=st.integers(0, 6))
def test_scores_depend_on_the_distance_alone_and_lengths_are_kept(seed, first, second, shift):
    query, key = np.random.default_rng(seed).standard_normal((2, 8), np.float32)
    queries, keys = rotated(np.tile(query, (12, 1))), rotated(np.tile(key, (12, 1)))
    np.testing.assert_allclose(
        queries[first] @ keys[second], queries[first + shift] @ keys[second + shift], rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), np.linalg.norm(query), rtol=1e-5)
