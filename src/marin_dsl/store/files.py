"""The few file operations of a store, on a local disk or any fsspec file system that can create conditionally.

Nothing is ever seen half-written: a file appears whole under its name or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
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


_OTHER = "choose another store with --store or MARIN_STORE"
_ADVICE = {
    errno.ENOSPC: f"the disk is full: free some space, or {_OTHER}",
    errno.EDQUOT: f"the disk quota is used up: free some space, or {_OTHER}",
    errno.EROFS: f"the file system is read-only: {_OTHER}",
    errno.EACCES: f"permission denied: make the folder accessible, or {_OTHER}",
    errno.EPERM: f"permission denied: make the folder accessible, or {_OTHER}",
    errno.ENOTDIR: f"a part of the path is a file, not a folder: {_OTHER}",
    errno.EEXIST: f"a part of the path is a file, not a folder: {_OTHER}",
    errno.EISDIR: f"there is a folder where a file belongs: remove it, or {_OTHER}",
}


def unavailable(url: str, path: str, doing: str, error: Exception) -> StoreUnavailable:
    """The complaint about a failed file operation, with advice for the common causes."""
    number = getattr(error, "errno", None)
    advice = _ADVICE.get(number) if isinstance(number, int) else None
    if advice is None:
        reason = getattr(error, "strerror", None) or error
        advice = f"{type(error).__name__}: {reason}; see whether the place is mounted and healthy, or {_OTHER}"
    return StoreUnavailable(f"store {url}: cannot {doing} {path}: {advice}")


def checked(path: str) -> str:
    """A path below a store, unchanged.

    Raises:
        ValueError: it is empty, absolute, or leads out of the store.
    """
    if not path or any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path or "\\" in path:
        raise ValueError(f"{path!r} is no path below a store: join names by `/`, without `.`, `..` or a leading `/`")
    return path


_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class LocalFiles:
    """A folder of the local disk. Files are private to their owner (0600) and appear by link or rename."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def _at(self, path: str) -> Path:
        return self.root / checked(path)

    def read(self, path: str) -> bytes | None:
        with self._complaining("read", path):
            try:
                with open(f"{self.url}/{checked(path)}", "rb", buffering=0) as file:  # a `Path` would cost more than it
                    return file.read()
            except FileNotFoundError:
                return None

    def create(self, path: str, data: bytes) -> bool:
        with self._complaining("write", path), self._temporary(path, (data,)) as temporary:
            try:
                os.link(temporary, self._at(path))
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise StoreUnavailable(
                        f"store {self.url}: the file system has no hard links, and without them two writers are not "
                        f"safe: {_OTHER}"
                    ) from error
                raise
            return True

    def replace(self, path: str, chunks: Iterable[Any]) -> None:
        with self._complaining("write", path), self._temporary(path, chunks) as temporary:
            os.replace(temporary, self._at(path))

    def size(self, path: str) -> int | None:
        with self._complaining("read", path):
            try:
                found = self._at(path).stat()
                return found.st_size if stat.S_ISREG(found.st_mode) else None
            except FileNotFoundError:
                return None

    def names(self, folder: str) -> list[str]:
        with self._complaining("list", folder):
            try:
                return _visible(os.listdir(self._at(folder)))
            except FileNotFoundError:
                return []

    def remove(self, path: str) -> None:
        with self._complaining("remove", path):
            self._at(path).unlink(missing_ok=True)

    def local(self, path: str) -> Path | None:
        return self._at(path)

    @contextlib.contextmanager
    def _temporary(self, path: str, chunks: Iterable[Any]) -> Iterator[Path]:
        """A private file with the content, in the folder of `path`; gone afterwards whatever happens."""
        folder = self._at(path).parent
        temporary = folder / temporary_name()
        try:
            try:
                descriptor = _open_new(temporary)
            except FileNotFoundError:
                _make_folder(folder)
                descriptor = _open_new(temporary)
            with open(descriptor, "wb", buffering=0) as stream:
                for chunk in chunks:
                    _write_all(stream, chunk)
            yield temporary
        finally:
            with contextlib.suppress(OSError):  # what went wrong before is what matters; the name is hidden anyway
                temporary.unlink()

    @contextlib.contextmanager
    def _complaining(self, doing: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unavailable(self.url, path, doing, error) from error


_TEMPORARY = ".temporary-"


def temporary_name() -> str:
    """A name that nobody else uses and that no listing shows."""
    return f"{_TEMPORARY}{uuid.uuid4().hex}"


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith(_TEMPORARY))


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, private to their owner (`Path.mkdir` makes the ones above readable to all)."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _open_new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _write_all(stream: Any, chunk: Any) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[stream.write(rest) :]


CONDITIONAL_CREATE = frozenset({"memory"})
"""Protocols on which the conditional create of a record has been tested."""

_IN_MEMORY = threading.Lock()  # fsspec's memory looks first and writes then: two threads could both create


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
        return self._call("read", path, lambda place: bytes(self.fs.cat_file(place)))

    def create(self, path: str, data: bytes) -> bool:
        def make(place: str) -> bool:
            try:
                with _IN_MEMORY:
                    self.fs.pipe_file(place, data, mode="create")
            except FileExistsError:
                if self.fs.isfile(place):
                    return False
                raise  # a part of the path is a file
            return True

        return self._present("write", path, make)

    def replace(self, path: str, chunks: Iterable[Any]) -> None:
        # One PUT of the whole content: object stores show it whole or not at all.
        self._present("write", path, lambda place: self.fs.pipe_file(place, b"".join(chunks)))

    def size(self, path: str) -> int | None:
        found = self._call("read", path, self.fs.info)
        return int(found["size"]) if found is not None and found["type"] == "file" else None

    def names(self, folder: str) -> list[str]:
        found = self._call("list", folder, lambda place: self.fs.ls(place, detail=False))
        return _visible(name.rstrip("/").rpartition("/")[2] for name in found or ())

    def remove(self, path: str) -> None:
        self._call("remove", path, self.fs.rm_file)

    def local(self, path: str) -> Path | None:
        return None

    def _call(self, doing: str, path: str, action: Callable[[str], T]) -> T | None:
        """What the action gives, or None when there is nothing at the path."""
        try:
            return action(f"{self.root}/{checked(path)}")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(self.url, path, doing, error) from error

    def _present(self, doing: str, path: str, action: Callable[[str], T]) -> T:
        """What the action gives; that something is not there is an error like others."""
        try:
            return action(f"{self.root}/{checked(path)}")
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
