"""What it costs to write a document without a neural network: the numbers that a model has to beat.

Every function gives bits per document, float64 of shape [documents] in the order of the corpus. The end of a document
is not counted. Divide the sum by that of `document_bytes` for bits per byte.
"""

import lzma
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from library.documents import Corpus
from marin_dsl import op

_START = 256  # the context of a document's first byte


@op
def document_bytes(corpus: Corpus) -> np.ndarray:
    """Length of each document in UTF-8 bytes, int64 of shape [documents]."""
    return np.array([len(document.text.encode()) for document in corpus.read()], np.int64)


@op
def byte_pair_counts(training: Sequence[Corpus]) -> np.ndarray:
    """How often each byte follows each byte, int64 of shape [257, 256]; row 256 counts the first bytes of documents."""
    counts = np.zeros((_START + 1) * 256, np.int64)
    for corpus in training:
        for document in corpus.read():
            counts += np.bincount(_pairs(document.text.encode()), minlength=counts.size)
    return counts.reshape(_START + 1, 256)


@op
def uniform_bits(corpus: Corpus) -> np.ndarray:
    """Eight bits for each byte: what knowing nothing costs."""
    return _bits(corpus, lambda data: 8.0 * len(data))


@op
def unigram_bits(counts: np.ndarray, corpus: Corpus, *, alpha: float = 0.1) -> np.ndarray:
    """Cost under the frequencies of single bytes.

    Args:
        counts: from `byte_pair_counts` of the training corpora.
        corpus: the documents to write.
        alpha: added to every count, so that a byte never seen has a finite cost.

    Raises:
        ValueError: `alpha` is not positive, or `counts` has another shape.
    """
    costs = _costs(_checked(counts).sum(axis=0), alpha)
    return _bits(corpus, lambda data: float(costs[np.frombuffer(data, np.uint8)].sum()))


@op
def bigram_bits(counts: np.ndarray, corpus: Corpus, *, alpha: float = 0.1) -> np.ndarray:
    """Cost under the frequencies of each byte after the byte before it; arguments as for `unigram_bits`.

    Raises:
        ValueError: `alpha` is not positive, or `counts` has another shape.
    """
    costs = _costs(_checked(counts), alpha).ravel()
    return _bits(corpus, lambda data: float(costs[_pairs(data)].sum()))


@op
def zlib_bits(corpus: Corpus) -> np.ndarray:
    """Size of each document alone under zlib at level 9, its six bytes of frame included."""
    return _bits(corpus, lambda data: 8.0 * len(zlib.compress(data, 9)))


@op
def lzma_bits(corpus: Corpus) -> np.ndarray:
    """Size of each document alone under LZMA2 at preset 9 extreme, as a raw stream without a frame."""
    return _bits(corpus, lambda data: 8.0 * len(_lzma(data)))


def _lzma(data: bytes) -> bytes:
    # A dictionary as large as the document finds all that a larger one would, and spares hundreds of megabytes.
    size = max(4096, len(data))
    chain = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": size}]
    return lzma.compress(data, format=lzma.FORMAT_RAW, filters=chain)


def _bits(corpus: Corpus, cost: Callable[[bytes], float]) -> np.ndarray:
    return np.array([cost(document.text.encode()) for document in corpus.read()], np.float64)


def _pairs(data: bytes) -> np.ndarray:
    """The index `256 * previous + byte` of each byte, int64 of shape [bytes]."""
    values = np.frombuffer(data, np.uint8).astype(np.int64)
    return np.concatenate([[_START], values])[:-1] * 256 + values


def _costs(counts: np.ndarray, alpha: float) -> np.ndarray:
    """-log2 of the smoothed frequencies along the last axis."""
    if not alpha > 0:
        raise ValueError(
            f"alpha={alpha}; expected a positive number, such as 0.1: a byte never seen would cost infinity"
        )
    smoothed = counts + alpha
    return np.log2(smoothed.sum(axis=-1, keepdims=True)) - np.log2(smoothed)


def _checked(counts: np.ndarray) -> np.ndarray:
    if counts.shape != (_START + 1, 256):
        raise ValueError(f"counts of shape {counts.shape}; expected (257, 256), as byte_pair_counts gives them")
    return counts
