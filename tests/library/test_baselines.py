import lzma
import math
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from library.baselines import (
    bigram_bits,
    byte_pair_counts,
    document_bytes,
    lzma_bits,
    uniform_bits,
    unigram_bits,
    zlib_bits,
)

texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=5)


@given(texts)
def test_uniform_costs_eight_bits_a_byte(corpus_of, given_texts):
    corpus = corpus_of(given_texts)
    lengths = document_bytes.function(corpus)
    assert lengths.tolist() == [len(text.encode()) for text in given_texts]
    assert lengths.dtype == np.int64
    assert uniform_bits.function(corpus).tolist() == (8.0 * lengths).tolist()


@given(texts)
def test_counts_hold_each_byte_once_and_each_documents_first_byte_in_the_last_row(corpus_of, given_texts):
    corpus = corpus_of(given_texts)
    counts = byte_pair_counts.function([corpus])
    assert counts.shape == (257, 256)
    assert counts.sum() == corpus.bytes
    assert counts[256].sum() == sum(1 for text in given_texts if text)
    assert counts.sum(axis=0).tolist() == np.bincount(list("".join(given_texts).encode()), minlength=256).tolist()


@given(texts, texts)
def test_counts_of_several_corpora_add_up(corpus_of, one, other):
    together = byte_pair_counts.function([corpus_of(one), corpus_of(other)])
    apart = [byte_pair_counts.function([corpus_of(given_texts)]) for given_texts in (one, other)]
    assert (together == apart[0] + apart[1]).all()


def test_unigram_and_bigram_costs_are_those_worked_out_by_hand(corpus_of):
    counts = byte_pair_counts.function([corpus_of(["aab"])])
    unigram = unigram_bits.function(counts, corpus_of(["ab"]), alpha=1.0)
    assert unigram.tolist() == pytest.approx([-math.log2(3 / 259) - math.log2(2 / 259)])
    bigram = bigram_bits.function(counts, corpus_of(["ab"]), alpha=1.0)
    assert bigram.tolist() == pytest.approx([-math.log2(2 / 257) - math.log2(2 / 258)])


@given(texts, st.floats(1e-3, 10))
def test_smoothed_frequencies_are_probabilities(corpus_of, given_texts, alpha):
    counts = byte_pair_counts.function([corpus_of(given_texts)])
    singles = corpus_of([chr(value) for value in range(128)])
    spent = np.exp2(-unigram_bits.function(counts, singles, alpha=alpha)).sum()
    unseen = (counts.sum(axis=0)[128:] + alpha).sum() / (counts.sum() + 256 * alpha)
    assert spent + unseen == pytest.approx(1)


def test_without_any_training_text_every_byte_costs_eight_bits(corpus_of):
    counts = byte_pair_counts.function([])
    corpus = corpus_of(["any text", "é"])
    for model in (unigram_bits, bigram_bits):
        assert model.function(counts, corpus).tolist() == pytest.approx(uniform_bits.function(corpus).tolist())


def test_on_prose_knowing_more_costs_less(corpus_of, prose):
    training, held_out = corpus_of(prose[::2]), corpus_of(prose[1::2])
    counts = byte_pair_counts.function([training])
    uniform, unigram, bigram = (
        uniform_bits.function(held_out).sum(),
        unigram_bits.function(counts, held_out).sum(),
        bigram_bits.function(counts, held_out).sum(),
    )
    assert bigram < 0.8 * unigram < 0.8 * uniform


def test_zlib_is_its_level_nine(corpus_of, prose):
    expected = [8 * len(zlib.compress(text.encode(), 9)) for text in prose]
    assert zlib_bits.function(corpus_of(prose)).tolist() == expected


def test_lzma_is_an_xz_file_at_its_strongest_preset_without_the_frame(corpus_of):
    texts = ["".join(f"line {pow(3, k, 10007)} of {n}\n" for k in range(3000)) for n in range(3)]
    strongest = [8 * len(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)) for text in texts]
    bits = lzma_bits.function(corpus_of(texts))
    for ours, file in zip(bits, strongest, strict=True):
        assert 8 * 40 < file - ours < 8 * 80


@pytest.mark.parametrize("bits", [uniform_bits, zlib_bits, lzma_bits])
def test_every_document_has_one_cost_in_the_order_of_the_corpus(corpus_of, prose, bits):
    whole = bits.function(corpus_of(prose))
    assert (whole.shape, whole.dtype) == ((40,), np.float64)
    assert whole.tolist() == [bits.function(corpus_of([text]))[0] for text in prose]


def test_an_empty_document_costs_nothing_under_the_models(corpus_of):
    counts = byte_pair_counts.function([corpus_of(["abc"])])
    for model in (unigram_bits, bigram_bits):
        assert model.function(counts, corpus_of([""])).tolist() == [0.0]


@pytest.mark.parametrize("model", [unigram_bits, bigram_bits])
@pytest.mark.parametrize("alpha", [0, -1.0, float("nan")])
def test_smoothing_must_be_positive(corpus_of, model, alpha):
    with pytest.raises(ValueError, match=f"alpha={alpha}; expected a positive number, such as 0.1"):
        model.function(byte_pair_counts.function([]), corpus_of(["a"]), alpha=alpha)


@pytest.mark.parametrize("model", [unigram_bits, bigram_bits])
def test_counts_of_another_shape_are_refused(corpus_of, model):
    with pytest.raises(ValueError, match=r"counts of shape \(256, 256\); expected \(257, 256\)"):
        model.function(np.zeros((256, 256)), corpus_of(["a"]))
