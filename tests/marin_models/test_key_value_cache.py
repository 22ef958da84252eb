import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import TINY, tiny_model

from marin_models.key_value_cache import empty_cache, enlarged, extend

CAPACITY = 16


def model():
    return jax.tree.map(lambda leaf: leaf * 3, tiny_model(seed=2))


SPECIAL = attrs.evolve(
    TINY,
    layers=5,
    window=3,
    local_to_global=(1, 1),
    rotary_fraction=0.5,
    qk_norm="projection",
    attention_bias=True,
    attention_gate=True,
    norm_gate=2,
)


def perturbed(model, seed=5):
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + 0.3 * random.standard_normal(leaf.shape, np.float32), model)


def tokens(length=12, batch=2):
    return np.random.default_rng(0).integers(0, TINY.vocabulary, (batch, length)).astype(np.int32)


@jax.jit
def whole(model, tokens):
    return model.hidden(tokens)


step = jax.jit(extend)


def assert_close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("pieces", [(12,), (1,) * 12, (5, 1, 1, 5)], ids=str)
def test_hidden_states_equal_those_of_the_whole_text_however_it_is_cut(pieces):
    text, cache, read = tokens(), empty_cache(TINY, 2, CAPACITY), []
    for piece in pieces:
        begin = sum(part.shape[1] for part in read)
        hidden, cache = step(model(), cache, text[:, begin : begin + piece], jnp.full(2, begin))
        read.append(hidden)
    assert_close(np.concatenate(read, 1), whole(model(), text))


def test_windows_partial_rotation_biases_and_gates_are_those_of_the_forward_pass():
    special, text, cache, read = perturbed(tiny_model(config=SPECIAL)), tokens(), empty_cache(SPECIAL, 2, CAPACITY), []
    for begin, end in [(0, 7), (7, 8), (8, 9), (9, 10), (10, 11), (11, 12)]:
        hidden, cache = step(special, cache, text[:, begin:end], jnp.full(2, begin))
        read.append(hidden)
    assert_close(np.concatenate(read, 1), whole(special, text))


def test_rows_stand_at_positions_of_their_own_and_padding_is_never_seen():
    text, lengths = tokens(), np.array([3, 7], np.int32)
    padded = np.where(np.arange(12) < lengths[:, None], text, 5).astype(np.int32)
    _, cache = step(model(), empty_cache(TINY, 2, CAPACITY), padded, jnp.zeros(2, int))
    for _ in range(5):
        hidden, cache = step(model(), cache, text[np.arange(2), lengths][:, None], jnp.asarray(lengths))
        wanted = whole(model(), text)[np.arange(2), lengths]
        assert_close(hidden[:, 0], wanted)
        lengths = lengths + 1


def test_an_enlarged_cache_goes_on_where_it_was():
    text = tokens()
    _, cache = step(model(), empty_cache(TINY, 2, 8), text[:, :8], jnp.zeros(2, int))
    hidden, _ = step(model(), enlarged(cache, CAPACITY), text[:, 8:], jnp.full(2, 8))
    assert_close(hidden, whole(model(), text)[:, 8:])
