"""One spelling for one text: normal form, newlines, trailing blanks; empties and exact duplicates leave, counted."""

import re
import unicodedata

import attrs

from library.documents import Corpus, Document
from marin_dsl import encodable, op

_NEWLINE = re.compile(r"\r\n?")
_TRAILING_BLANKS = re.compile(r"[ \t]+$", re.MULTILINE)


@encodable
@attrs.frozen
class NormalizationReport:
    """What normalisation did: `read == kept + empty + duplicate`.

    Attributes:
        read: documents that came in.
        kept: documents that went out.
        empty: documents dropped because they held nothing but white space.
        duplicate: documents dropped because another had the same normalised text.
        changed: kept documents whose text was altered.
        bytes_read: UTF-8 bytes that came in.
        bytes_kept: UTF-8 bytes that went out.
    """

    read: int
    kept: int
    empty: int
    duplicate: int
    changed: int
    bytes_read: int
    bytes_kept: int


@encodable
@attrs.frozen
class NormalizedCorpus:
    """A corpus of distinct, non-empty, normalised texts in the order of their ids, and what was dropped for it."""

    corpus: Corpus
    report: NormalizationReport


@op
def normalize(corpus: Corpus) -> NormalizedCorpus:
    """Normalise every document; drop empties and exact duplicates.

    The result does not depend on the order of the documents, and normalising it again changes nothing. Of
    duplicates the one with the smallest source stays.
    """
    originals = sorted(corpus.read(), key=lambda document: (document.source, document.text))
    normalized = [Document.of(normalize_text(document.text), document.source) for document in originals]
    kept: dict[str, tuple[Document, bool]] = {}
    for before, after in zip(originals, normalized, strict=True):
        if after.text:
            kept.setdefault(after.id, (after, after.text != before.text))
    result = corpus.holding(kept[key][0] for key in sorted(kept))
    empty = sum(1 for document in normalized if not document.text)
    report = NormalizationReport(
        read=corpus.count,
        kept=result.count,
        empty=empty,
        duplicate=corpus.count - result.count - empty,
        changed=sum(changed for _, changed in kept.values()),
        bytes_read=corpus.bytes,
        bytes_kept=result.bytes,
    )
    return NormalizedCorpus(result, report)


def normalize_text(text: str) -> str:
    r"""The text in NFC, without byte order mark and blanks at the ends of lines, ending in exactly one newline.

    Newlines become `\n`. A text of nothing but white space becomes the empty text.

    >>> normalize_text("e\u0301t\u00e9  \r\nfin\n\n")
    'été\nfin\n'
    """
    text = unicodedata.normalize("NFC", _NEWLINE.sub("\n", text.lstrip("\ufeff")))
    text = _TRAILING_BLANKS.sub("", text).rstrip("\n")
    return f"{text}\n" if text.strip() else ""
