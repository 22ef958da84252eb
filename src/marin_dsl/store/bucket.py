"""What stores in buckets have in common, whoever keeps the buckets.

An object is written by one request (or one upload in parts, for large ones) and appears whole at its end. A new one is
created on condition that there is none.
"""

from __future__ import annotations

import abc
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from marin_dsl.store.files import OTHER, StoreUnavailable, checked, visible
from marin_dsl.store.remote import PIECE, RemoteFiles, gathered, moment_of


class BucketFiles(RemoteFiles, abc.ABC):
    """A prefix of a bucket.

    Attributes:
        bucket: its name.
    """

    at_once = 8
    scheme: ClassVar[str]
    """What stands before `://`."""
    make: ClassVar[str]
    """The command that makes a bucket, up to its address."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.bucket, _, prefix = self.url.partition("://")[2].partition("/")
        if not self.bucket:
            raise StoreUnavailable(f"store {url} names no bucket: write {self.scheme}://bucket/folder", self.url)
        if prefix:
            checked(prefix)
        self.root = f"{self.bucket}/{prefix}" if prefix else self.bucket
        self._bucket_seen = False

    def create(self, path: str, data: bytes, *, same_as: str | None = None) -> bool:
        # A reply can be lost and the request repeated: then what is in the way is our own, and carries this mark.
        mark, place = uuid.uuid4().hex, self._place(path)
        with self._complaining("write", path):
            try:
                self._upload(place, data, mark, new=True)
            except FileExistsError:
                return self._mark(place) == mark
            return True

    def replace(self, path: str, chunks: Iterable[Any]) -> None:
        pieces = gathered(chunks)
        first = next(pieces, b"")
        if len(first) < PIECE:
            with self._complaining("write", path):
                self._upload(self._place(path), first, uuid.uuid4().hex)
        else:
            self._replace_in_pieces(path, first, pieces)

    def size(self, path: str) -> int | None:
        found = self._found("read", path, self._facts)
        return None if found is None else int(found["size"])

    def modified(self, path: str) -> float | None:
        found = self._found("read", path, self._facts)
        return None if found is None else moment_of(found)

    def names(self, folder: str) -> list[str]:
        return visible(self._found("list", folder, lambda place: list(self._listed(place))) or ())

    @abc.abstractmethod
    def _upload(self, place: str, data: bytes, mark: str, *, new: bool = False) -> None:
        """Write an object that carries a mark.

        Raises:
            FileExistsError: it was to be new, and there is one.
        """

    @abc.abstractmethod
    def _replace_in_pieces(self, path: str, first: bytes, pieces: Iterator[bytes]) -> None:
        """Write a large object, and leave nothing when that cannot be done to the end."""

    @abc.abstractmethod
    def _facts(self, place: str) -> Mapping[str, Any]:
        """The `size` of an object, the `metadata` that were written with it, and when that was.

        Raises:
            FileNotFoundError: there is none.
        """

    @abc.abstractmethod
    def _listed(self, place: str) -> Iterator[str]:
        """The names directly below a place."""

    @abc.abstractmethod
    def _look(self) -> None:
        """Ask for the bucket.

        Raises:
            FileNotFoundError: there is none.
        """

    def _key(self, place: str) -> str:
        return place.partition("/")[2]

    def _mark(self, place: str) -> str | None:
        try:
            mark: str | None = self._facts(place).get("metadata", {}).get("writer")
        except FileNotFoundError:  # removed meanwhile
            return None
        return mark

    def _check_place(self) -> None:
        """A bucket that is not there answers as one that is empty does: ask for it once."""
        if self._bucket_seen:
            return
        self._bucket_seen = True
        try:
            self._look()
        except FileNotFoundError:
            self._bucket_seen = False
            raise self._no_bucket() from None
        except Exception:
            return  # it may be read and not listed; whatever else is wrong, the next operation shows

    def _no_bucket(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"store {self.url}: there is no bucket `{self.bucket}`: make it (`{self.make} "
            f"{self.scheme}://{self.bucket}`), or {OTHER}",
            self.url,
        )
