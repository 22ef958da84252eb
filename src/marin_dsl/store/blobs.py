"""Values in a store: blobs named by the digest of their content."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from marin_dsl.encoding import Encoded, Leaf, LeafMissing, decode, encode_with_leaves, format_digest
from marin_dsl.store.files import Files, StoreUnavailable, mapped, place, unavailable
from marin_dsl.store.values import ContentDamaged, StoredValue, verified

T = TypeVar("T")
R = TypeVar("R")

INLINE_LIMIT = 1024
"""Bytes up to which a manifest is kept in its record instead of in a blob."""

IN_MEMORY_LIMIT = 32 << 20
"""Bytes up to which a leaf of a store that is not local is read into memory instead of into a temporary file."""


class Blobs:
    """The values of a store.

    Args:
        files: where they are.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self._at_once = files.at_once

    @property
    def url(self) -> str:
        """Where the store is."""
        return self.files.url

    def put(self, value: Any) -> StoredValue:
        """Write a value's blobs.

        Raises:
            Unencodable: it is no value.
            StoreUnavailable: the store cannot be written.
        """
        return self.put_encoded(encode_with_leaves(value))

    def put_encoded(self, encoded: Encoded) -> StoredValue:
        """Write the blobs of an encoded value: its large leaves, and its manifest unless it is short."""
        if encoded.leaves:
            for _ in self._each(self.put_leaf, encoded.leaves.values()):
                pass
        inline = encoded.data if len(encoded.data) <= INLINE_LIMIT else None
        digest = encoded.digest
        if inline is None:
            self._put_blob(digest, len(encoded.data), lambda: (encoded.data,))
        return StoredValue(digest, inline, tuple((leaf.digest, leaf.size) for leaf in encoded.leaves.values()))

    def put_leaf(self, leaf: Leaf) -> None:
        """Write a large leaf, unless the store has it.

        Raises:
            ContentDamaged: the content changed after its digest was taken.
        """
        self._put_blob(leaf.digest, leaf.size, lambda: verified(leaf))

    def _put_blob(self, digest: bytes, size: int, chunks: Callable[[], Iterable[Any]]) -> None:
        path = place("blobs", digest)
        if self.files.size(path) != size:
            self.files.replace(path, chunks())

    def get(self, stored: StoredValue, *, lazy: bool = False) -> Any:
        """A value, fresh: what one reader does to it no other reader sees.

        Args:
            stored: where it is.
            lazy: leave large leaves unread.

        Raises:
            LeafMissing: a blob is gone or damaged.
        """
        return decode(self.manifest(stored), read_leaf=self.read_leaf, lazy=lazy)

    def manifest(self, stored: StoredValue) -> bytes:
        """The canonical bytes of a value.

        Raises:
            LeafMissing: the blob is gone or damaged.
        """
        if stored.inline is None:
            return self._read_blob(stored.digest)
        if hashlib.sha256(stored.inline).digest() != stored.digest:
            raise ContentDamaged(f"store {self.url}: the value {format_digest(stored.digest)} is damaged in its record")
        return stored.inline

    def read_leaf(self, digest: bytes, size: int) -> Path | bytes | memoryview:
        """A large leaf: a file on the local disk, else its bytes; verified.

        What is large and elsewhere comes into a file without a name, which is mapped and goes with the last reader.

        Raises:
            LeafMissing: it is gone or damaged.
        """
        path = place("blobs", digest)
        local = self.files.local(path)
        if local is None:
            return self._read_blob(digest) if size <= IN_MEMORY_LIMIT else self._fetch(digest)
        try:
            if not local.exists():
                self.restore(path)
            found = Leaf.of_file(local)
        except OSError as error:
            raise LeafMissing(self._gone(digest)) from error
        if found.digest != digest:
            raise ContentDamaged(self._set_aside(digest))
        return local

    def _fetch(self, digest: bytes) -> memoryview:
        path = place("blobs", digest)
        pieces = self.files.pieces(path) or self.files.pieces(f"trash/{path}")
        if pieces is None:
            raise LeafMissing(self._gone(digest))
        try:
            found, content = mapped(pieces)
        except OSError as error:
            raise unavailable(self.url, path, f"keep a local copy in {tempfile.gettempdir()} of", error) from error
        if found != digest:
            raise ContentDamaged(self._set_aside(digest))
        return content

    def _read_blob(self, digest: bytes) -> bytes:
        path = place("blobs", digest)
        data = self.files.read(path)
        if data is None:
            data = self.files.read(f"trash/{path}")
        if data is None:
            raise LeafMissing(self._gone(digest))
        if hashlib.sha256(data).digest() != digest:
            raise ContentDamaged(self._set_aside(digest))
        return data

    def _gone(self, digest: bytes) -> str:
        return f"store {self.url}: blob {format_digest(digest)} is gone; evaluate again to compute it anew"

    def _set_aside(self, digest: bytes) -> str:
        """Remove a damaged blob, so that the next evaluation sees a miss and writes it anew."""
        what = f"store {self.url}: blob {format_digest(digest)}"
        try:
            self.files.remove(place("blobs", digest))
        except StoreUnavailable as error:
            return f"{what} is damaged (its content does not have this digest), and cannot be removed: {error}"
        return (
            f"{what} was damaged (its content does not have this digest) and has been removed; evaluate again to "
            "compute it anew"
        )

    def complete(self, stored: StoredValue) -> bool:
        """Whether all blobs of a value are there with the right sizes, and its manifest is intact."""
        try:
            self.manifest(stored)
        except LeafMissing:
            return False
        leaves = stored.leaves
        return not leaves or all(self._each(lambda leaf: self._size(place("blobs", leaf[0])) == leaf[1], leaves))

    def _each(self, action: Callable[[T], R], items: Collection[T]) -> Iterator[R]:
        """What an action gives for each item; where every operation is a request, several at a time."""
        if self._at_once == 1 or len(items) < 2:
            return map(action, items)
        with ThreadPoolExecutor(self._at_once) as pool:
            return iter(list(pool.map(action, items)))

    def _size(self, path: str) -> int | None:
        size = self.files.size(path)
        return self.files.size(f"trash/{path}") if size is None else size

    def restore(self, path: str) -> bool:
        """Bring something back that was collected and is wanted again (see `marin_dsl.store.collection`)."""
        try:
            if path.startswith("blobs/"):
                return self.files.move(f"trash/{path}", path)
            data = self.files.read(f"trash/{path}")
            return data is not None and self.files.create(path, data)
        except StoreUnavailable:
            return False  # a store that can only be read has lost it
