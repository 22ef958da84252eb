"""Text to token ids and back, without loss: raw bytes, or byte-level byte pair encoding (Hugging Face `tokenizers`)."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import attrs
import numpy as np
import tokenizers as hugging_face

from library.documents import Corpus, Document
from library.sampling import rank, up_to_bytes
from marin_dsl import File, context, encodable, op

_BYTES = 256
_SURROGATE = re.compile("[\ud800-\udfff]")
_BATCH = 64


@encodable
@attrs.frozen
class Tokenizer:
    """A reversible map between text and token ids.

    Attributes:
        kind: `bytes` (ids 0-255 are the UTF-8 bytes) or `bpe`.
        vocabulary: number of ids, the one that ends a document included.
        end_of_document: the last id; no text encodes to it.
        model: the file `tokenizer.json` of Hugging Face `tokenizers`; None for bytes.
    """

    kind: Literal["bytes", "bpe"]
    vocabulary: int
    end_of_document: int
    model: File | None = None

    def encode(self, text: str) -> np.ndarray:
        """Token ids of a text, int32 of shape [tokens], without the end of the document."""
        return next(self.encode_many([text]))

    def encode_many(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Token ids of each text in turn, int32 of shape [tokens]; reads the texts in batches."""
        if self.kind == "bytes":
            yield from (_byte_values(text) for text in texts)
            return
        batch: list[str] = []
        for text in texts:
            batch.append(text)
            if len(batch) == _BATCH:
                yield from self._encode_batch(batch)
                batch = []
        yield from self._encode_batch(batch)

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """The text of token ids; ends of documents vanish, bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: an id lies outside the vocabulary.
        """
        data = self.decode_bytes(tokens)
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")

    def decode_bytes(self, tokens: Sequence[int] | np.ndarray) -> bytes:
        """The bytes that token ids stand for.

        Raises:
            ValueError: an id lies outside the vocabulary.
        """
        ids = [int(token) for token in tokens]
        outside = [token for token in ids if not 0 <= token < self.vocabulary]
        if outside:
            raise ValueError(
                f"token {outside[0]} lies outside the vocabulary of {self.vocabulary}; "
                "decode with the tokenizer that encoded the text"
            )
        return b"".join(self._pieces[token] for token in ids)

    @cached_property
    def _encoder(self) -> hugging_face.Tokenizer:
        if self.model is None:
            raise ValueError("a tokenizer of kind 'bpe' needs its model, a tokenizer.json; make it with train_bpe")
        return hugging_face.Tokenizer.from_file(str(self.model.path))

    @cached_property
    def _pieces(self) -> list[bytes]:
        """The bytes of each id; none for the end of a document."""
        if self.kind == "bytes":
            return [bytes([value]) for value in range(_BYTES)] + [b""]
        values = {character: value for value, character in byte_characters().items()}
        pieces = sorted(self._encoder.get_vocab().items(), key=lambda item: item[1])
        return [bytes(values[character] for character in piece) for piece, _ in pieces] + [b""]

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        return {piece[0]: token for token, piece in enumerate(self._pieces) if len(piece) == 1}

    def _encode_batch(self, texts: list[str]) -> Iterator[np.ndarray]:
        if any(_SURROGATE.search(text) for text in texts):
            yield from (self._encode_around_surrogates(text) for text in texts)
            return
        for encoding in self._encoder.encode_batch_fast(texts, add_special_tokens=False):
            yield np.array(encoding.ids, np.int32)

    def _encode_around_surrogates(self, text: str) -> np.ndarray:
        """Lone surrogates are not Unicode and `tokenizers` refuses them: their bytes are encoded one by one."""
        ids: list[int] = []
        for part in re.split(f"({_SURROGATE.pattern})", text):
            if _SURROGATE.match(part):
                ids += [self._byte_ids[value] for value in part.encode("utf-8", "surrogatepass")]
            else:
                ids += self._encoder.encode(part, add_special_tokens=False).ids
        return np.array(ids, np.int32)


@op
def byte_tokenizer() -> Tokenizer:
    """The 256 byte values and the end of a document."""
    return Tokenizer("bytes", _BYTES + 1, _BYTES)


@op(pin=["tokenizers"])
def train_bpe(
    corpora: Sequence[Corpus] | Mapping[str, Corpus], *, vocabulary: int, limit_bytes: int | None = 8_000_000
) -> Tokenizer:
    """Train byte-level byte pair encoding with GPT-2's rule for the borders of words.

    Args:
        corpora: training splits, as a list or by domain. Their documents are read together, in the order of the hash
            of their ids.
        vocabulary: number of ids, the 256 bytes and the end of a document included. Texts too small to hold so many
            repeated pairs give a smaller one.
        limit_bytes: train on at most so many UTF-8 bytes, as whole documents; None for all.

    Raises:
        ValueError: the vocabulary has no room for the bytes, or there is nothing to train on.

    Source: Sennrich et al. 2016 (arXiv:1508.07909); Radford et al. 2019, section 2.2, for bytes.
    """
    if vocabulary <= _BYTES:
        raise ValueError(
            f"vocabulary={vocabulary}; expected at least {_BYTES + 1}: all bytes and the end of a document"
        )
    documents = _in_hash_order(corpora.values() if isinstance(corpora, Mapping) else corpora)
    texts = [document.text for document in up_to_bytes(documents, limit_bytes)]
    if not texts:
        raise ValueError(f"no document in the {len(corpora)} corpora given; give corpora that hold text")
    path = context().scratch / "tokenizer.json"
    path.write_text(_trained(texts, vocabulary - 1), "utf-8")
    size = len(json.loads(path.read_bytes())["model"]["vocab"])
    return Tokenizer("bpe", size + 1, size, File.of(path))


def byte_characters() -> dict[int, str]:
    """The character that stands for each byte in the pieces of a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(_BYTES) if value not in printable]
    return {value: chr(value) for value in printable} | {value: chr(_BYTES + n) for n, value in enumerate(others)}


def _byte_values(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.int32)


def _in_hash_order(corpora: Iterable[Corpus]) -> list[Document]:
    documents = [document for corpus in corpora for document in corpus.read()]
    return sorted(documents, key=lambda document: (rank(document.id, "bpe"), document.id))


def _trained(texts: list[str], size: int) -> str:
    tokenizer = hugging_face.Tokenizer(hugging_face.models.BPE())
    tokenizer.pre_tokenizer = hugging_face.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = hugging_face.decoders.ByteLevel()
    trainer: Any = hugging_face.trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, initial_alphabet=sorted(byte_characters().values()), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer, length=len(texts))
    return tokenizer.to_str()
