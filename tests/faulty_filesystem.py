"""An fsspec file system, `faulty://`, whose writes stop, tear and fail, and whose readers see new files late.

It is MemoryFileSystem with a plan of faults; stores can be on it by `conditional_create`, as on any other.
"""

import contextlib
import random
import threading
import uuid

import attrs
import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from marin_dsl.store import Store, conditional_create


class Stopped(BaseException):
    """The process was killed here."""


@attrs.define
class Faults:
    """What goes wrong.

    Attributes:
        at: which operation of the kind fails, counted from 0; None for none.
        kind: `write` or `read`.
        when: `before` it is done, half done (`torn`), or `after` it was done.
        error: what is raised; after `Stopped` nothing is done any more.
        late: how many operations pass before readers see a new content.
        order: shuffles listings; None for the order of names.
    """

    at: int | None = None
    kind: str = "write"
    when: str = "before"
    error: BaseException | type[BaseException] = Stopped
    late: int = 0
    order: random.Random | None = None
    count: int = 0
    clock: int = 0
    dead: bool = False
    reached: bool = False
    news: dict = attrs.field(factory=dict)

    def strike(self, kind, half, whole):
        """Do an operation, unless it is the one that fails."""
        if self.dead:
            raise Stopped
        self.clock += 1
        if kind != self.kind:
            return whole()
        self.count += 1
        if self.count - 1 != self.at:
            return whole()
        self.reached, self.dead = True, self.error is Stopped
        if self.when != "before":
            with contextlib.suppress(OSError):
                half() if self.when == "torn" else whole()
        raise self.error

    def unseen(self, path):
        """Whether a path has a new content that readers do not see yet; then the old content, or None."""
        since, old = self.news.get(path, (0, None))
        return path in self.news and self.clock - since < self.late, old


class FaultyFileSystem(MemoryFileSystem):
    protocol = "faulty"
    store = {}  # noqa: RUF012 - as in the class above it
    pseudo_dirs = [""]  # noqa: RUF012
    faults = Faults()

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("faulty://").strip("/")

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        path = self._strip_protocol(path)
        old = bytes(self.store[path].getbuffer()) if path in self.store else None

        def write(content):
            # The condition is the storage's own: it knows of files that readers do not see yet.
            if mode == "create" and path in self.store:
                raise FileExistsError(path)
            MemoryFileSystem.pipe_file(self, path, content)
            self.faults.news[path] = (self.faults.clock, old)

        half = bytes(value)[: len(value) // 2]
        self.faults.strike("write", lambda: write(half), lambda: write(bytes(value)))

    def cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        late, old = self.faults.unseen(path)
        if late:
            return self.faults.strike("read", bytes, lambda: _part(path, old, start, end))
        return self.faults.strike(
            "read", bytes, lambda: MemoryFileSystem.cat_file(self, path, start=start, end=end, **kwargs)
        )

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        late, old = self.faults.unseen(path)
        if late:
            size = len(_part(path, old, None, None))
            return self.faults.strike("read", dict, lambda: {"name": path, "size": size, "type": "file"})
        return self.faults.strike("read", dict, lambda: MemoryFileSystem.info(self, path, **kwargs))

    def ls(self, path, detail=True, **kwargs):
        found = self.faults.strike("read", list, lambda: MemoryFileSystem.ls(self, path, detail=True, **kwargs))
        found = [entry for entry in found if self.faults.unseen(entry["name"]) not in ((True, None),)]
        if self.faults.order is not None:
            self.faults.order.shuffle(found)
        return found if detail else [entry["name"] for entry in found]


def _part(path, content, start, end):
    if content is None:
        raise FileNotFoundError(path)
    return content[start:end]


_ONE_AT_A_TIME = threading.Lock()


def _create(fs, path, data):
    with _ONE_AT_A_TIME:
        try:
            fs.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
    return True


fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
conditional_create("faulty", _create)


@contextlib.contextmanager
def faulty_store(**plan):
    """A new store, and what goes wrong with it while the context lasts."""
    with faults(**plan) as planned:
        yield Store(f"faulty://{uuid.uuid4().hex}"), planned


@contextlib.contextmanager
def faults(**plan):
    """What goes wrong while the context lasts."""
    kept, FaultyFileSystem.faults = FaultyFileSystem.faults, Faults(**plan)
    try:
        yield FaultyFileSystem.faults
    finally:
        FaultyFileSystem.faults = kept
