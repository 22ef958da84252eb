import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from simulated_devices import on_devices

from marin_kernels import attention_logit_peaks, attention_peaks, causal_attention

measure = jax.jit(attention_logit_peaks)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of three: rows of seven are two and a third."""
    monkeypatch.setattr(attention_peaks, "BLOCK", 3)


def arrays(seed, *, batch=2, length=7, shared=2, group=2, size=4, shift=0.0):
    random = np.random.default_rng(seed)
    query = random.standard_normal((batch, length, shared * group, size), np.float32)
    key = random.standard_normal((batch, length, shared, size), np.float32) - np.float32(shift) * query[:, :, ::group]
    segments = np.sort(random.integers(-1, 3, (batch, length)), axis=1)
    # Padding may stand at the end, too, and may be more than one negative number.
    return jnp.asarray(query), jnp.asarray(key), jnp.asarray(np.where(segments == 2, -2, segments), jnp.int32)


def plain_peaks(query, key, segments=None, window=10**9):
    """The definition, one pair at a time, in double precision."""
    query, key = (np.asarray(x, np.float64) for x in (query, key))
    batch, length, heads, size = query.shape
    peaks = np.full(heads, -np.inf)
    for b in range(batch):
        for t in range(length):
            if segments is not None and segments[b, t] < 0:
                continue
            for s in range(max(0, t + 1 - window), t + 1):
                if segments is None or segments[b, s] == segments[b, t]:
                    keys = np.repeat(key[b, s], heads // key.shape[2], axis=0)
                    peaks = np.maximum(peaks, (query[b, t] * keys).sum(-1) / np.sqrt(size))
    return peaks


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**16),
    batch=st.integers(1, 2),
    length=st.sampled_from([1, 3, 7]),
    heads=st.sampled_from([(1, 1), (2, 2), (1, 3)]),
    packed=st.booleans(),
    window=st.none() | st.integers(1, 9),
    shift=st.sampled_from([0.0, 9.0]),
)
def test_peaks_equal_their_definition(seed, batch, length, heads, packed, window, shift):
    query, key, segments = arrays(seed, batch=batch, length=length, shared=heads[0], group=heads[1], shift=shift)
    chosen = segments if packed else None
    wanted = plain_peaks(query, key, chosen, 10**9 if window is None else window)
    found = measure(query, key, chosen, window=None if window is None else jnp.int32(window))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_a_window_may_be_a_number():
    query, key, segments = arrays(1)
    found = jax.jit(functools.partial(attention_logit_peaks, window=2))(query, key, segments)
    np.testing.assert_allclose(found, plain_peaks(query, key, segments, 2), rtol=1e-5)


def test_the_largest_logit_counts_with_its_sign_and_what_fills_up_a_block_does_not():
    one = jnp.ones((1, 4, 1, 4))  # one and a third block; its end is filled up with zeros
    np.testing.assert_allclose(measure(one, -one), [-2.0])


def test_a_batch_of_padding_has_no_peak():
    query, key, segments = arrays(2)
    np.testing.assert_array_equal(measure(query, key, jnp.full_like(segments, -1)), np.full(4, -np.inf))


def test_a_query_without_a_future_or_another_document_is_all_that_the_peaks_look_at():
    query, key, _ = arrays(3, batch=1, length=6)
    segments = jnp.array([[0, 0, 0, 1, 1, -1]])
    before = measure(query, key, segments)
    np.testing.assert_array_equal(measure(query.at[:, 5].add(100.0), key.at[:, 5].add(100.0), segments), before)
    assert (np.asarray(measure(query, key.at[:, 4].mul(100.0), segments)) >= np.asarray(before)).any()


def test_no_gradient_flows():
    query, key, segments = arrays(4)

    def loss(query, key):
        peaks = attention_logit_peaks(query, key, segments, window=3)
        return jnp.sum(causal_attention(query, key, key, segments)) + jnp.sum(peaks), peaks

    plain = jax.grad(lambda query, key: jnp.sum(causal_attention(query, key, key, segments)), (0, 1))(query, key)
    for wrapped in (loss, jax.checkpoint(loss)):
        found, _ = jax.jit(jax.grad(wrapped, (0, 1), has_aux=True))(query, key)
        for one, other in zip(found, plain, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_long_rows_are_never_held_as_a_whole():
    query, key, segments = arrays(5, length=12)
    program = str(jax.make_jaxpr(attention_logit_peaks)(query, key, segments))
    assert "2,2,2,3,3]" in program
    assert "12,12]" not in program


def test_bfloat16_logits_are_measured_in_fp32():
    query, key, segments = arrays(6)
    query, key = query.astype(jnp.bfloat16), key.astype(jnp.bfloat16)
    found = measure(query, key, segments)
    assert found.dtype == jnp.float32
    exact = plain_peaks(query.astype(jnp.float32), key.astype(jnp.float32), segments)
    np.testing.assert_allclose(found, exact, rtol=1e-5)


def test_what_attention_refuses_is_refused():
    query = jnp.zeros((1, 4, 3, 2))
    with pytest.raises(ValueError, match="attention_logit_peaks: 3 query heads cannot share 2 key/value heads eq"):
        attention_logit_peaks(query, jnp.zeros((1, 4, 2, 2)))
    with pytest.raises(ValueError, match="attention_logit_peaks: a window of 0 positions leaves a token nothing"):
        attention_logit_peaks(query, query, window=0)


@on_devices(8)
def test_on_a_mesh_the_maximum_is_over_all_devices():
    query, key, segments = arrays(7, batch=4)
    mesh = jax.make_mesh((2, 2, 2), ("data", "expert", "model"), axis_types=(AxisType.Explicit,) * 3)
    rows, heads = P(("data", "expert")), P(("data", "expert"), None, "model")
    with jax.set_mesh(mesh):
        peaks = functools.partial(attention_logit_peaks, window=5, axes=("data", "expert"))
        mapped = jax.jit(jax.shard_map(peaks, in_specs=(heads, heads, rows), out_specs=P("model")))
        arguments = (
            jax.device_put(x, jax.NamedSharding(mesh, spec))
            for x, spec in zip((query, key, segments), (heads, heads, rows), strict=True)
        )
        found = np.asarray(mapped(*arguments))
    np.testing.assert_allclose(found, plain_peaks(query, key, segments, 5), rtol=1e-5)


def test_the_logits_of_a_long_row_are_never_held_together(monkeypatch):
    monkeypatch.setattr(attention_peaks, "BLOCK", 128)
    length, heads, size = 4096, 2, 8
    query = jax.ShapeDtypeStruct((1, length, heads, size), jnp.float32)
    # A program of its own: one that is compiled already has other blocks.
    compiled = jax.jit(lambda query, key: attention_logit_peaks(query, key)).lower(query, query).compile()
    block = heads * 128**2 * 4
    copies = 2 * heads * length * size * 4
    assert compiled.memory_analysis().temp_size_in_bytes <= 4 * block + 2 * copies < heads * length**2 * 4 / 50
