"""Stores in a bucket: one winner, retries, resumable uploads, and one clear complaint about whatever is wrong."""

import asyncio
import subprocess
import sys
import threading
import types
import uuid
from pathlib import Path

import numpy as np
import pytest

from marin_dsl import Directory
from marin_dsl.encoding import LeafMissing
from marin_dsl.store import ContentDamaged, Store, StoreUnavailable, google, remote
from marin_dsl.store import blobs as blobs_module

CHOOSE = "choose another store with --store or MARIN_STORE"


@pytest.fixture
def files(bucket):
    return Store(f"gs://bucket/{uuid.uuid4().hex}").files


@pytest.fixture
def eager(monkeypatch):
    """Retries follow at once."""
    import gcsfs.retry

    async def at_once(seconds):
        await asyncio.sleep(0)

    monkeypatch.setattr(gcsfs.retry, "asyncio", types.SimpleNamespace(sleep=at_once))


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of 1 kB instead of 16 MB."""
    for module in (google, remote):
        monkeypatch.setattr(module, "PIECE", 1000)
    monkeypatch.setattr(blobs_module, "IN_MEMORY_LIMIT", 3000)


RACER = """
import sys
from marin_dsl.store import Store
store = Store(sys.argv[1])
for turn in range(20):
    sys.stdin.readline()
    won = store.files.create(f"race/{turn}", sys.argv[2].encode())
    print(int(won), flush=True)
"""


@pytest.mark.parametrize("kind", ["local", "google"])
def test_of_two_processes_that_create_one_file_exactly_one_wins(kind, bucket, tmp_path):
    url = str(tmp_path) if kind == "local" else "gs://bucket/race"
    command = [sys.executable, "-c", RACER, url]
    racers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    for turn in range(20):
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        won = [int(racer.stdout.readline()) for racer in racers]
        assert sum(won) == 1
        assert Store(url).files.read(f"race/{turn}") == (b"one" if won[0] else b"two")
    for racer in racers:
        racer.communicate()
        assert racer.returncode == 0


def test_a_new_object_is_created_on_condition_that_there_is_none(files, bucket):
    files.create("a", b"one")
    assert "ifGenerationMatch=0" in bucket.requests[-1][1]
    assert bucket.requests[-1][1].startswith("/upload/storage/v1/b/bucket/o?uploadType=multipart")
    files.replace("a", [b"two"])
    assert "ifGenerationMatch" not in bucket.requests[-1][1]


def test_a_creation_whose_reply_was_lost_is_known_as_ones_own(files, bucket, eager):
    with bucket.failing("lost", "POST", "ifGenerationMatch=0"):
        assert files.create("a", b"same") is True
    assert files.create("a", b"same") is False
    assert files.read("a") == b"same"


def test_of_an_object_that_somebody_removes_meanwhile_nobody_believes_to_be_the_maker(files, bucket, monkeypatch):
    files.create("a", b"theirs")
    upload = files._upload

    def removed_afterwards(*given, **condition):
        try:
            upload(*given, **condition)
        finally:
            files.remove("a")

    monkeypatch.setattr(files, "_upload", removed_afterwards)
    assert files.create("a", b"mine") is False


OPERATIONS = {
    "read": lambda files: files.read("a"),
    "write": lambda files: files.replace("a", [b"one"]),
    "create": lambda files: files.create("b", b"one"),
    "size": lambda files: files.size("a"),
    "list": lambda files: files.names("logs"),
    "remove": lambda files: files.remove("a"),
}
METHODS = {"read": "GET", "write": "POST", "create": "POST", "size": "GET", "list": "GET", "remove": "DELETE"}


@pytest.mark.parametrize("kind", ["unavailable", "reset", "lost"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_passing_trouble_of_the_service_is_tried_again(files, bucket, eager, kind, name):
    files.replace("a", [b"one"])
    expected = {"read": b"one", "size": 3, "list": [], "create": True}.get(name)
    with bucket.failing(kind, METHODS[name], times=2) as fault:
        assert OPERATIONS[name](files) == expected
    assert fault.times == 0


@pytest.mark.parametrize("kind", ["unavailable", "reset"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_trouble_that_stays_is_one_complaint(files, bucket, eager, kind, name):
    with bucket.failing(kind, METHODS[name], times=-1), pytest.raises(StoreUnavailable) as caught:
        OPERATIONS[name](files)
    reason = "HttpError: busy, 503" if kind == "unavailable" else "ServerDisconnectedError: Server disconnected"
    path = {"create": "b", "list": "logs"}.get(name, "a")
    doing = {"create": "write", "size": "read"}.get(name, name)
    assert str(caught.value) == (
        f"store {files.url}: cannot {doing} {path}: no proper answer after several tries ({reason}); try again later, "
        f"or {CHOOSE}"
    )


def test_no_service_at_all_is_one_complaint(files, eager, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match=r"^store gs://bucket/\w+: cannot read a: ") as caught:
        files.read("a")
    assert str(caught.value).endswith(CHOOSE)


def test_a_bucket_that_is_not_there_is_said_to_be_missing(bucket):
    message = (
        "store gs://absent/x: there is no bucket `absent`: make it (`gcloud storage buckets create gs://absent`), "
        f"or {CHOOSE}"
    )
    for operation in OPERATIONS.values():
        with pytest.raises(StoreUnavailable) as caught:
            operation(Store("gs://absent/x").files)
        assert str(caught.value) == message
    for writing in (False, True):
        with pytest.raises(StoreUnavailable, match="there is no bucket `absent`"):
            Store("gs://absent/x").check(writing=writing)


@pytest.mark.parametrize("status", [401, 403])
def test_a_bucket_that_one_may_not_use_is_said_to_be_forbidden(bucket, status, monkeypatch):
    monkeypatch.setitem(bucket.refusing, "private", status)
    advice = {
        401: "no valid Google credentials: run `gcloud auth application-default login`",
        403: "permission denied: give this account the role `Storage Object User` on the bucket `private`",
    }
    for name, operation in OPERATIONS.items():
        doing = {"create": "write", "size": "read"}.get(name, name)
        path = {"create": "b", "list": "logs"}.get(name, "a")
        with pytest.raises(StoreUnavailable) as caught:
            operation(Store("gs://private/x").files)
        assert str(caught.value) == f"store gs://private/x: cannot {doing} {path}: {advice[status]}, or {CHOOSE}"


def test_a_bucket_that_may_not_be_listed_can_be_read(bucket, monkeypatch):
    store = Store("gs://bucket/x")
    call = store.files.fs.call

    def unlisted(method, path, *given, **named):
        if path == "b/{}/o":
            raise OSError("Forbidden: b/bucket/o")
        return call(method, path, *given, **named)

    monkeypatch.setattr(store.files.fs, "call", unlisted)
    assert store.files.read("a") is None


@pytest.mark.parametrize("url", ["gs://", "gs:///x"])
def test_a_url_without_a_bucket_is_refused(url):
    with pytest.raises(StoreUnavailable) as caught:
        Store(url)
    assert str(caught.value) == f"store {url} names no bucket: write gs://bucket/folder"


def test_the_folder_of_a_store_cannot_lead_out_of_it():
    with pytest.raises(ValueError, match="is no path below a store"):
        Store("gs://bucket/a/../b")


def test_a_store_can_be_a_whole_bucket_and_gcs_names_it_too(bucket):
    Store("gs://bucket").files.create("a/b", b"one")
    assert list(bucket.buckets["bucket"]) == ["a/b"]
    assert Store("gcs://bucket/").files.read("a/b") == b"one"
    assert Store("gs://bucket").files.names("a") == ["b"]


def test_any_content_arrives_as_it_is(files):
    for content in (b"", b"\r\n", b"\n--==0==--\n", b"a\r\n\r\n--", bytes(range(256)) * 10):
        files.replace("a", [content])
        assert files.read("a") == content


def test_names_of_objects_may_have_any_characters(files):
    for name in ("@1.0", "a b", "é", "50%", "a#1", "a?b", "a&b=c"):
        assert files.create(f"odd/{name}", name.encode()) is True
        assert files.read(f"odd/{name}") == name.encode()
        assert files.size(f"odd/{name}") == len(name.encode())
    assert len(files.names("odd")) == 7
    for name in files.names("odd"):
        files.remove(f"odd/{name}")
    assert files.names("odd") == []


def test_listings_of_several_pages_are_read_to_the_end(files):
    for number in range(8):
        files.create(f"logs/{number}", b"")
        files.create(f"logs/deeper{number}/x", b"")
    assert files.names("logs") == sorted([*map(str, range(8)), *(f"deeper{number}" for number in range(8))])


SIZES = (999, 1000, 1001, 2000, 12_345)


@pytest.mark.parametrize("size", SIZES)
def test_a_large_object_is_sent_and_read_in_pieces(files, bucket, small_pieces, size):
    content = np.random.default_rng(size).bytes(size)
    bucket.requests.clear()
    files.replace("a", [content[:700], memoryview(content)[700:]])
    sent = [request for request in bucket.requests if request[0] == "PUT"]
    assert len(sent) == (0 if size < 1000 else -(-size // 1000))
    assert b"".join(files.pieces("a")) == content
    assert max(map(len, files.pieces("a"))) <= 1000
    assert files.read("a") == content


def test_nothing_is_seen_of_a_large_object_before_its_end(files, bucket, small_pieces):
    seen = []

    def chunks():
        for number in range(5):
            seen.append(files.size("a"))
            yield bytes([number]) * 1000

    files.replace("a", chunks())
    assert seen == [None] * 5
    assert files.size("a") == 5000


@pytest.mark.parametrize("error", [KeyboardInterrupt, ContentDamaged])
def test_a_large_object_whose_writing_stops_leaves_nothing(files, bucket, small_pieces, error):
    def chunks():
        yield b"x" * 3500
        raise error

    with pytest.raises(error):
        files.replace("a", chunks())
    assert files.read("a") is None
    assert all(upload.done for upload in bucket.uploads.values())


def test_what_the_service_did_not_take_of_a_piece_is_sent_again(files, bucket, small_pieces):
    content = np.random.default_rng(0).bytes(4500)
    for swallowed in (1, 300, 1000):
        bucket.swallowed = swallowed
        files.replace("a", [content])
        assert bucket.swallowed == 0
        assert files.read("a") == content


@pytest.mark.parametrize("kind", ["unavailable", "reset", "lost"])
@pytest.mark.parametrize("pattern", ["POST", "PUT"])
def test_a_large_object_survives_passing_troubles(files, bucket, small_pieces, eager, kind, pattern):
    content = np.random.default_rng(0).bytes(4500)
    with bucket.failing(kind, pattern, times=2) as fault:
        files.replace("a", [content])
    assert fault.times == 0
    assert files.read("a") == content


def test_a_large_array_comes_back_mapped_from_a_file_without_a_name(bucket, small_pieces, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = Store("gs://bucket/x")
    array = np.arange(20_000.0)
    got = store.get(store.put(array))
    assert np.array_equal(got, array)
    assert not got.flags.writeable
    assert "(deleted)" in next(
        line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line
    )
    assert list(tmp_path.iterdir()) == []


def test_a_large_leaf_that_is_damaged_or_gone_is_never_served(bucket, small_pieces):
    store = Store("gs://bucket/x")
    stored = store.put(np.arange(20_000.0))
    ((digest, size),) = stored.leaves
    path = f"blobs/{digest.hex()[:2]}/{digest.hex()[2:]}"
    content = store.files.read(path)
    store.files.replace(path, [content[:-1] + b"x"])
    with pytest.raises(ContentDamaged, match=r"was damaged .* and has been removed; evaluate again"):
        store.read_leaf(digest, size)
    with pytest.raises(LeafMissing, match="is gone; evaluate again"):
        store.read_leaf(digest, size)


def test_no_room_for_a_local_copy_is_said_with_the_place(bucket, small_pieces, monkeypatch):
    import errno
    import tempfile

    store = Store("gs://bucket/x")
    stored = store.put(np.arange(20_000.0))

    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StoreUnavailable) as caught:
        store.get(stored)
    assert str(caught.value).startswith(
        f"store gs://bucket/x: cannot keep a local copy in {tempfile.gettempdir()} of blobs/"
    )
    assert str(caught.value).endswith(f"the disk is full: free some space, or {CHOOSE}")


def test_the_leaves_of_a_value_are_sent_looked_for_and_fetched_several_at_a_time(bucket, monkeypatch, tmp_path):
    store = Store("gs://bucket/x")
    for number in range(4):
        (tmp_path / f"{number}").write_text(f"file {number}")
    value = Directory.of(tmp_path)
    for name in ("replace", "size", "read"):
        meet(monkeypatch, store.files, name, 4)
    stored = store.put(value)
    assert store.complete(stored)
    assert (store.get(stored).path / "3").read_text() == "file 3"


def meet(patch, files, name, count):
    """An operation of which none ends before so many have begun; records and manifests aside."""
    operation, barrier = getattr(files, name), threading.Barrier(count)

    def together(path, *given):
        if path.startswith("blobs/"):
            barrier.wait(30)
        return operation(path, *given)

    patch.setattr(files, name, together)


def test_a_directory_holds_files_of_equal_content_and_keeps_them_while_it_lives(bucket, tmp_path):
    import gc

    for name in "abc":
        (tmp_path / name).write_text("same")
    store = Store("gs://bucket/x")
    place = store.get(store.put({"d": Directory.of(tmp_path)}))["d"]
    folder = place.path
    gc.collect()
    assert [(folder / name).read_text() for name in "abc"] == ["same"] * 3


def test_opening_a_store_asks_nothing_of_the_service(bucket):
    bucket.requests.clear()
    Store("gs://bucket/x")
    assert bucket.requests == []


def test_importing_the_language_imports_neither_gcsfs_nor_what_it_needs():
    program = (
        "import sys, marin_dsl, marin_dsl.store; "
        "print(sorted({'gcsfs', 'fsspec', 'aiohttp', 'google', 'tensorstore'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
