"""The few file operations of a store, on a local disk or any fsspec file system that can create conditionally.

Nothing is ever seen half-written: a file appears whole under its name or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import attrs


class StoreUnavailable(RuntimeError):
    """A store cannot be read or written; the message says where, why and what to do."""


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
    """What a store needs of a file system. Paths are relative to the store, with forward slashes."""

    url: str

    def read(self, path: str) -> bytes | None:
        """The whole file, or None when there is none."""
        ...

    def pieces(self, path: str) -> Iterator[bytes] | None:
        """The whole file in pieces, read as they are taken; None when there is none."""
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

    def entries(self) -> Iterable[Entry]:
        """All files of the store, leftovers of crashes included."""
        ...

    def modified(self, path: str) -> float | None:
        """When a file was written, in seconds since 1970 by the clock of the file system; None when there is none."""
        ...

    def move(self, path: str, to: str) -> bool:
        """Make or replace a file with one that goes away, and counts as written now; False when there is none."""
        ...

    def local(self, path: str) -> Path | None:
        """The file on the local disk, or None when the file system is not local."""
        ...


OTHER = "choose another store with --store or MARIN_STORE"
"""What can always be done about a store that does not work."""

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
    number = getattr(error, "errno", None)
    advice = _ADVICE.get(number) if isinstance(number, int) else None
    if advice is None:
        reason = getattr(error, "strerror", None) or error
        advice = f"{type(error).__name__}: {reason}; see whether the place is mounted and healthy, or {OTHER}"
    return StoreUnavailable(f"store {url}: cannot {doing} {path}: {advice}")


_PART = r"(?!\.\.?(?:/|\Z))[^/\\\0]+"
_INSIDE = re.compile(f"{_PART}(?:/{_PART})*")


def checked(path: str) -> str:
    """A path below a store, unchanged.

    Raises:
        ValueError: it is empty, absolute, or leads out of the store.
    """
    if not _INSIDE.fullmatch(path):
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

    def _place(self, path: str) -> str:
        return f"{self.url}/{checked(path)}"  # a `Path` would cost more than most operations with it

    def read(self, path: str) -> bytes | None:
        place = self._place(path)
        try:
            with open(place, "rb", buffering=0) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(self.url, path, "read", error) from error

    def pieces(self, path: str) -> Iterator[bytes] | None:
        with self._complaining("read", path):
            try:
                return self._pieces(path, self._at(path).open("rb"))
            except FileNotFoundError:
                return None

    def _pieces(self, path: str, stream: BinaryIO) -> Iterator[bytes]:
        with self._complaining("read", path), stream:
            while piece := stream.read(1 << 20):
                yield piece

    def create(self, path: str, data: bytes) -> bool:
        place = self._place(path)
        try:
            with contextlib.suppress(FileNotFoundError):
                return _create(place, data)
            return _create(place, data)  # a collection has just removed the folder, which was empty
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise StoreUnavailable(
                    f"store {self.url}: the file system has no hard links, and without them two writers are not "
                    f"safe: {OTHER}"
                ) from error
            raise unavailable(self.url, path, "write", error) from error

    def replace(self, path: str, chunks: Iterable[Any]) -> None:
        place = self._place(path)
        try:
            with _temporary(place, chunks) as temporary:
                os.replace(temporary, place)
        except OSError as error:
            raise unavailable(self.url, path, "write", error) from error

    def size(self, path: str) -> int | None:
        place = self._place(path)
        try:
            found = os.stat(place)
            return found.st_size if stat.S_ISREG(found.st_mode) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable(self.url, path, "read", error) from error

    def names(self, folder: str) -> list[str]:
        with self._complaining("list", folder):
            try:
                return visible(os.listdir(self._at(folder)))
            except FileNotFoundError:
                return []

    def remove(self, path: str) -> None:
        with self._complaining("remove", path):
            self._at(path).unlink(missing_ok=True)
        self._tidy(self._at(path).parent)

    def entries(self) -> Iterable[Entry]:
        waiting = [self.root]
        while waiting:
            folder = waiting.pop()
            with self._complaining("list", folder.relative_to(self.root).as_posix()):
                try:
                    met = list(os.scandir(folder))
                except (FileNotFoundError, NotADirectoryError):
                    continue
            for found in met:
                if found.is_dir(follow_symlinks=False):
                    waiting.append(folder / found.name)
                elif (entry := self._entry(folder / found.name)) is not None:
                    yield entry

    def _entry(self, place: Path) -> Entry | None:
        path = place.relative_to(self.root).as_posix()
        try:
            found = os.lstat(self.root / checked(path))
        except (FileNotFoundError, ValueError):  # removed meanwhile, or no name that a store gives
            return None
        return Entry(path, found.st_size, found.st_mtime)

    def modified(self, path: str) -> float | None:
        with self._complaining("read", path):
            try:
                return os.lstat(self._at(path)).st_mtime
            except (FileNotFoundError, NotADirectoryError):
                return None

    def move(self, path: str, to: str) -> bool:
        source, target = self._at(path), self._at(to)
        with self._complaining("move", path):
            _make_folder(target.parent)
            try:
                os.utime(source, follow_symlinks=False)
                os.replace(source, target)
            except FileNotFoundError:
                return False
        self._tidy(source.parent)
        return True

    def _tidy(self, folder: Path) -> None:
        """Remove folders that are empty now; those that many share stay, for somebody may be writing into them."""
        with contextlib.suppress(OSError):
            parts = folder.relative_to(self.root).parts
            while parts[:1] == ("trash",) or (len(parts) > 1 and len(parts[-1]) > 2):
                folder.rmdir()
                folder, parts = folder.parent, parts[:-1]

    def local(self, path: str) -> Path | None:
        return self._at(path)

    @contextlib.contextmanager
    def _complaining(self, doing: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unavailable(self.url, path, doing, error) from error


def _create(place: str, data: bytes) -> bool:
    """Make a file with the content, unless there is one."""
    folder = os.path.dirname(place)
    try:
        descriptor = _open_nameless(folder)
    except FileNotFoundError:
        _make_folder(Path(folder))
        descriptor = _open_nameless(folder)
    if descriptor is None:
        with _temporary(place, (data,)) as temporary:
            return _link(temporary, place)
    with open(descriptor, "wb", buffering=0) as stream:
        _write_all(stream, data)
        # A file without a name gets its first one from the place where the system shows open files.
        return _link(f"/proc/self/fd/{descriptor}", place)


def _link(source: str, place: str) -> bool:
    try:
        os.link(source, place, src_dir_fd=_descriptor_of_root(), follow_symlinks=True)
    except FileExistsError:
        return False
    return True


@functools.cache
def _descriptor_of_root() -> int:
    # Python calls `linkat`, which alone follows the link in /proc, only when it is given a folder to start from.
    return os.open("/", os.O_RDONLY | os.O_CLOEXEC)


def _open_nameless(folder: str) -> int | None:
    """A new file in a folder that nobody sees, and that vanishes unless it gets a name; None where there are none.

    It spares the folder two changes for each file that is made.
    """
    if not _nameless_files():
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise


@functools.cache
def _nameless_files() -> bool:
    return hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")


@contextlib.contextmanager
def _temporary(place: str, chunks: Iterable[Any]) -> Iterator[str]:
    """A private file with the content, in the folder of `place`; gone afterwards whatever happens."""
    folder = os.path.dirname(place)
    temporary = f"{folder}/{temporary_name()}"
    try:
        try:
            descriptor = _open_new(temporary)
        except FileNotFoundError:
            _make_folder(Path(folder))
            descriptor = _open_new(temporary)
        with open(descriptor, "wb", buffering=0) as stream:
            for chunk in chunks:
                _write_all(stream, chunk)
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # what went wrong before is what matters; the name is hidden anyway
            os.unlink(temporary)


_TEMPORARY = ".temporary-"


def temporary_name() -> str:
    """A name that nobody else uses and that no listing shows."""
    return f"{_TEMPORARY}{os.urandom(16).hex()}"


def is_temporary(path: str) -> bool:
    """Whether a file was never finished: it is being written now, or its writer died."""
    return path.rpartition("/")[2].startswith(_TEMPORARY)


def visible(names: Iterable[str]) -> list[str]:
    """The names that are no temporary ones, sorted."""
    return sorted(name for name in names if not name.startswith(_TEMPORARY))


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, private to their owner (`Path.mkdir` makes the ones above readable to all)."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _open_new(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _write_all(stream: Any, chunk: Any) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[stream.write(rest) :]


def open_files(url: str) -> Files:
    """The file system of a store: a local folder, or a URL that fsspec knows.

    Raises:
        StoreUnavailable: the protocol is not one on which two writers are safe.
    """
    if url.startswith("file://"):
        url = url.removeprefix("file://")
    if "://" not in url:
        return LocalFiles(Path(url).expanduser().absolute())
    if url.startswith(("gs://", "gcs://")):
        from marin_dsl.store.google import GoogleFiles

        return GoogleFiles(url)
    from marin_dsl.store.remote import RemoteFiles

    return RemoteFiles(url)
