import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from library.documents import Document, document_id
from library.normalization import normalize, normalize_text

texts = st.text(st.characters(codec="utf-8"))
spaced = st.text(st.sampled_from("aeé\u0301\u0327\ufeff \t\r\n\u00a0\f"), max_size=8)
documents = st.lists(st.builds(Document.of, spaced, st.sampled_from("xyz")), max_size=8)


class Backwards:
    """Shuffles by turning round."""

    def sample(self, population, size):
        return population[::-1]


@given(texts | spaced)
def test_normalising_twice_is_normalising_once(text):
    assert normalize_text(normalize_text(text)) == normalize_text(text)


@given(texts | spaced)
def test_a_normalised_text_is_in_nfc_with_one_newline_at_the_end_and_no_blank_before_one(text):
    normalized = normalize_text(text)
    assert unicodedata.is_normalized("NFC", normalized)
    assert "\r" not in normalized
    assert " \n" not in normalized
    assert "\t\n" not in normalized
    assert normalized == "" or (normalized.endswith("\n") and not normalized.endswith("\n\n"))


@given(texts)
def test_nothing_but_white_space_and_marks_is_lost(text):
    def essence(value):
        return "".join(unicodedata.normalize("NFC", value.lstrip("\ufeff")).split())

    assert essence(normalize_text(text)) == essence(text)


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("a\r\nb\rc", "a\nb\nc\n"),
        ("\ufeffa", "a\n"),
        ("e\u0301", "é\n"),
        ("  a  \n\tb\t \n\n\n", "  a\n\tb\n"),
        ("a\n\n\nb", "a\n\n\nb\n"),
        (" \n\t\r\n\u00a0", ""),
        ("", ""),
    ],
)
def test_examples_of_normalised_texts(text, normalized):
    assert normalize_text(text) == normalized


@given(documents)
def test_every_document_read_was_kept_or_dropped_for_a_reason(corpus_of, given_documents):
    corpus = corpus_of(given_documents)
    result = normalize.function(corpus)
    report = result.report
    normalized = [normalize_text(document.text) for document in given_documents]
    assert report.read == report.kept + report.empty + report.duplicate == len(given_documents)
    assert report.empty == normalized.count("")
    assert report.kept == result.corpus.count == len(set(normalized) - {""})
    assert (report.bytes_read, report.bytes_kept) == (corpus.bytes, result.corpus.bytes)
    assert 0 <= report.changed <= report.kept


@given(documents)
def test_the_result_is_sorted_by_ids_that_follow_from_the_texts(corpus_of, given_documents):
    kept = list(normalize.function(corpus_of(given_documents)).corpus.read())
    assert [document.id for document in kept] == sorted({document_id(document.text) for document in kept})


@example([Document.of("a", "x"), Document.of("a\n", "x")], Backwards())
@given(documents, st.randoms(use_true_random=False))
def test_the_order_of_the_documents_does_not_matter(corpus_of, given_documents, random):
    shuffled = random.sample(given_documents, len(given_documents))
    one, other = (normalize.function(corpus_of(order)) for order in (given_documents, shuffled))
    assert one.corpus.documents.path.read_bytes() == other.corpus.documents.path.read_bytes()
    assert one.report == other.report


@given(documents)
def test_normalising_a_normalised_corpus_changes_and_drops_nothing(corpus_of, given_documents):
    once = normalize.function(corpus_of(given_documents)).corpus
    twice = normalize.function(once)
    assert twice.corpus.documents.path.read_bytes() == once.documents.path.read_bytes()
    assert (twice.report.empty, twice.report.duplicate, twice.report.changed) == (0, 0, 0)


def test_of_duplicates_the_smallest_source_stays_and_the_rest_are_counted(corpus_of):
    texts = [Document.of("same ", "b"), Document.of("same", "a"), Document.of("other\n", "c"), Document.of(" ", "d")]
    result = normalize.function(corpus_of(texts))
    assert {document.source for document in result.corpus.read()} == {"a", "c"}
    assert (result.report.read, result.report.duplicate, result.report.empty, result.report.kept) == (4, 1, 1, 2)
    assert result.report.changed == 1
