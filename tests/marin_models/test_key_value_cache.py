import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import TINY

from marin_models import MixtureOfExpertsConfig
from marin_models.key_value_cache import empty_caches, enlarged, extend
from marin_models.parameters import abstract_model

CAPACITY = 16


SPECIAL = attrs.evolve(
    TINY,
    layers=3,
    window=3,
    local_to_global=(1, 1),
    rotary_fraction=0.5,
    qk_norm="projection",
    attention_bias=True,
    attention_gate=True,
    norm_gate=2,
    dense_layers=1,
    mixture=MixtureOfExpertsConfig(experts=5, top_k=2, inner=6, shared_inner=6),
)
BIAS = np.random.default_rng(1).standard_normal((2, 5)).astype(np.float32)


def random_model(config):
    """Numbers everywhere, so that no term hides behind a one or a zero."""
    random = np.random.default_rng(5)
    return jax.tree.map(lambda leaf: 0.4 * random.standard_normal(leaf.shape, np.float32), abstract_model(config))


@functools.cache
def model():
    return random_model(TINY)


def tokens(length=12, batch=2):
    return np.random.default_rng(0).integers(0, TINY.vocabulary, (batch, length)).astype(np.int32)


@jax.jit
def whole(model, tokens, bias=None):
    return model.hidden(tokens, bias=bias)


step = jax.jit(extend)


def assert_close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("pieces", [(12,), (5, 1, 1, 5)], ids=str)
def test_hidden_states_equal_those_of_the_whole_text_however_it_is_cut(pieces):
    text, cache, read = tokens(), empty_caches(model(), 2, CAPACITY), []
    for piece in pieces:
        begin = sum(part.shape[1] for part in read)
        hidden, cache = step(model(), cache, text[:, begin : begin + piece], jnp.full(2, begin))
        read.append(hidden)
    assert_close(np.concatenate(read, 1), whole(model(), text))


def test_windows_partial_rotation_gates_and_routed_experts_are_those_of_the_forward_pass():
    special, text, read = random_model(SPECIAL), tokens(), []
    cache = empty_caches(special, 2, CAPACITY)
    for begin, end in [(0, 4), (4, 8), (8, 12)]:
        hidden, cache = step(special, cache, text[:, begin:end], jnp.full(2, begin), bias=BIAS)
        read.append(hidden)
    assert_close(np.concatenate(read, 1), whole(special, text, BIAS))


def test_rows_stand_at_positions_of_their_own_and_padding_is_never_seen():
    text, lengths = tokens(), np.array([3, 7], np.int32)
    padded = np.where(np.arange(12) < lengths[:, None], text, 5).astype(np.int32)
    _, cache = step(model(), empty_caches(model(), 2, CAPACITY), padded, jnp.zeros(2, int))
    for _ in range(5):
        hidden, cache = step(model(), cache, text[np.arange(2), lengths][:, None], jnp.asarray(lengths))
        wanted = whole(model(), text)[np.arange(2), lengths]
        assert_close(hidden[:, 0], wanted)
        lengths = lengths + 1


def test_an_enlarged_cache_goes_on_where_it_was():
    text = tokens()
    _, cache = step(model(), empty_caches(model(), 2, 8), text[:, :5], jnp.zeros(2, int))
    hidden, _ = step(model(), enlarged(cache, CAPACITY), text[:, 5:6], jnp.full(2, 5))
    assert_close(hidden, whole(model(), text)[:, 5:6])
