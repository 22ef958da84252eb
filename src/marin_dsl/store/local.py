"""A folder of the local disk as a file system of a store."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from marin_dsl.store.files import (
    KINDS,
    OTHER,
    Entry,
    StoreUnavailable,
    checked,
    is_inside,
    temporary_name,
    unavailable,
    visible,
)

T = TypeVar("T")

_SHORT, _LONG = 4 << 10, 1 << 20
"""Bytes that are asked for first, and then."""

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class LocalFiles:
    """A folder of the local disk. Files are private to their owner (0600) and appear by link or rename."""

    at_once = 1

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def _at(self, path: str) -> Path:
        return self.root / checked(path)

    def _place(self, path: str) -> str:
        if not is_inside(path):
            checked(path)
        return f"{self.url}/{path}"  # a `Path` would cost more than most operations with it

    def read(self, path: str) -> bytes | None:
        place = self._place(path)
        try:
            return _read(place)
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

    def create(self, path: str, data: bytes, *, same_as: str | None = None) -> bool:
        place = self._place(path)
        try:
            if same_as is not None:
                other = self._place(same_as)
                try:
                    return _made_in(place.rpartition("/")[0], lambda: _link(other, place))
                except FileNotFoundError:
                    pass  # it was collected meanwhile
                except OSError as error:
                    if error.errno != errno.EXDEV:
                        raise
            try:
                return _create(place, data)
            except FileNotFoundError:
                return _create(place, data)  # a collection has just removed the folder, which was empty
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise StoreUnavailable(
                    f"store {self.url}: the file system has no hard links, and without them two writers are not "
                    f"safe: {OTHER}",
                    self.url,
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
                found = list(os.scandir(self._at(folder)))
                # A link to a folder would lead out of the store, or round in circles.
                return visible(entry.name for entry in found if not entry.is_symlink() or os.path.isfile(entry.path))
            except FileNotFoundError:
                return []
            except NotADirectoryError:
                kind, _, below = folder.partition("/")
                if below and self._at(kind).is_dir():
                    return []  # somebody's file beside the folders of the store
                raise

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
                with self._complaining("read", (folder / found.name).relative_to(self.root).as_posix()):
                    # A whole kind may be on another disk; other links to folders lead who knows where.
                    inner = found.is_dir(follow_symlinks=folder == self.root and found.name in KINDS)
                    entry = None if inner else self._entry(folder / found.name)
                if inner:
                    waiting.append(folder / found.name)
                elif entry is not None:
                    yield entry

    def _entry(self, place: Path) -> Entry | None:
        path = place.relative_to(self.root).as_posix()
        try:
            found = os.lstat(self.root / checked(path))
        except (FileNotFoundError, ValueError):  # removed meanwhile, or no name that a store gives
            return None
        plain = stat.S_ISREG(found.st_mode) or place.is_file()  # no pipe, and no link to a folder
        return Entry(path, found.st_size, found.st_mtime) if plain else None

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
                if os.lstat(source).st_nlink > 1 or not _moved(source, target):
                    _copy(source, target)  # so that the time of its other name does not change
                    source.unlink()
            except FileNotFoundError:
                return False
        self._tidy(source.parent)
        return True

    def sync(self, path: str) -> None:
        with self._complaining("write", path):
            place = self._at(path)
            for each in (place, *place.parents):  # the file, then its name, and those of the folders above it
                with contextlib.suppress(FileNotFoundError):  # a collection is at work: it is in the trash by now
                    _sync(each)
                if each == self.root:
                    return

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


def _read(place: str) -> bytes:
    """The content of a file; most are short, and a file object would cost more than reading one."""
    # Somebody's pipe among the files must not keep a reader waiting for somebody who writes.
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = [os.read(descriptor, _SHORT)]
        while found[-1]:
            found.append(os.read(descriptor, _LONG))
        return found[0] if len(found) == 2 else b"".join(found)
    finally:
        os.close(descriptor)


def _moved(source: Path, target: Path) -> bool:
    """Move a file that is written now; False where that is not possible, for its place is on another disk."""
    os.utime(source, follow_symlinks=False)
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    return True


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as stream, _temporary(str(target), iter(lambda: stream.read(_LONG), b"")) as copy:
        os.replace(copy, target)


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create(place: str, data: bytes) -> bool:
    """Make a file with the content, unless there is one."""
    folder = place.rpartition("/")[0]
    descriptor = _made_in(folder, lambda: _open_nameless(folder))
    if descriptor is None:
        with _temporary(place, (data,)) as temporary:
            return _link(temporary, place)
    try:
        _write_all(descriptor, data)
        # A file without a name gets its first one from the place where the system shows open files.
        return _link(f"/proc/self/fd/{descriptor}", place)
    finally:
        os.close(descriptor)


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
        descriptor = _made_in(folder, lambda: _open_new(temporary))
        try:
            for chunk in chunks:
                _write_all(descriptor, chunk)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # what went wrong before is what matters; the name is hidden anyway
            os.unlink(temporary)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, private to their owner (`Path.mkdir` makes the ones above readable to all)."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _open_new(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _made_in(folder: str, make: Callable[[], T]) -> T:
    """What `make` makes in a folder, which is made if it is not there."""
    for _ in range(3):  # a garbage collection may just be tidying up
        try:
            return make()
        except FileNotFoundError:
            _make_folder(Path(folder))
    return make()


def _write_all(descriptor: int, chunk: Any) -> None:
    rest = memoryview(chunk).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]
