"""The beginnings of documents, so that evaluating a corpus costs the same for long documents as for short ones."""

from library.documents import Corpus, Document
from marin_dsl import op


@op
def excerpts(corpus: Corpus, *, bytes_per_document: int) -> Corpus:
    """Each document's first bytes, cut after a whole character.

    A document keeps its source; its id is that of the excerpt.

    Args:
        corpus: the documents.
        bytes_per_document: at most so many UTF-8 bytes of each, at least 4 (the longest character).

    Raises:
        ValueError: `bytes_per_document` is below 4.
    """
    if bytes_per_document < 4:
        raise ValueError(f"bytes_per_document={bytes_per_document}; expected at least 4, the longest UTF-8 character")
    return corpus.holding(
        Document.of(beginning(document.text, bytes_per_document), document.source) for document in corpus.read()
    )


def beginning(text: str, limit: int) -> str:
    """The longest beginning of a text that takes at most `limit` UTF-8 bytes.

    >>> beginning("naïve", 3)
    'na'
    """
    return text.encode()[:limit].decode(errors="ignore")
