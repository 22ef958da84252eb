"""A document is a text with a name; a corpus is a file of documents with a licence."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import attrs

from marin_dsl import File, context, encodable

_KEYS = ("id", "source", "text")


class DocumentsDamaged(ValueError):
    """A file of documents is not what a corpus says it is; the message names the line."""


@encodable
@attrs.frozen
class Document:
    """One text.

    Attributes:
        id: digest of the text, see `document_id`; equal texts have equal ids.
        text: Unicode text without lone surrogates.
        source: where the text came from, in words that mean the same on every machine (`asyncio/tasks.py`).
    """

    id: str
    text: str
    source: str

    @classmethod
    def of(cls, text: str, source: str) -> "Document":
        """The document whose id follows from its text."""
        return cls(document_id(text), text, source)


@encodable
@attrs.frozen
class Corpus:
    """Documents of one domain under one licence.

    Attributes:
        name: the domain, a short word that figures and tables show.
        licence: SPDX licence expression of the texts.
        attribution: whom to credit, in one sentence.
        documents: JSON Lines in UTF-8, one document a line with the keys `id`, `source` and `text`.
        count: number of documents.
        bytes: total length of the texts in UTF-8 bytes.
    """

    name: str
    licence: str
    attribution: str
    documents: File
    count: int
    bytes: int

    def read(self) -> Iterator[Document]:
        """The documents, in the order of the file.

        Raises:
            DocumentsDamaged: a line cannot be read, or there are fewer or more documents or bytes than recorded.
        """
        count = size = 0
        for document in read_documents(self.documents.path):
            count, size = count + 1, size + len(document.text.encode())
            yield document
        if (count, size) != (self.count, self.bytes):
            raise DocumentsDamaged(
                f"corpus {self.name!r}: found {count} documents of {size} bytes in {self.documents.path}, expected "
                f"{self.count} of {self.bytes}; the file was changed or cut: evaluate the corpus again"
            )

    def holding(self, documents: Iterable[Document]) -> "Corpus":
        """A corpus with this one's name, licence and attribution that holds other documents."""
        return write_corpus(documents, name=self.name, licence=self.licence, attribution=self.attribution)


def document_id(text: str) -> str:
    """The first 32 hexadecimal digits (128 bits) of the SHA-256 of the text in UTF-8.

    Raises:
        ValueError: the text holds a lone surrogate.
    """
    return hashlib.sha256(_utf8(text, "a document")).hexdigest()[:32]


def write_corpus(documents: Iterable[Document], *, name: str, licence: str, attribution: str) -> Corpus:
    """Write documents into a new file of the running operator's scratch folder.

    Raises:
        ValueError: a text holds a lone surrogate.
    """
    folder = context().scratch
    path = folder / f"documents-{sum(1 for _ in folder.glob('documents-*'))}.jsonl"
    count, size = write_documents(path, documents)
    return Corpus(name, licence, attribution, File.of(path), count, size)


def write_documents(path: str | PathLike[str], documents: Iterable[Document]) -> tuple[int, int]:
    """Write documents as JSON Lines; equal documents give equal bytes.

    Returns:
        Number of documents and their total length in UTF-8 bytes.

    Raises:
        ValueError: a text holds a lone surrogate.
    """
    count = size = 0
    with Path(path).open("wb") as file:
        for document in documents:
            count, size = count + 1, size + len(_utf8(document.text, document.source))
            line = json.dumps(attrs.asdict(document), ensure_ascii=False, sort_keys=True)
            file.write(line.encode() + b"\n")
    return count, size


def read_documents(path: str | PathLike[str]) -> Iterator[Document]:
    """Read documents one by one.

    Raises:
        DocumentsDamaged: a line is not a document; the message names file, line and reason.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield _document(line, f"{path} line {number}")


def _document(line: bytes, where: str) -> Document:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise _damaged(where, f"not JSON in UTF-8 ({error})") from None
    if not isinstance(record, dict) or sorted(record) != sorted(_KEYS):
        raise _damaged(where, f"found {_shape(record)}")
    wrong = [key for key in _KEYS if not isinstance(record[key], str)]
    if wrong:
        raise _damaged(where, f"{wrong[0]!r} is {record[wrong[0]]!r}, not a string")
    return Document(**record)


def _shape(record: Any) -> str:
    return f"the keys {sorted(record)}" if isinstance(record, dict) else f"a JSON {type(record).__name__}"


def _damaged(where: str, found: str) -> DocumentsDamaged:
    return DocumentsDamaged(
        f"{where}: {found}; expected one JSON object with the strings 'id', 'source' and 'text'. "
        "The file was changed or cut: evaluate the corpus again"
    )


def _utf8(text: str, source: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{source}: character {error.start} is the lone surrogate {text[error.start]!r}, not Unicode text; "
            "read the source with errors='replace'"
        ) from None
