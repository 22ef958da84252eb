"""Large leaves: the parts of a value that are kept beside its manifest, each under its own digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

LEAF_THRESHOLD = 64 * 1024
"""Bytes from which an array, a text or a byte string is kept as a blob of its own instead of in the manifest."""

ReadLeaf = Callable[[bytes, int], Any]
"""From digest and size of a leaf to its content: a buffer of bytes, or the path of a file holding them."""

_CHUNK = 1 << 20


class LeafMissing(LookupError):
    """A manifest names a leaf that is not where it was looked for."""


@attrs.frozen(eq=False)
class Leaf:
    """A large part of a value: its digest, its size in bytes, and where its bytes are.

    Attributes:
        digest: SHA-256 of the content, 32 bytes.
        size: length of the content in bytes.
        content: the bytes in memory (a buffer), the path of the file that holds them, or None for a leaf that was
            never read (it can be named in another value of the same store).
    """

    digest: bytes
    size: int
    content: memoryview | Path | None

    @classmethod
    def of_buffer(cls, buffer: memoryview) -> Leaf:
        """The leaf for bytes in memory; the buffer is referred to, not copied."""
        return cls(hashlib.sha256(buffer).digest(), buffer.nbytes, buffer)

    @classmethod
    def of_file(cls, path: Path) -> Leaf:
        """The leaf for the content of a file, which is read once, in chunks."""
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").digest()
            return cls(digest, stream.tell(), path)

    def chunks(self) -> Iterator[memoryview | bytes]:
        """The content in pieces of at most 1 MiB.

        Raises:
            LeafMissing: the leaf was never read, so its content is not here, or its file is gone.
        """
        if self.content is None:
            raise LeafMissing(f"the content of leaf sha256:{self.digest.hex()} ({self.size} bytes) is not at hand")
        if isinstance(self.content, Path):
            yield from _pieces(self.content)
        else:
            flat = self.content.cast("B") if self.content.nbytes else self.content
            for start in range(0, self.size, _CHUNK):
                yield flat[start : start + _CHUNK]


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            while piece := stream.read(_CHUNK):
                yield piece
    except OSError as error:
        raise LeafMissing(
            f"the file {path} that a value refers to cannot be read any more ({error.strerror}); keep it until the "
            "value is stored: in an operator, write it below `context().scratch`"
        ) from error


class LazyContent:
    """A large text or byte string of a decoded value whose leaf has not been read; it encodes as itself."""

    __slots__ = ("leaf", "tag")

    def __init__(self, tag: str, leaf: Leaf) -> None:
        self.tag, self.leaf = tag, leaf


class BoundLeaf:
    """A leaf that is a field of a decoded object, with the way to its content; it encodes as itself."""

    __slots__ = ("_read", "digest", "size")

    def __init__(self, digest: bytes, size: int, read: ReadLeaf | None) -> None:
        self.digest, self.size, self._read = digest, size, read

    def locate(self) -> Any:
        """The content (a buffer), or the path of a file that holds it.

        Raises:
            LeafMissing: there is no store to read it from, or the store has lost it.
        """
        if self._read is None:
            raise LeafMissing(f"no store was given to read leaf sha256:{self.digest.hex()} from")
        return self._read(self.digest, self.size)

    def unread(self) -> Leaf:
        """The leaf without its content."""
        return Leaf(self.digest, self.size, None)
