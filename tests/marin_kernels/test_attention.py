import inspect
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from compilers import TPUS, on_compilers
from equations import products
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from jaxtyping import TypeCheckError, jaxtyped

from marin_kernels import attention, attention_blockwise, attention_libraries, causal_attention, implementations
from marin_kernels.attention import visible
from marin_kernels.topologies import absent_devices

EVERY = ["reference", "folded", "blockwise"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of three: rows of seven are two and a third."""
    monkeypatch.setattr(attention_blockwise, "BLOCK", 3)


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


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize("packed", [False, True])
def test_attention_equals_its_definition(implementation, packed):
    query, key, value, _ = arrays(0)
    segments = jnp.array([[0, 0, 0, 1, 1, 2, 2], [5, 5, 5, 5, 5, 5, 5]]) if packed else None
    found = attend(implementation, query, key, value, segments)
    np.testing.assert_allclose(found, plain_attention(query, key, value, segments), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize("window", [1, 3, 7, 100])
def test_a_window_counts_the_token_itself_and_what_is_just_before_it(implementation, window):
    query, key, value, _ = arrays(5)
    segments = jnp.array([[0, 0, 0, 0, 0, 1, 1], [5, 5, 5, 5, 5, 5, 5]])
    expected = plain_attention(query, key, value, segments, window)
    for given_window in (window, jnp.int32(window)):
        found = attend(implementation, query, key, value, segments, given_window)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", EVERY)
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


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("implementation", ["folded", "blockwise"])
@given(
    seed=st.integers(0, 2**16),
    batch=st.integers(1, 3),
    length=st.integers(1, 9),
    key_value_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    packed=st.booleans(),
    window=st.none() | st.integers(1, 12),
)
def test_attention_and_its_gradients_equal_the_reference(
    implementation, seed, batch, length, key_value_heads, group, packed, window
):
    sizes = {"batch": batch, "length": length, "key_value_heads": key_value_heads, "group": group}
    inputs = arrays(seed, **sizes)
    segments = jax.random.randint(jax.random.key(seed), (batch, length), 0, 3).sort(axis=1) if packed else None
    expected = with_gradients("reference", *inputs, segments, window)
    for found, wanted in zip(with_gradients(implementation, *inputs, segments, window), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("implementation", EVERY)
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


@pytest.mark.parametrize("implementation", EVERY)
def test_bfloat16_stays_near_float32(implementation):
    inputs = arrays(3, dtype=jnp.bfloat16)
    exact = with_gradients("reference", *(x.astype(jnp.float32) for x in inputs), None)
    for found, wanted in zip(with_gradients(implementation, *inputs, None), exact, strict=True):
        assert found.dtype == jnp.bfloat16
        peak = float(jnp.abs(wanted).max())
        np.testing.assert_allclose(found.astype(jnp.float32), wanted, atol=2e-2 * peak)


@pytest.mark.parametrize("implementation", EVERY)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_sums_are_float32_and_so_are_products_of_float32_on_every_device(implementation, dtype):
    *inputs, cotangent = arrays(3, dtype=jnp.dtype(dtype))
    run = partial(with_gradients, implementation)
    precision = "DEFAULT" if dtype == "bfloat16" and implementation != "reference" else "HIGHEST"
    assert products(lambda *x: run(*x, cotangent, None), *inputs) == {(precision, "float32")}


@pytest.mark.parametrize("implementation", EVERY)
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
    with pytest.raises(ValueError, match="unknown implementation 'flash'; choose one of 'default', 'reference'"):
        unchecked(x, x, x, implementation="flash")


def test_the_blockwise_program_never_holds_all_scores():
    query, key, value, cotangent = arrays(7, length=12)
    run = partial(with_gradients, "blockwise")
    program = str(jax.make_jaxpr(lambda *x: run(*x, None))(query, key, value, cotangent))
    assert "2,2,2,3,3]" in program
    assert "12,12]" not in program


def test_long_rows_are_attended_in_blocks_by_default(monkeypatch):
    monkeypatch.setattr(attention, "LONG", 6)
    monkeypatch.setattr(attention, "_folded", None)
    query, key, value, _ = arrays(8)
    np.testing.assert_allclose(attend("default", query, key, value), plain_attention(query, key, value), atol=1e-5)


def test_rows_that_are_just_not_long_keep_all_probabilities_by_default(monkeypatch):
    monkeypatch.setattr(attention, "LONG", 7)
    monkeypatch.setattr(attention, "blockwise_attention", None)
    query, key, value, _ = arrays(8)
    np.testing.assert_allclose(attend("default", query, key, value), plain_attention(query, key, value), atol=1e-5)


@pytest.mark.parametrize("block", [1, 2, 3])
def test_only_blocks_that_hold_something_to_see_are_computed(block):
    blocks = range(4)
    for window in (None, *range(1, 4 * block + 2)):
        reach = {
            (i, j): bool(attention_blockwise.in_reach(jnp.int32(i), jnp.int32(j), block, window).any())
            for i in blocks
            for j in blocks
        }
        for one in blocks:
            seen = [j for j in blocks if reach[one, j]]
            assert seen == list(range(int(attention_blockwise.first_seen(jnp.int32(one), block, window)), one + 1))
            end = int(attention_blockwise._end_seeing(jnp.int32(one), len(blocks), block, window))
            assert [i for i in blocks if reach[i, one]] == list(range(one, end))


@pytest.mark.parametrize(("window", "forward"), [(None, 10), (3, 7)])
def test_each_pair_of_blocks_is_computed_once_in_each_direction(monkeypatch, window, forward):
    computed, scores = [], attention_blockwise._scores

    def counted(sequences, i, j, window):
        jax.debug.callback(lambda *pair: computed.append(tuple(map(int, pair))), i, j)
        return scores(sequences, i, j, window)

    monkeypatch.setattr(attention_blockwise, "_scores", counted)
    query, key, value, _ = arrays(11, batch=1, length=11)
    attended = partial(causal_attention, window=window, implementation="blockwise")
    jax.block_until_ready(jax.jit(attended)(query, key, value))
    jax.effects_barrier()
    assert len(computed) == len(set(computed)) == forward
    pairs = computed.copy()
    jax.block_until_ready(jax.jit(jax.grad(lambda *x: attended(*x).sum(), (0, 1, 2)))(query, key, value))
    jax.effects_barrier()
    assert sorted(computed) == sorted(3 * pairs)


def test_kernels_for_another_device_refuse_to_run():
    x = jnp.zeros((1, 128, 2, 128))
    with pytest.raises(ValueError, match="'splash' cannot run here: it is written for TPUs, and this program is for a"):
        causal_attention(x, x, x, implementation="splash")


def test_tokamax_refuses_to_run_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(attention_libraries, "find_spec", lambda name: None)
    x = jnp.zeros((1, 4, 2, 2))
    with pytest.raises(ValueError, match="'tokamax' cannot run here: tokamax is not installed: pip install tokamax"):
        causal_attention(x, x, x, implementation="tokamax")


@pytest.mark.parametrize(
    ("length", "window", "reason"),
    [
        (100, None, "multiples of 128, and they are 100 and 128"),
        (128, jnp.int32(3), "its window must be a number known when the program is traced"),
        (128, None, "it rounds the factors of fp32 products to bf16"),
    ],
)
def test_what_does_not_suit_the_kernel_for_tpus_falls_back_and_says_why(monkeypatch, length, window, reason):
    device = jax.sharding.AbstractDevice(device_kind="TPU v5", num_cores=None, platform="tpu")
    monkeypatch.setattr(implementations, "target_device", lambda array: device)
    x = jnp.ones((1, length, 1, 128))
    with pytest.warns(implementations.FallbackWarning, match=f"'folded' runs instead of 'splash', .*{reason}"):
        found = causal_attention(x, x, x, window=window)
    np.testing.assert_allclose(found, x, rtol=1e-5)


def test_tokamax_is_told_of_segments_and_of_what_lies_before_the_token(monkeypatch):
    def dot_product_attention(query, key, value, *, mask, is_causal, local_window_size, precision):
        assert is_causal
        assert precision is jax.lax.Precision.HIGHEST
        assert local_window_size == (2, 0)
        distance = jnp.arange(7)[:, None] - jnp.arange(7)[None]
        seen = mask & (distance >= 0) & (distance <= 2)
        return jax.nn.dot_product_attention(query, key, value, mask=seen)

    library = SimpleNamespace(dot_product_attention=dot_product_attention)
    monkeypatch.setattr(attention_libraries, "find_spec", lambda name: True)
    monkeypatch.setattr(attention_libraries, "import_module", lambda name: library)
    query, key, value, _ = arrays(9)
    segments = jnp.array([[0, 0, 0, 1, 1, 2, 2], [5, 5, 5, 5, 5, 5, 5]])
    found = causal_attention(query, key, value, segments, window=3, implementation="tokamax")
    np.testing.assert_allclose(found, plain_attention(query, key, value, segments, 3), atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("window", [None, 1, 40, 500])
@pytest.mark.parametrize("packed", [False, True])
def test_splash_attention_equals_the_reference(packed, window):
    query, key, value, _ = arrays(10, batch=1, length=128, key_value_heads=1, head_size=128)
    segments = jnp.arange(128)[None] // 50 if packed else None
    found = attention_libraries.splash_attention(query, key, value, segments, window, interpret=True)
    wanted = attend("reference", query, key, value, segments, window)
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.parametrize("topology", TPUS)
@on_compilers
def test_splash_attention_compiles_at_real_sizes(topology):
    mesh = jax.make_mesh((1,), ("data",), (AxisType.Explicit,), devices=absent_devices(topology)[:1])
    here = jax.NamedSharding(mesh, P())
    query = jax.ShapeDtypeStruct((1, 4096, 16, 128), jnp.bfloat16, sharding=here)
    key = jax.ShapeDtypeStruct((1, 4096, 4, 128), jnp.bfloat16, sharding=here)

    def loss(query, key, value):
        return causal_attention(query, key, value, window=1024).astype(jnp.float32).sum()

    with jax.set_mesh(mesh):
        compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(query, key, key).compile()
    assert compiled.as_text().count('custom_call_target="tpu_custom_call"') == 3
