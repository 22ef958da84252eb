"""The beginnings of documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from library.excerpts import beginning, excerpts


@given(st.text(), st.integers(4, 40))
def test_a_beginning_is_the_longest_prefix_that_fits(text, limit):
    found = beginning(text, limit)
    assert text.startswith(found)
    assert len(found.encode()) <= limit
    assert found == text or len(text[: len(found) + 1].encode()) > limit


def test_documents_keep_their_order_and_source_and_lose_what_is_too_long(corpus_of):
    corpus = corpus_of(["short", "a long text", "naïve"])
    found = excerpts.function(corpus, bytes_per_document=6)
    assert [document.text for document in found.read()] == ["short", "a long", "naïve"]
    assert [document.source for document in found.read()] == [document.source for document in corpus.read()]
    assert (found.count, found.bytes) == (3, 17)


def test_a_limit_that_cannot_hold_a_character_is_refused(corpus_of):
    with pytest.raises(ValueError, match=r"bytes_per_document=3; expected at least 4, the longest UTF-8 character"):
        excerpts.function(corpus_of(["text"]), bytes_per_document=3)
