"""Rows move bit by bit: to their experts, back, and so do gradients, whichever transport moves them.

What experts compute is exact here, so that nothing but the movement could change a bit.
"""

from unittest import mock

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from interpreted import complaints, interpreted
from routed_cases import TRANSPORTS, mesh_of, padding_of, run
from simulated_devices import on_devices

from marin_kernels.expert_parallel import Experts, Routing, moe

EXPERTS = 8
DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
BITS = {"float32": np.uint32, "bfloat16": np.uint16}
SPECIAL = {
    "float32": [0x7FA00001, 0x7FC12345, 0xFFC00001, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001, 0x807FFFFF],
    "bfloat16": [0x7FC0, 0xFFC0, 0x8001, 0x7F80, 0xFF80, 0x8000, 0x0001, 0x8055],
}
"""NaNs with payloads, one of them signalling; infinities; minus zero; subnormal numbers.

In bf16 NaNs have no payload but their sign: on CPUs XLA makes selections and concatenations of bf16 by way of fp32.
"""


def one_or_two_experts(tokens, padded, seed=0):
    """Half of the tokens go to one expert, with weight 1; the others to two, on different shards, with weight 1/2."""
    random = np.random.default_rng(seed)
    first = random.integers(0, EXPERTS, tokens)
    alone = random.random(tokens) < 0.5
    chosen = np.stack([first, np.where(alone, EXPERTS, (first + EXPERTS // 2) % EXPERTS)], axis=1).astype(np.int32)
    weights = np.stack([np.where(alone, 1, 0.5), np.where(alone, np.nan, 0.5)], axis=1).astype(np.float32)
    valid = np.ones(tokens, bool)
    valid[random.permutation(tokens)[:padded]] = False
    return valid, chosen, weights


def scales():
    """Of each expert, a power of two; those of the two experts of a token are equal."""
    return 2.0 ** (np.arange(EXPERTS) % (EXPERTS // 2) - 1)


def scaling_experts(width, dtype):
    """Experts that multiply by their scale, exactly, all tokens whose last channel is 1.

    The last channel opens all gates: silu(64) is 64 in every precision, and its derivative 1. Up is the identity.
    """
    gate, one = np.zeros((EXPERTS, width, width)), np.eye(width)
    gate[:, -1] = 64
    down = scales()[:, None, None] * one / 64
    return Experts(*(m.astype(DTYPES[dtype]) for m in (gate, np.broadcast_to(one, gate.shape), down)))


def scaled(dtype, tokens=72, width=8, padded=5):
    """A case of scaling experts, and what each token is multiplied by; zero for padding."""
    valid, chosen, weights = one_or_two_experts(tokens, padded)
    x = np.random.default_rng(1).standard_normal((tokens, width)).astype(DTYPES[dtype])
    x[:, -1] = 1
    factor = np.where(valid, scales()[chosen[:, 0]], 0).astype(np.float32)
    return padding_of(valid, x, chosen, weights, scaling_experts(width, dtype)), x, factor[:, None]


def assert_same_bits(result, expected, dtype):
    assert result.dtype == expected.dtype == DTYPES[dtype]
    np.testing.assert_array_equal(result.view(BITS[dtype]), expected.view(BITS[dtype]))


def assert_moved(result, x, factor, dtype):
    """Outputs are the tokens times powers of two, and gradients are the cotangents times them, bit by bit."""
    (y, _, (d_x, *_)), kind = result, DTYPES[dtype]
    cotangent = np.asarray(jnp.cos(jnp.arange(x.size, dtype=jnp.float32))).reshape(x.shape).astype(kind)
    assert_same_bits(y, np.where(factor == 0, 0, x * factor).astype(kind), dtype)
    expected = np.where(factor == 0, 0, cotangent * factor).astype(kind)
    # The last channel opens gates, and has their gradient, too.
    assert_same_bits(np.ascontiguousarray(d_x[:, :-1]), np.ascontiguousarray(expected[:, :-1]), dtype)


@on_devices(8)
def scaled_over(implementation, shards, dtype):
    case, x, factor = scaled(dtype)
    options = {"shards_per_host": min(2, shards)} if implementation == "hierarchical" else {}
    mesh = mesh_of(data=8 // shards, expert=shards)
    assert_moved(run(case, mesh, implementation=implementation, **options), x, factor, dtype)


SELECTED = [("ragged", 4, "bfloat16"), ("local", 1, "bfloat16")]
"""Outputs and gradients of these are looked at in every run of the tests; all others in the long one."""
ALL = [
    *((name, shards, dtype) for name in (*TRANSPORTS, "reference") for shards in (1, 2, 4, 8) for dtype in DTYPES),
    ("local", 1, "float32"),
]


@pytest.mark.parametrize(
    ("implementation", "shards", "dtype"),
    [*SELECTED, *(pytest.param(*case, marks=pytest.mark.long) for case in ALL if case not in SELECTED)],
)
def test_outputs_and_gradients_are_those_of_exact_experts(implementation, shards, dtype):
    scaled_over(implementation, shards, dtype)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["on_wait", "eager"])
@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("dtype", DTYPES)
@on_devices(4, NPROC="32")
def test_the_fused_kernel_moves_them_so_in_the_interpreter(dtype, shards, mode):
    case, x, factor = scaled(dtype, tokens=8 * shards, width=128, padded=3)
    with interpreted(mode) as told:
        result = run(case, mesh_of(expert=shards), implementation="fused_tpu")
    assert complaints(told) == []
    assert_moved(result, x, factor, dtype)


def special(dtype, tokens=72):
    """Tokens of special bits in half of their channels, then normal and infinite numbers and NaN; last their number."""
    random = np.random.default_rng(2)
    x = random.standard_normal((tokens, 16)).astype(DTYPES[dtype])
    x[:, 8:] = np.where(
        random.random((tokens, 8)) < 0.2, random.choice([np.inf, -np.inf, np.nan], (tokens, 8)), x[:, 8:]
    )
    x.view(BITS[dtype])[:, :8] = random.permuted(np.tile(np.array(SPECIAL[dtype], BITS[dtype]), (tokens, 1)), axis=1)
    x[:, -1] = 1 + np.arange(tokens)
    return x


def witness(x, dtype):
    """Experts that say by 1 which of the special bits arrived as they were, and hand on all other channels."""
    table = np.concatenate([np.zeros((1, x.shape[1]), BITS[dtype]), x.view(BITS[dtype])])

    def told(rows, *_):
        number = rows[..., -1].astype(jnp.int32)
        same = jax.lax.bitcast_convert_type(rows, BITS[dtype]) == jnp.asarray(table)[number]
        return jnp.concatenate([same[..., :8].astype(rows.dtype), rows[..., 8:]], axis=-1)

    return told


@on_devices(8)
def witnessed_over(implementation, shards, dtype):
    x = special(dtype)
    valid, chosen, weights = one_or_two_experts(len(x), padded=5)
    x[~valid] = np.nan
    case = (x, Routing(chosen, weights, valid), scaling_experts(16, dtype))
    options = {"shards_per_host": min(2, shards)} if implementation == "hierarchical" else {}
    told = witness(x, dtype)
    with (
        mock.patch("marin_kernels.expert_parallel.dispatch._feed_forward", return_value=told),
        mock.patch("marin_kernels.expert_parallel.fixed._feed_forward", told),
        jax.set_mesh(mesh_of(data=8 // shards, expert=shards)),
    ):
        program = jax.jit(lambda *case: moe(*case, implementation=implementation, **options)[0]).lower(*case)
        y = np.asarray(program.compile(compiler_options={"xla_backend_optimization_level": 0})(*case))
    np.testing.assert_array_equal(y[~valid], 0)
    np.testing.assert_array_equal(y[valid, :8], 1)
    np.testing.assert_array_equal(y[valid, 8:], x[valid, 8:])


WITNESSED = [(name, shards, dtype) for name in TRANSPORTS for shards in (2, 4, 8) for dtype in DTYPES]
QUICK = [(name, 4, "bfloat16") for name in TRANSPORTS[:-1]]  # the last one moves rows by the same lines as ring_dedup


@pytest.mark.parametrize(
    ("implementation", "shards", "dtype"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.long) for case in WITNESSED],
)
def test_payloads_signs_of_zero_and_subnormal_numbers_arrive_at_experts(implementation, shards, dtype):
    """On the way back they are weighted and added: there infinities and NaN stay such, and normal numbers the same."""
    witnessed_over(implementation, shards, dtype)


def test_a_row_that_lost_a_bit_is_seen():
    x = special("float32")
    told = np.asarray(witness(x, "float32")(jnp.asarray(x)))
    np.testing.assert_array_equal(told[:, :8], 1)
    changed = x.copy()
    changed.view(np.uint32)[3, 2] ^= 1
    told = np.asarray(witness(x, "float32")(jnp.asarray(changed)))
    assert np.argwhere(told[:, :8] == 0).tolist() == [[3, 2]]
