"""Any file system of fsspec, once it is said how to create conditionally there."""

import uuid

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from marin_dsl import evaluate, op
from marin_dsl.store import Store, StoreUnavailable, conditional_create, remote
from marin_dsl.testing import same


class PiecesFileSystem(MemoryFileSystem):
    """A file system whose files appear when they are committed."""

    protocol = "pieces"
    store = {}  # noqa: RUF012 - as in the class above it
    pseudo_dirs = [""]  # noqa: RUF012
    written = []  # noqa: RUF012
    discarded = 0

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("pieces://").strip("/")

    def _open(self, path, mode="rb", autocommit=True, **kwargs):
        return super()._open(path, mode, **kwargs) if autocommit else Pieces(self, self._strip_protocol(path), None)


class Pieces(MemoryFile):
    def write(self, piece):
        PiecesFileSystem.written.append(len(piece))
        if piece == b"refuse":
            raise TimeoutError("the line is down")
        return super().write(piece)

    def close(self):
        pass

    def discard(self):
        PiecesFileSystem.discarded += 1


def create(fs, path, data):
    try:
        fs.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    return True


@pytest.fixture
def store(monkeypatch):
    fsspec.register_implementation("pieces", PiecesFileSystem, clobber=True)
    monkeypatch.setattr(remote, "_REGISTERED", dict(remote._REGISTERED))
    monkeypatch.setattr(remote, "PIECE", 1000)
    conditional_create("pieces", create, in_pieces=True)
    PiecesFileSystem.written.clear()
    yield Store(f"pieces://{uuid.uuid4().hex}")
    PiecesFileSystem.store.clear()


@op(version="1")
def double(array) -> np.ndarray:
    return array * 2


def test_a_registered_file_system_keeps_results(store):
    array = np.arange(20_000.0)
    assert same(evaluate(double(array), store=store, debug=True).value, array * 2)
    ran = []
    assert same(evaluate(double(array), store=store, debug=True, watch=ran.append).value, array * 2)
    assert ran[-1]["ran"] == 0


def test_an_unregistered_one_is_refused_with_the_way_to_register_it():
    with pytest.raises(StoreUnavailable, match=r"say how to create conditionally there with `marin_dsl.store.cond"):
        Store("pieces://x")


@pytest.mark.parametrize("size", [0, 999, 1000, 1001, 4321])
def test_large_files_are_written_in_pieces_where_that_is_said_to_be_safe(store, size):
    content = np.random.default_rng(size).bytes(size)
    store.files.replace("a", [content[:100], content[100:]])
    assert store.files.read("a") == content
    assert PiecesFileSystem.written == ([] if size < 1000 else [min(1000, size - at) for at in range(0, size, 1000)])


def test_where_it_is_not_said_they_are_written_at_once(store):
    conditional_create("pieces", create)
    other = Store(f"pieces://{uuid.uuid4().hex}")
    other.files.replace("a", [b"x" * 4321])
    assert PiecesFileSystem.written == []
    assert other.files.read("a") == b"x" * 4321


def test_nothing_is_seen_of_a_large_file_before_its_end(store):
    seen = []

    def chunks():
        for _ in range(4):
            seen.append(store.files.read("a"))
            yield b"x" * 1000

    store.files.replace("a", chunks())
    assert seen == [None] * 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_large_file_whose_content_stops_is_discarded(store, error):
    before = PiecesFileSystem.discarded

    def chunks():
        yield b"x" * 1500
        raise error("stop")

    with pytest.raises(error):
        store.files.replace("a", chunks())
    assert store.files.read("a") is None
    assert PiecesFileSystem.discarded == before + 1


def test_trouble_in_the_middle_of_a_large_file_is_a_complaint_and_leaves_nothing(store):
    with pytest.raises(StoreUnavailable) as caught:
        store.files.replace("a", [b"x" * 1000, b"refuse"])
    assert str(caught.value) == (
        f"store {store.url}: cannot write a: TimeoutError: the line is down; see whether the place is mounted and "
        "healthy, or choose another store with --store or MARIN_STORE"
    )
    assert store.files.read("a") is None
