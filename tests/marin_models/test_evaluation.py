import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import ROUTED, TINY, tiny_model

from marin_models import MixtureOfExpertsConfig, document_bits, flatten, unflatten
from marin_models.evaluation import held_out_windows, scored_windows, window_loss
from marin_models.parameters import abstract_model, check_bias

PARAMETERS = {name: value * 3 for name, value in flatten(tiny_model()).items()}
DOCUMENTS = [np.random.default_rng(n).integers(0, 17, n).astype(np.uint16) for n in (5, 0, 23, 1, 8)]


def bits(documents=DOCUMENTS, **arguments):
    return document_bits(TINY, PARAMETERS, documents, **{"length": 6, "batch": 4, **arguments})


@st.composite
def cuts(draw):
    length = draw(st.integers(1, 9))
    stride = draw(st.integers(1, length))
    sizes = draw(st.lists(st.integers(0, 40), max_size=4))
    return length, stride, sizes, draw(st.sampled_from([None, 99]))


@given(cuts())
def test_every_token_is_scored_once_with_as_much_context_as_promised(cut):
    length, stride, sizes, start = cut
    documents = [np.arange(size) for size in sizes]
    work = scored_windows(documents, length=length, stride=stride, start_token=start)
    seen = [[] for _ in sizes]
    for window, scored, owner in zip(*work, strict=True):
        for position in np.flatnonzero(scored):
            token = window[position + 1]
            seen[owner].append(token)
            context = window[: position + 1]
            whole = [99, *range(token)] if start is not None else list(range(token))
            assert context.tolist() == whole[len(whole) - len(context) :]
            assert len(context) >= min(len(whole), length - stride + 1)
    first = 0 if start is not None else 1
    assert seen == [list(range(first, size)) for size in sizes]


def test_documents_are_scored_with_the_bias_of_the_routers_in_force():
    config = attrs.evolve(TINY, layers=1, mixture=MixtureOfExpertsConfig(experts=3, top_k=1, inner=6))
    random = np.random.default_rng(0)
    model = jax.tree.map(lambda leaf: random.standard_normal(leaf.shape, np.float32), abstract_model(config))
    document, bias = random.integers(0, 17, 7).astype(np.uint16), jnp.array([[2.0, 0.0, -2.0]])
    found = document_bits(config, flatten(model), [document], length=6, batch=4, bias=bias)
    nats = 6 * window_loss(model, document[None].astype(np.int32), bias=bias, batch=4)
    np.testing.assert_allclose(found, [np.log2(17) + nats / np.log(2)], rtol=1e-6)
    assert abs(found - document_bits(config, flatten(model), [document], length=6, batch=4, bias=0 * bias)) > 0.01


def plain_bits(document, length, stride, start):
    model = unflatten(TINY, PARAMETERS)
    text = [start, *document] if start is not None else list(document)
    total = np.log2(17) if start is None and len(document) else 0.0
    scored_until = 0
    for target in range(1, len(text)):
        if target - 1 >= scored_until + (stride if scored_until else length):
            scored_until += stride if scored_until else length
        begin = max(0, scored_until + stride - length) if scored_until else 0
        padded = np.zeros(length, np.int32)
        padded[: target - begin] = text[begin:target]
        logits = np.asarray(forward(model, padded[None])[0, target - begin - 1], np.float64)
        total += (np.log(np.exp(logits).sum()) - logits[text[target]]) / np.log(2)
    return total


@jax.jit
def forward(model, tokens):
    return model(tokens)


@pytest.mark.parametrize("stride", [None, 2, 6])
@pytest.mark.parametrize("start", [None, 16])
def test_bits_are_those_of_the_plain_forward_pass(stride, start):
    wanted = [plain_bits(document, 6, stride or 3, start) for document in DOCUMENTS]
    np.testing.assert_allclose(bits(stride=stride, start_token=start), wanted, rtol=1e-4)


def test_bits_do_not_depend_on_the_other_documents_or_on_the_batch():
    alone = [bits([document])[0] for document in DOCUMENTS]
    np.testing.assert_allclose(bits(), alone, rtol=1e-5)
    np.testing.assert_allclose(bits(batch=3), alone, rtol=1e-5)


def test_an_empty_document_costs_nothing_and_a_single_token_the_uniform_price():
    np.testing.assert_allclose(bits()[[1, 3]], [0, np.log2(17)])
    assert bits([]).shape == (0,)


def test_the_check_is_called_for_every_batch():
    calls = []
    bits(check=lambda: calls.append(None))
    assert len(calls) >= 2


@pytest.mark.parametrize("stride", [0, 7])
def test_a_stride_that_would_miss_tokens_is_refused(stride):
    with pytest.raises(ValueError, match=f"stride {stride} must be from 1 to length 6"):
        bits(stride=stride)


def test_a_token_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="token 17 is outside the model's vocabulary of 17; encode the documents with"):
        bits([np.array([1, 17])])
    with pytest.raises(ValueError, match="token -1 is outside the model's vocabulary of 17; encode the documents with"):
        bits([np.array([1, -1])])
    with pytest.raises(ValueError, match="token 17 is outside the model's vocabulary of 17"):
        bits(start_token=17)


def test_a_bias_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"document_bits: bias has shape \(1, 4\); expected none: the model has no"):
        bits(bias=np.zeros((1, 4), np.float32))
    with pytest.raises(ValueError, match=r"generate: bias has shape \(1, 4\); expected \(2, 4\), a row for each rou"):
        check_bias("generate", ROUTED, (1, 4))


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(ValueError, match="batch 0 must be at least 1, the windows that are scored at once"):
        bits(batch=0)


def test_held_out_windows_are_spread_over_the_stream_and_the_same_each_time():
    stream = np.arange(100).astype(np.uint16)
    found = held_out_windows(stream, length=9, windows=4)
    assert found[:, 0].tolist() == [0, 30, 60, 90]
    assert (np.diff(found, axis=1) == 1).all()
    assert len(held_out_windows(stream, length=9, windows=1000)) == 11
    assert held_out_windows(stream, length=99, windows=5).tolist() == [list(range(100))]
    with pytest.raises(
        ValueError, match=r"holds 101 tokens .length . 1., but the held-out stream has 100; use a shorter"
    ):
        held_out_windows(stream, length=100, windows=1)


def test_the_loss_of_windows_is_the_mean_over_their_predictions_whatever_the_batch():
    tokens = held_out_windows(np.arange(60) % 17, length=6, windows=5)
    logits = np.asarray(tiny_model()(jnp.asarray(tokens[:, :-1])), np.float64)
    chosen = np.take_along_axis(logits, tokens[:, 1:, None].astype(int), axis=-1)[..., 0]
    wanted = np.mean(np.log(np.exp(logits).sum(-1)) - chosen)
    np.testing.assert_allclose(window_loss(tiny_model(), tokens, batch=4), wanted, rtol=1e-5)
    np.testing.assert_allclose(window_loss(tiny_model(), tokens, batch=32), wanted, rtol=1e-5)
