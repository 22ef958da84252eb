from collections.abc import Callable, Iterable

import pytest

from library.documents import Corpus, Document, write_corpus


@pytest.fixture(scope="session")
def corpus_of() -> Callable[..., Corpus]:
    """Makes a corpus of texts (whose sources are their positions) or of documents."""

    def make(texts: Iterable[str | Document], name: str = "words") -> Corpus:
        documents = [
            text if isinstance(text, Document) else Document.of(text, f"text/{number:03}")
            for number, text in enumerate(texts)
        ]
        return write_corpus(documents, name=name, licence="CC0-1.0", attribution="nobody")

    return make


@pytest.fixture(scope="session")
def prose() -> list[str]:
    """Forty texts of different lengths with words that repeat."""
    sentence = "the state of the union is strong and the language of the people is plain"
    words = sentence.split()
    return [" ".join(words[(n * 7 + k * k) % len(words)] for k in range(5 + n)) + f" {n}\n" for n in range(40)]
