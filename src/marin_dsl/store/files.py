"""The few file operations of a store, on a local disk or any fsspec file system that can create conditionally.

Nothing is ever seen half-written: a file appears whole under its name or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class StoreUnavailable(RuntimeError):
    """A store cannot be read or written; the message says where, why and what to do."""


class Files(Protocol):
    """What a store needs of a file system. Paths are relative to the store, with forward slashes."""

    url: str

    def read(self, path: str) -> bytes | None:
        """The whole file, or None when there is none."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Make a new file, whole; False (and no change) when one is there already."""
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

    def local(self, path: str) -> Path | None:
        """The file on the local disk, or None when the file system is not local."""
        ...


_ADVICE = {
    errno.ENOSPC: "the disk is full: free some space, or choose another store with --store or MARIN_STORE",
    errno.EDQUOT: "the disk quota is used up: free some space, or choose another store with --store or MARIN_STORE",
    errno.EROFS: "the file system is read-only: choose another store with --store or MARIN_STORE",
    errno.EACCES: "permission denied: make the folder writable, or choose another store with --store or MARIN_STORE",
    errno.EPERM: "permission denied: make the folder writable, or choose another store with --store or MARIN_STORE",
    errno.ENOTDIR: "a part of the path is a file, not a folder: choose another store with --store or MARIN_STORE",
    errno.EEXIST: "a part of the path is a file, not a folder: choose another store with --store or MARIN_STORE",
}


def unavailable(url: str, path: str, doing: str, error: Exception) -> StoreUnavailable:
    """The complaint about a failed file operation, with advice for the common causes."""
    number = getattr(error, "errno", None)
    advice = _ADVICE.get(number) if isinstance(number, int) else None
    return StoreUnavailable(f"store {url}: cannot {doing} {path}: {advice or f'{type(error).__name__}: {error}'}")


class LocalFiles:
    """A folder of the local disk. Files are private to their owner (0600) and appear by link or rename."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def read(self, path: str) -> bytes | None:
        with self._complaining("read", path):
            try:
                return (self.root / path).read_bytes()
            except FileNotFoundError:
                return None

    def create(self, path: str, data: bytes) -> bool:
        with self._complaining("write", path), self._temporary(path, (data,)) as temporary:
            try:
                os.link(temporary, self.root / path)
            except FileExistsError:
                return False
            return True

    def replace(self, path: str, chunks: Iterable[Any]) -> None:
        with self._complaining("write", path), self._temporary(path, chunks) as temporary:
            os.replace(temporary, self.root / path)

    def size(self, path: str) -> int | None:
        with self._complaining("read", path):
            try:
                return (self.root / path).stat().st_size
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        with self._complaining("list", folder):
            try:
                return sorted(name for name in os.listdir(self.root / folder) if not name.startswith(".temporary-"))
            except FileNotFoundError:
                return []

    def remove(self, path: str) -> None:
        with self._complaining("remove", path):
            (self.root / path).unlink(missing_ok=True)

    def local(self, path: str) -> Path | None:
        return self.root / path

    @contextlib.contextmanager
    def _temporary(self, path: str, chunks: Iterable[Any]) -> Iterator[Path]:
        """A private file with the content, in the folder of `path`; gone afterwards whatever happens."""
        folder = (self.root / path).parent
        temporary = folder / f".temporary-{uuid.uuid4().hex}"
        try:
            try:
                descriptor = _open_new(temporary)
            except FileNotFoundError:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = _open_new(temporary)
            with open(descriptor, "wb", buffering=0) as stream:
                for chunk in chunks:
                    _write_all(stream, chunk)
            yield temporary
        finally:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                temporary.unlink()

    @contextlib.contextmanager
    def _complaining(self, doing: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unavailable(self.url, path, doing, error) from error


def _open_new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _write_all(stream: Any, chunk: Any) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[stream.write(rest) :]


CONDITIONAL_CREATE = frozenset({"memory"})
"""Protocols on which the conditional create of a record has been tested."""


class RemoteFiles:
    """A prefix of an fsspec file system."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url.rstrip("/")
        protocol = url.partition("://")[0]
        if protocol not in CONDITIONAL_CREATE:
            raise StoreUnavailable(
                f"store {url}: `{protocol}` is not one of the file systems on which two writers are safe "
                f"({', '.join(sorted(CONDITIONAL_CREATE))}, or a local folder); choose another store"
            )
        self.fs, self.root = fsspec.core.url_to_fs(url, use_listings_cache=False)

    def read(self, path: str) -> bytes | None:
        return self._call("read", path, lambda place: bytes(self.fs.cat_file(place)), None)

    def create(self, path: str, data: bytes) -> bool:
        def make(place: str) -> bool:
            try:
                self.fs.pipe_file(place, data, mode="create")
            except FileExistsError:
                return False
            return True

        return self._call("write", path, make, False)

    def replace(self, path: str, chunks: Iterable[Any]) -> None:
        # One PUT of the whole content: object stores show it whole or not at all.
        self._call("write", path, lambda place: self.fs.pipe_file(place, b"".join(chunks)), None)

    def size(self, path: str) -> int | None:
        return self._call("read", path, lambda place: int(self.fs.info(place)["size"]), None)

    def names(self, folder: str) -> list[str]:
        found = self._call("list", folder, lambda place: self.fs.ls(place, detail=False), [])
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def remove(self, path: str) -> None:
        self._call("remove", path, self.fs.rm_file, None)

    def local(self, path: str) -> Path | None:
        return None

    def _call(self, doing: str, path: str, action: Callable[[str], T], absent: T) -> T:
        try:
            return action(f"{self.root}/{path}")
        except FileNotFoundError:
            return absent
        except OSError as error:
            raise unavailable(self.url, path, doing, error) from error


def open_files(url: str) -> Files:
    """The file system of a store: a local folder, or a URL that fsspec knows.

    Raises:
        StoreUnavailable: the protocol is not one on which two writers are safe.
    """
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    return RemoteFiles(url) if "://" in url else LocalFiles(Path(url).expanduser().absolute())
