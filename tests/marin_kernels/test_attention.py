import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError, jaxtyped

from marin_kernels import causal_attention
from marin_kernels.attention import visible


def arrays(seed, *, batch=2, length=7, key_value_heads=2, group=2, head_size=4, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(seed), 4)
    heads = key_value_heads * group
    shapes = [(batch, length, n, head_size) for n in (heads, key_value_heads, key_value_heads, heads)]
    return [jax.random.normal(k, shape, dtype) for k, shape in zip(keys, shapes, strict=True)]


def attend(implementation, query, key, value, segments=None, window=None):
    call = jax.jit(causal_attention, static_argnames="implementation")
    return call(query, key, value, segments, window=window, implementation=implementation)


def plain_attention(query, key, value, segments=None, window=10**9):
    """The definition, one query at a time, in double precision."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    batch, length, heads, size = query.shape
    group = heads // key.shape[2]
    out = np.zeros_like(query)
    for b in range(batch):
        for t in range(length):
            past = range(max(0, t + 1 - window), t + 1)
            seen = [s for s in past if segments is None or segments[b, s] == segments[b, t]]
            for h in range(heads):
                scores = key[b, seen, h // group] @ query[b, t, h] / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                out[b, t, h] = weights @ value[b, seen, h // group] / weights.sum()
    return out


def with_gradients(implementation, query, key, value, cotangent, segments, window=None):
    @jax.jit
    def attend(query, key, value, cotangent, window):
        call = partial(causal_attention, window=window, implementation=implementation)
        out, pull = jax.vjp(lambda q, k, v: call(q, k, v, segments), query, key, value)
        return out, *pull(cotangent)

    return attend(query, key, value, cotangent, window)


@pytest.mark.parametrize("implementation", ["reference", "folded"])
@pytest.mark.parametrize("packed", [False, True])
def test_attention_equals_its_definition(implementation, packed):
    query, key, value, _ = arrays(0)
    segments = jnp.array([[0, 0, 0, 1, 1, 2, 2], [5, 5, 5, 5, 5, 5, 5]]) if packed else None
    found = attend(implementation, query, key, value, segments)
    np.testing.assert_allclose(found, plain_attention(query, key, value, segments), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", ["reference", "folded"])
@pytest.mark.parametrize("window", [1, 3, 7, 100])
def test_a_window_counts_the_token_itself_and_what_is_just_before_it(implementation, window):
    query, key, value, _ = arrays(5)
    segments = jnp.array([[0, 0, 0, 0, 0, 1, 1], [5, 5, 5, 5, 5, 5, 5]])
    expected = plain_attention(query, key, value, segments, window)
    for given_window in (window, jnp.int32(window)):
        found = attend(implementation, query, key, value, segments, given_window)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", ["reference", "folded"])
def test_the_layers_of_a_scanned_stack_may_have_windows_of_their_own(implementation):
    query, key, value, _ = arrays(6)

    def layer(total, window):
        return total + causal_attention(query, key, value, window=window, implementation=implementation), None

    found, _ = jax.jit(lambda windows: jax.lax.scan(layer, jnp.zeros_like(query), windows))(jnp.array([2, 7]))
    expected = plain_attention(query, key, value, window=2) + plain_attention(query, key, value)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_an_empty_window_is_refused():
    x = jnp.zeros((1, 4, 2, 2))
    with pytest.raises(ValueError, match=r"a window of 0 positions leaves a token nothing to see.*at least 1"):
        causal_attention(x, x, x, window=0)


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    batch=st.integers(1, 3),
    length=st.integers(1, 9),
    key_value_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    packed=st.booleans(),
    window=st.none() | st.integers(1, 12),
)
def test_folded_attention_and_its_gradients_equal_the_reference(
    seed, batch, length, key_value_heads, group, packed, window
):
    sizes = {"batch": batch, "length": length, "key_value_heads": key_value_heads, "group": group}
    inputs = arrays(seed, **sizes)
    segments = jax.random.randint(jax.random.key(seed), (batch, length), 0, 3).sort(axis=1) if packed else None
    expected = with_gradients("reference", *inputs, segments, window)
    for found, wanted in zip(with_gradients("folded", *inputs, segments, window), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("implementation", ["reference", "folded"])
def test_a_token_sees_neither_the_future_nor_another_document(implementation):
    query, key, value, _ = arrays(1, batch=1, length=6)
    segments = jnp.array([[0, 0, 0, 1, 1, 1]])
    before = attend(implementation, query, key, value, segments)
    changed = value.at[:, [0, 1, 2, 5]].add(100.0)
    after = attend(implementation, query, key, changed, segments)
    np.testing.assert_array_equal(before[:, 3:5], after[:, 3:5])
    assert np.abs(np.asarray(after - before)[:, 5]).max() > 1


def test_one_document_per_row_is_the_same_as_no_segments():
    query, key, value, _ = arrays(2)
    np.testing.assert_array_equal(
        attend("folded", query, key, value, jnp.full((2, 7), 3)), attend("folded", query, key, value)
    )


@pytest.mark.parametrize("implementation", ["reference", "folded"])
def test_bfloat16_stays_near_float32(implementation):
    inputs = arrays(3, dtype=jnp.bfloat16)
    exact = with_gradients("reference", *(x.astype(jnp.float32) for x in inputs), None)
    for found, wanted in zip(with_gradients(implementation, *inputs, None), exact, strict=True):
        assert found.dtype == jnp.bfloat16
        peak = float(jnp.abs(wanted).max())
        np.testing.assert_allclose(found.astype(jnp.float32), wanted, atol=2e-2 * peak)


@pytest.mark.parametrize("implementation", ["reference", "folded"])
def test_huge_scores_do_not_overflow(implementation):
    query, key, value, cotangent = arrays(4)
    for x in with_gradients(implementation, query * 1e4, key * 1e4, value, cotangent, None):
        assert np.isfinite(np.asarray(x)).all()


def test_visible_is_a_lower_triangle_cut_by_segments():
    np.testing.assert_array_equal(visible(3), np.tril(np.ones((1, 3, 3), bool)))
    np.testing.assert_array_equal(
        visible(3, jnp.array([[0, 1, 1]]))[0], [[True, False, False], [False, True, False], [False, True, True]]
    )


def test_heads_that_do_not_divide_are_refused():
    query = jnp.zeros((1, 4, 3, 2))
    key = jnp.zeros((1, 4, 2, 2))
    with pytest.raises(ValueError, match=r"3 query heads cannot share 2 key/value heads.*multiple"):
        causal_attention(query, key, key)


def test_wrong_shapes_are_refused_at_the_signature():
    query, longer = jnp.zeros((1, 4, 2, 2)), jnp.zeros((1, 5, 2, 2))
    checked = jaxtyped(typechecker=beartype)(inspect.unwrap(causal_attention))
    with pytest.raises(TypeCheckError, match=r"parameter of .* with argument|key"):
        checked(query, longer, longer)


def test_an_unknown_implementation_is_refused_with_the_known_ones():
    x = jnp.zeros((1, 4, 2, 2))
    # The run-time type checker of these tests objects first; without it the function's own message appears.
    unchecked = inspect.unwrap(causal_attention)
    with pytest.raises(ValueError, match="unknown implementation 'flash'; choose one of 'reference', 'folded'"):
        unchecked(x, x, x, implementation="flash")
