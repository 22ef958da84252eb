"""Token ids of a corpus in memory-mapped files, with the borders of documents and a checksum of everything.

A token store is a folder:

    tokens.bin    ids, each document followed by the end-of-document id; little-endian uint16, or uint32 if need be
    offsets.bin   where each document starts, and the end of the last one; uint64 of shape [documents + 1]
    bytes.bin     length of each document's text in UTF-8 bytes; uint64 of shape [documents]
    ledger.json   schema, counts, tokenizer, and size and SHA-256 of each file; ends with the SHA-256 of itself
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from library.documents import Corpus, Document
from library.tokenizers import Tokenizer
from marin_dsl import Directory, context, encodable, op

SCHEMA = 1
_LEDGER = "ledger.json"
_KEYS = frozenset(
    ("schema", "tokens", "documents", "bytes", "vocabulary", "end_of_document", "tokenizer", "files", "sha256")
)
_ADVICE = "the store was changed or cut: run `marin verify` to find what else is damaged, and evaluate the tokens again"


class TokenStoreDamaged(Exception):
    """A token store is not what its ledger says it is; the message names the file, what it holds and what it should."""


@encodable
@attrs.frozen
class TokenStore:
    """The tokens of one corpus; `open_token_store` reads it.

    Attributes:
        name: of the corpus.
        files: the folder.
        documents: number of documents.
        tokens: number of ids, one end of document for each document included.
        bytes: total length of the texts in UTF-8 bytes.
        vocabulary: number of ids that may occur.
        end_of_document: the id after each document.
    """

    name: str
    files: Directory
    documents: int
    tokens: int
    bytes: int
    vocabulary: int
    end_of_document: int


@attrs.frozen(eq=False)
class OpenTokenStore:
    """A token store in memory-mapped arrays (read-only).

    Attributes:
        tokens: ids, uint16 or uint32 of shape [tokens].
        offsets: uint64 of shape [documents + 1]; document `i` is `tokens[offsets[i]:offsets[i + 1]]`.
        byte_lengths: UTF-8 bytes of each document's text, uint64 of shape [documents].
        ledger: the parsed `ledger.json`.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    byte_lengths: np.ndarray
    ledger: dict[str, Any]

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.byte_lengths)

    def document(self, index: int) -> np.ndarray:
        """Ids of one document, its end included.

        Raises:
            IndexError: there is no such document.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}; expected an index from 0 to {len(self) - 1}")
        return self.tokens[int(self.offsets[index]) : int(self.offsets[index + 1])]

    def documents(self) -> Iterator[np.ndarray]:
        """Ids of each document in turn."""
        return (self.document(index) for index in range(len(self)))


@op(pin=["tokenizers"])
def tokenize(corpus: Corpus, tokenizer: Tokenizer) -> TokenStore:
    """Encode a corpus document by document, in its order, each document followed by the end-of-document id."""
    folder = Path(tempfile.mkdtemp(dir=context().scratch)) / "tokens"  # an interrupted attempt may have left its own
    ledger = write_token_store(folder, _until_cancelled(corpus.read()), tokenizer)
    return TokenStore(
        name=corpus.name,
        files=Directory.of(folder),
        documents=ledger["documents"],
        tokens=ledger["tokens"],
        bytes=ledger["bytes"],
        vocabulary=tokenizer.vocabulary,
        end_of_document=tokenizer.end_of_document,
    )


def write_token_store(
    folder: str | PathLike[str], documents: Iterable[Document], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Write a token store into a new folder; equal documents and tokenizers give equal bytes.

    Returns:
        The ledger.

    Raises:
        FileExistsError: the folder exists.
    """
    folder = Path(folder)
    folder.mkdir(parents=True)
    lengths: list[int] = []
    offsets = [0]
    with (folder / "tokens.bin").open("wb") as file:
        for ids in tokenizer.encode_many(_texts(documents, lengths)):
            file.write(np.append(ids, tokenizer.end_of_document).astype(_dtype(tokenizer.vocabulary)).tobytes())
            offsets.append(offsets[-1] + len(ids) + 1)
    (folder / "offsets.bin").write_bytes(np.array(offsets, "<u8").tobytes())
    (folder / "bytes.bin").write_bytes(np.array(lengths, "<u8").tobytes())
    ledger = {
        "schema": SCHEMA,
        "tokens": offsets[-1],
        "documents": len(lengths),
        "bytes": sum(lengths),
        "vocabulary": tokenizer.vocabulary,
        "end_of_document": {"id": tokenizer.end_of_document, "policy": "after each document"},
        "tokenizer": {"kind": tokenizer.kind, "digest": tokenizer.model.digest if tokenizer.model else None},
        "files": {name: _fingerprint(folder / name) for name in ("tokens.bin", "offsets.bin", "bytes.bin")},
    }
    (folder / _LEDGER).write_bytes(_sealed(ledger))
    return ledger


def open_token_store(store: TokenStore | Directory | str | PathLike[str], *, verify: bool = True) -> OpenTokenStore:
    """Open a token store: the result of `tokenize`, its directory, or any folder that holds one.

    Args:
        store: what to open.
        verify: read everything once and compare checksums; otherwise only the ledger and the sizes are compared.

    Raises:
        TokenStoreDamaged: a file is missing, cut, longer than it should be, altered, or of a newer schema.
    """
    folder = _folder(store)
    ledger = _read_ledger(folder / _LEDGER)
    for name, expected in ledger["files"].items():
        _check_file(folder / name, expected, verify)
    tokens = _mapped(folder / "tokens.bin", _dtype(ledger["vocabulary"]), ledger["tokens"])
    offsets = _mapped(folder / "offsets.bin", "<u8", ledger["documents"] + 1)
    byte_lengths = _mapped(folder / "bytes.bin", "<u8", ledger["documents"])
    return OpenTokenStore(tokens, offsets, byte_lengths, ledger)


def _until_cancelled(documents: Iterable[Document]) -> Iterator[Document]:
    running = context()
    for document in documents:
        running.check()
        yield document


def _texts(documents: Iterable[Document], lengths: list[int]) -> Iterator[str]:
    for document in documents:
        lengths.append(len(document.text.encode()))
        yield document.text


def _dtype(vocabulary: int) -> str:
    return "<u2" if vocabulary <= 2**16 else "<u4"


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": digest}


def _canonical(ledger: dict[str, Any]) -> bytes:
    return json.dumps(ledger, sort_keys=True, indent=1).encode() + b"\n"


def _sealed(ledger: dict[str, Any]) -> bytes:
    """The ledger with its own checksum, in its only spelling."""
    body = {key: value for key, value in ledger.items() if key != "sha256"}
    return _canonical(body | {"sha256": hashlib.sha256(_canonical(body)).hexdigest()})


def _folder(store: TokenStore | Directory | str | PathLike[str]) -> Path:
    if isinstance(store, TokenStore):
        store = store.files
    return Path(store.path if isinstance(store, Directory) else store)


def _read_ledger(path: Path) -> dict[str, Any]:
    data = _read(path)
    try:
        ledger = json.loads(data)
    except ValueError as error:
        raise TokenStoreDamaged(f"{path}: found {len(data)} bytes that are not JSON ({error}); {_ADVICE}") from None
    schema = ledger.get("schema") if isinstance(ledger, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise TokenStoreDamaged(
            f"{path}: found schema {schema}, expected at most {SCHEMA}: a newer version wrote this store; "
            "upgrade marin-dsl, or evaluate the tokens again with this version"
        )
    if not isinstance(ledger, dict) or ledger.keys() != _KEYS or _sealed(ledger) != data:
        raise TokenStoreDamaged(f"{path}: found contents that differ from the checksum in its last line; {_ADVICE}")
    return ledger


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise TokenStoreDamaged(
            f"{path}: found no such file, expected a token store's {path.name}; {_ADVICE}"
        ) from None


def _check_file(path: Path, expected: dict[str, Any], verify: bool) -> None:
    if not path.is_file():
        raise TokenStoreDamaged(f"{path}: found no such file, expected {expected['size']} bytes; {_ADVICE}")
    size = path.stat().st_size
    if size != expected["size"]:
        raise TokenStoreDamaged(f"{path}: found {size} bytes, expected {expected['size']}; {_ADVICE}")
    found = _fingerprint(path)["sha256"] if verify else expected["sha256"]
    if found != expected["sha256"]:
        raise TokenStoreDamaged(f"{path}: found SHA-256 {found}, expected {expected['sha256']}; {_ADVICE}")


def _mapped(path: Path, dtype: str, length: int) -> np.ndarray:
    if length == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, "r", shape=(length,))
