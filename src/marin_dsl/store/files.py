"""The few file operations of a store, on a local disk or any fsspec file system that can create conditionally.

Nothing is ever seen half-written: a file appears whole under its name or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import attrs


class StoreUnavailable(RuntimeError):
    """A store cannot be read or written; the message says where, why and what to do.

    Attributes:
        url: where the store is; empty where that is not known.
    """

    def __init__(self, message: str, url: str = "") -> None:
        super().__init__(message)
        self.url = url


@attrs.frozen
class Entry:
    """A file of a store, as a listing shows it.

    Attributes:
        path: below the store.
        size: in bytes.
        modified: when it was written, in seconds since 1970 by the clock of the file system.
    """

    path: str
    size: int
    modified: float


class Files(Protocol):
    """What a store needs of a file system. Paths are relative to the store, with forward slashes.

    Attributes:
        url: where the store is.
        at_once: how many operations are best done at a time.
    """

    url: str
    at_once: int

    def read(self, path: str) -> bytes | None:
        """The whole file, or None when there is none."""
        ...

    def pieces(self, path: str) -> Iterator[bytes] | None:
        """The whole file in pieces, read as they are taken; None when there is none."""
        ...

    def create(self, path: str, data: bytes, *, same_as: str | None = None) -> bool:
        """Make a new file, whole; False (and no change) when one is there already.

        Args:
            path: where.
            data: its content.
            same_as: another file, which was just made with this content: where files can have several names, this is
                one more, and nothing is written twice.
        """
        ...

    def replace(self, path: str, chunks: Iterable[Any]) -> None:
        """Make or replace a file, whole."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of a file, or None when there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """Names directly in a folder, sorted; empty when there is no such folder."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        ...

    def entries(self) -> Iterable[Entry]:
        """All files of the store, leftovers of crashes included."""
        ...

    def modified(self, path: str) -> float | None:
        """When a file was written, in seconds since 1970 by the clock of the file system; None when there is none."""
        ...

    def move(self, path: str, to: str) -> bool:
        """Make or replace a file with one that goes away, and counts as written now; False when there is none."""
        ...

    def sync(self, path: str) -> None:
        """Have a file on the disk, so that it outlasts a power failure; nothing where it does so anyway."""
        ...

    def local(self, path: str) -> Path | None:
        """The file on the local disk, or None when the file system is not local."""
        ...


OTHER = "choose another store with --store or MARIN_STORE"
"""What can always be done about a store that does not work."""

UNSAFE = (
    "a file could be created there although there was one, so that two writers could each believe to have been the "
    f"first: its server must keep conditions of creation (on S3: `If-None-Match: *`); {OTHER}"
)
"""What is wrong with file systems that do not keep the condition of a creation."""

_ADVICE = {
    errno.ENOSPC: f"the disk is full: free some space, or {OTHER}",
    errno.EDQUOT: f"the disk quota is used up: free some space, or {OTHER}",
    errno.EROFS: f"the file system is read-only: {OTHER}",
    errno.EACCES: f"permission denied: make the folder accessible, or {OTHER}",
    errno.EPERM: f"permission denied: make the folder accessible, or {OTHER}",
    errno.ENOTDIR: f"a part of the path is a file, not a folder: {OTHER}",
    errno.EEXIST: f"a part of the path is a file, not a folder: {OTHER}",
    errno.EISDIR: f"there is a folder where a file belongs: remove it, or {OTHER}",
}


def unavailable(url: str, path: str, doing: str, error: Exception) -> StoreUnavailable:
    """The complaint about a failed file operation, with advice for the common causes."""
    number, place = getattr(error, "errno", None), getattr(error, "filename", None)
    advice = _ADVICE.get(number) if isinstance(number, int) else None
    if isinstance(place, str) and os.path.islink(place) and not os.path.exists(place):
        advice = f"{place} is a link that leads nowhere ({os.readlink(place)}): make what it leads to, or {OTHER}"
    if advice is None:
        reason = getattr(error, "strerror", None) or error
        advice = f"{type(error).__name__}: {reason}; see whether the place is mounted and healthy, or {OTHER}"
    return StoreUnavailable(f"store {url}: cannot {doing} {path}: {advice}", url)


_PART = r"(?!\.\.?(?:/|\Z))[^/\\\0]+"
is_inside = re.compile(f"{_PART}(?:/{_PART})*").fullmatch
"""Whether a path is one below a store: a match, or None."""


def checked(path: str) -> str:
    """A path below a store, unchanged.

    Raises:
        ValueError: it is empty, absolute, or leads out of the store.
    """
    if not is_inside(path):
        raise ValueError(f"{path!r} is no path below a store: join names by `/`, without `.`, `..` or a leading `/`")
    return path


def place(kind: str, digest: bytes, suffix: str = "") -> str:
    """The path of what is kept under a digest or a key."""
    digits = digest.hex()
    return f"{kind}/{digits[:2]}/{digits[2:]}{suffix}"


_RECORDS = {"conflicts", "equivalences", "failures", "history", "labels", "recipes", "results", "runs", "skips"}
KINDS = frozenset({*_RECORDS, "blobs", "leases", "scratch", "trash"})
"""The folders directly in a store."""

_TEMPORARY = ".temporary-"


def temporary_name() -> str:
    """A name that nobody else uses and that no listing shows."""
    return f"{_TEMPORARY}{os.urandom(16).hex()}"


def is_temporary(path: str) -> bool:
    """Whether a file was never finished: it is being written now, or its writer died."""
    return path.rpartition("/")[2].startswith(_TEMPORARY)


def home_of(path: str) -> str:
    """Where a file belongs: what was collected lies in the trash under the path that it had.

    >>> home_of("trash/results/ab/cd.json"), home_of("results/ab/cd.json")
    ('results/ab/cd.json', 'results/ab/cd.json')
    """
    return path.removeprefix("trash/")


def visible(names: Iterable[str]) -> list[str]:
    """The names that are no temporary ones, sorted; none that no store gives."""
    return sorted(name for name in names if not name.startswith(_TEMPORARY) and is_inside(name))


def mapped(pieces: Iterable[bytes]) -> tuple[bytes, memoryview]:
    """The digest and the content of a large file, in a file without a name that goes with the last reader.

    Raises:
        OSError: there is no room for it.
    """
    hasher = hashlib.sha256()
    with tempfile.TemporaryFile() as copy:
        for piece in pieces:
            hasher.update(piece)
            copy.write(piece)
        copy.flush()
        content = memoryview(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ) if copy.tell() else b"")
        return hasher.digest(), content


def try_writing(files: Files) -> None:
    """Make sure that a store can be written: by really doing it, since permissions and free space show only then.

    A server that ignores conditions (some that speak like S3 do) shows, too, by creating the same file twice, however
    often that is tried: once it can also be that somebody removed the file meanwhile.

    Raises:
        StoreUnavailable: it cannot be written, or not safely.
    """
    if all(_created_twice(files) for _ in range(3)):
        raise StoreUnavailable(f"store {files.url}: {UNSAFE}", files.url)


def _created_twice(files: Files) -> bool:
    trial, content = f"runs/{temporary_name()}", bytes(4096)
    try:
        twice = files.create(trial, content) and files.create(trial, content)
    except BaseException:
        with contextlib.suppress(StoreUnavailable):  # what went wrong before is what matters
            files.remove(trial)
        raise
    files.remove(trial)
    return twice


def open_files(url: str) -> Files:
    """The file system of a store: a local folder, or a URL that fsspec knows.

    Raises:
        StoreUnavailable: the protocol is not one on which two writers are safe, or it is not known where a folder is.
    """
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    if "://" not in url:
        from marin_dsl.store.local import LocalFiles

        return LocalFiles(_folder(url))
    if url.startswith(("gs://", "gcs://")):
        from marin_dsl.store.google import GoogleFiles

        return GoogleFiles(url)
    if url.startswith("s3://"):
        from marin_dsl.store.s3 import S3Files

        return S3Files(url)
    from marin_dsl.store.remote import RemoteFiles

    return RemoteFiles(url)


def _folder(path: str) -> Path:
    try:
        return Path(path).expanduser().absolute()
    except FileNotFoundError:
        raise StoreUnavailable(f"store {path}: the working directory is gone, and the path begins there") from None
    except RuntimeError as error:  # there is no such user
        raise StoreUnavailable(f"store {path}: {error} Write a path that begins with / or ./ instead") from None
