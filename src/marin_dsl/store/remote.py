"""Stores on an fsspec file system: any one that has a conditional create."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from marin_dsl.store.files import Entry, StoreUnavailable, checked, unavailable, visible

T = TypeVar("T")

Create = Callable[[Any, str, bytes], bool]
"""From a file system of fsspec, a path on it and the content: make the file, whole, and say True; when there is a file
at the path already, change nothing and say False. Of any number of callers at once, exactly one is told True."""

PIECE = 8 << 20
"""Bytes of a large file that are read or written at a time."""


@attrs.frozen(eq=False)
class _Registered:
    create: Create
    in_pieces: bool


_REGISTERED: dict[str, _Registered] = {}


def conditional_create(protocol: str, create: Create, *, in_pieces: bool = False) -> None:
    """Let stores be on an fsspec file system, by saying how a file is made on condition that there is none.

    Without a conditional create two writers of one store can each believe to have been the first. Every process that
    opens such a store must have made this call: put it into the module of the project that defines its operators.

    Args:
        protocol: what stands before `://` in the URLs of the file system.
        create: makes a file; exactly one of several callers at once may be told that it did.
        in_pieces: whether a file that is written with `open(path, "wb", autocommit=False)` appears whole at its
            `commit()` and not before; large blobs are then never held in memory.

    Example:
        ```python
        def create(fs, path, data):
            try:
                fs.pipe_file(path, data, mode="create")
            except FileExistsError:
                return False
            return True

        conditional_create("myfs", create)
        ```
    """
    _REGISTERED[protocol] = _Registered(create, in_pieces)


_IN_MEMORY = threading.Lock()  # fsspec's memory looks first and writes then: two threads could both create


def _create_in_memory(fs: Any, place: str, data: bytes) -> bool:
    try:
        with _IN_MEMORY:
            fs.pipe_file(place, data, mode="create")
    except FileExistsError:
        if fs.isfile(place):
            return False
        raise  # a part of the path is a file
    return True


conditional_create("memory", _create_in_memory)


class RemoteFiles:
    """A prefix of an fsspec file system."""

    at_once = 1
    _file_system: Any = None
    _opened_by = 0

    def __init__(self, url: str) -> None:
        protocol = url.partition("://")[0]
        self.url = protocol + "://" + url.removeprefix(protocol + "://").rstrip("/")
        registered = _REGISTERED.get(protocol)
        if registered is None:
            raise StoreUnavailable(
                f"store {url}: `{protocol}` is not one of the file systems on which two writers are safe "
                f"({', '.join(sorted({'gs', 's3', *_REGISTERED}))}, or a local folder); choose another store, or say "
                "how to create conditionally there with `marin_dsl.store.conditional_create`"
            )
        self._registered = registered
        self.root: str = self._opened()[1]

    @property
    def fs(self) -> Any:
        """The file system; a forked process opens one of its own, since event loops and connections survive no fork."""
        if self._opened_by != os.getpid():
            self._file_system, self._opened_by = self._open(), os.getpid()
        return self._file_system

    def _open(self) -> Any:
        return self._opened()[0]

    def _opened(self) -> tuple[Any, str]:
        import fsspec

        opened: tuple[Any, str] = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        return opened

    def read(self, path: str) -> bytes | None:
        return self._found("read", path, lambda place: bytes(self.fs.cat_file(place)))

    def pieces(self, path: str) -> Iterator[bytes] | None:
        size = self.size(path)
        return None if size is None else self._ranges(path, size)

    def _ranges(self, path: str, size: int) -> Iterator[bytes]:
        for start in range(0, size, PIECE):
            with self._complaining("read", path):
                piece = bytes(self.fs.cat_file(self._place(path), start=start, end=min(start + PIECE, size)))
            yield piece

    def create(self, path: str, data: bytes, *, same_as: str | None = None) -> bool:
        with self._complaining("write", path):
            return self._registered.create(self.fs, self._place(path), data)

    def replace(self, path: str, chunks: Iterable[Any]) -> None:
        pieces = gathered(chunks)
        first = next(pieces, b"")
        if len(first) < PIECE or not self._registered.in_pieces:
            # One PUT of the whole content: object stores show it whole or not at all.
            whole = b"".join([first, *pieces])
            with self._complaining("write", path):
                self.fs.pipe_file(self._place(path), whole)
        else:
            self._write_pieces(path, itertools.chain((first,), pieces))

    def _write_pieces(self, path: str, pieces: Iterator[bytes]) -> None:
        with self._complaining("write", path):
            stream = self.fs.open(self._place(path), "wb", autocommit=False)
        try:
            for piece in pieces:
                with self._complaining("write", path):
                    stream.write(piece)
            with self._complaining("write", path):
                stream.close()
                stream.commit()
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong before is what matters
                stream.discard()
            raise

    def size(self, path: str) -> int | None:
        found = self._found("read", path, self.fs.info)
        return int(found["size"]) if found is not None and found["type"] == "file" else None

    def names(self, folder: str) -> list[str]:
        found = self._found("list", folder, lambda place: self.fs.ls(place, detail=False))
        return visible(name.rstrip("/").rpartition("/")[2] for name in found or ())

    def remove(self, path: str) -> None:
        self._found("remove", path, self.fs.rm_file)

    def entries(self) -> Iterable[Entry]:
        with self._complaining("list", "runs"):
            found = self.fs.find(self.root, detail=True)
        for place, facts in found.items():
            yield Entry(
                place.lstrip("/").removeprefix(self.root.lstrip("/") + "/"), int(facts["size"]), moment_of(facts)
            )

    def modified(self, path: str) -> float | None:
        found = self._found("read", path, self.fs.info)
        return None if found is None else moment_of(found)

    def move(self, path: str, to: str) -> bool:
        # The copy first: a crash in between leaves two files, never none.
        if self._found("move", path, lambda place: self.fs.cp_file(place, self._place(to)) or True) is None:
            return False
        self.remove(path)
        return True

    def sync(self, path: str) -> None:
        """What is written there is as safe as it will ever be."""

    def local(self, path: str) -> Path | None:
        return None

    def _place(self, path: str) -> str:
        return f"{self.root}/{checked(path)}"

    def _found(self, doing: str, path: str, action: Callable[[str], T]) -> T | None:
        """What the action gives, or None when there is nothing at the path."""
        place = self._place(path)
        with self._complaining(doing, path):
            try:
                return action(place)
            except FileNotFoundError:
                pass
        self._check_place()
        return None

    @contextlib.contextmanager
    def _complaining(self, doing: str, path: str) -> Iterator[None]:
        checked(path)
        try:
            yield
        except Exception as error:  # each library has errors of its own, and only some of them are an OSError
            raise self._complaint(doing, path, error) from error

    def _check_place(self) -> None:
        """Nothing is at a path: complain if the place itself is not there."""

    def _complaint(self, doing: str, path: str, error: Exception) -> StoreUnavailable:
        return unavailable(self.url, path, doing, error)


def moment_of(facts: Mapping[str, Any]) -> float:
    """When a file was written; file systems have different names for that, and different ways to write it."""
    for name in ("updated", "mtime", "LastModified", "last_modified", "modified", "created"):
        moment = facts.get(name)
        if isinstance(moment, str):
            moment = datetime.datetime.fromisoformat(moment)
        if isinstance(moment, datetime.datetime):
            return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()
        if moment is not None:
            return float(moment)
    raise StoreUnavailable(
        f"this file system does not tell when its files were written ({', '.join(sorted(facts))}), and without that "
        "nothing can be collected safely"
    )


def gathered(chunks: Iterable[Any]) -> Iterator[bytes]:
    """The content of small chunks in pieces of `PIECE` bytes; only the last one is shorter."""
    waiting = bytearray()
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            taken = rest[: PIECE - len(waiting)]
            waiting += taken
            rest = rest[len(taken) :]
            if len(waiting) == PIECE:
                yield bytes(waiting)
                waiting.clear()
    if waiting:
        yield bytes(waiting)
