"""Stores in buckets of any service: one winner, retries, uploads in pieces, one clear complaint of what is wrong."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from marin_dsl import Directory
from marin_dsl.encoding import LeafMissing
from marin_dsl.store import ContentDamaged, Store, StoreUnavailable

CHOOSE = "choose another store with --store or MARIN_STORE"


RACER = """
import sys
from marin_dsl.store import Store
store = Store(sys.argv[1])
for turn in range(20):
    sys.stdin.readline()
    won = store.files.create(f"race/{turn}", sys.argv[2].encode())
    print(int(won), flush=True)
"""


@pytest.mark.parametrize("kind", ["local", "google", "s3"])
def test_of_two_processes_that_create_one_file_exactly_one_wins(kind, new_url):
    url = new_url(kind)
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


def test_a_creation_whose_reply_was_lost_is_known_as_ones_own(files, service, eager):
    with service.failing("lost", service.methods["create"]):
        assert files.create("a", b"same") is True
    assert files.create("a", b"same") is False
    assert files.read("a") == b"same"


def test_of_an_object_that_somebody_removes_meanwhile_nobody_believes_to_be_the_maker(files, service, monkeypatch):
    files.create("a", b"theirs")
    upload = files._upload

    def removed_afterwards(*given, **condition):
        try:
            upload(*given, **condition)
        finally:
            files.remove("a")

    monkeypatch.setattr(files, "_upload", removed_afterwards)
    assert files.create("a", b"mine") is False


REASONS = {
    ("gs", "unavailable"): "HttpError: busy, 503",
    ("gs", "reset"): "ServerDisconnectedError: Server disconnected",
    ("s3", "unavailable"): "ServiceUnavailable: busy|503: Service Unavailable",
    ("s3", "reset"): "(ConnectionClosed|EndpointConnection)Error: (Connection was closed|Could not connect) .*",
}
OPERATIONS = {
    "read": lambda files: files.read("a"),
    "write": lambda files: files.replace("a", [b"one"]),
    "create": lambda files: files.create("b", b"one"),
    "size": lambda files: files.size("a"),
    "list": lambda files: files.names("logs"),
    "remove": lambda files: files.remove("a"),
}


@pytest.mark.parametrize("kind", ["unavailable", "reset", "lost"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_passing_trouble_of_the_service_is_tried_again(files, service, eager, kind, name):
    files.replace("a", [b"one"])
    expected = {"read": b"one", "size": 3, "list": [], "create": True}.get(name)
    with service.failing(kind, service.methods[name], times=2) as fault:
        assert OPERATIONS[name](files) == expected
    assert fault.times == 0


@pytest.mark.parametrize("kind", ["unavailable", "reset"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_trouble_that_stays_is_one_complaint(files, service, eager, kind, name):
    with service.failing(kind, service.methods[name], times=-1), pytest.raises(StoreUnavailable) as caught:
        OPERATIONS[name](files)
    path = {"create": "b", "list": "logs"}.get(name, "a")
    doing = {"create": "write", "size": "read"}.get(name, name)
    before, after = (
        re.escape(f"store {files.url}: cannot {doing} {path}: no proper answer after several tries ("),
        (re.escape(f"); try again later, or {CHOOSE}")),
    )
    assert re.fullmatch(f"{before}({REASONS[service.scheme, kind]}){after}", str(caught.value))


def test_no_service_at_all_is_one_complaint(service, eager, new_clients, monkeypatch):
    monkeypatch.setenv(service.found_by, "http://127.0.0.1:9")
    files = Store(f"{service.scheme}://bucket/x").files
    with pytest.raises(StoreUnavailable, match=r"^store \w+://bucket/\w+: cannot read a: ") as caught:
        files.read("a")
    assert str(caught.value).endswith(CHOOSE)


MAKE = {"gs": "gcloud storage buckets create gs://absent", "s3": "aws s3 mb s3://absent"}


def test_a_bucket_that_is_not_there_is_said_to_be_missing(service):
    url = f"{service.scheme}://absent/x"
    message = f"store {url}: there is no bucket `absent`: make it (`{MAKE[service.scheme]}`), or {CHOOSE}"
    for operation in OPERATIONS.values():
        with pytest.raises(StoreUnavailable) as caught:
            operation(Store(url).files)
        assert str(caught.value) == message
    for writing in (False, True):
        with pytest.raises(StoreUnavailable, match="there is no bucket `absent`"):
            Store(url).check(writing=writing)


REFUSED = {
    ("gs", 401): "no valid Google credentials: run `gcloud auth application-default login`",
    ("gs", 403): ("permission denied: give this account the role `Storage Object User` on the bucket `private`"),
    ("s3", 401): (
        "no valid AWS credentials: run `aws configure` or `aws sso login`, or set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY"
    ),
    ("s3", 403): (
        "permission denied: give this account s3:GetObject, s3:PutObject and s3:DeleteObject on "
        "arn:aws:s3:::private/* and s3:ListBucket on arn:aws:s3:::private"
    ),
}


@pytest.mark.parametrize("status", [401, 403])
def test_a_bucket_that_one_may_not_use_is_said_to_be_forbidden(service, status, monkeypatch):
    monkeypatch.setitem(service.refusing, "private", status)
    url = f"{service.scheme}://private/x"
    for name, operation in OPERATIONS.items():
        doing = {"create": "write", "size": "read"}.get(name, name)
        path = {"create": "b", "list": "logs"}.get(name, "a")
        advice = REFUSED[service.scheme, status]
        with pytest.raises(StoreUnavailable) as caught:
            operation(Store(url).files)
        if (service.scheme, name) == ("s3", "size"):
            advice = REFUSED["s3", 403]  # to a question without a content S3 answers with nothing but the status
        assert str(caught.value) == f"store {url}: cannot {doing} {path}: {advice}, or {CHOOSE}"


@pytest.mark.parametrize("scheme", ["gs", "s3"])
@pytest.mark.parametrize("rest", ["://", ":///x"])
def test_a_url_without_a_bucket_is_refused(scheme, rest):
    with pytest.raises(StoreUnavailable) as caught:
        Store(f"{scheme}{rest}")
    assert str(caught.value) == f"store {scheme}{rest} names no bucket: write {scheme}://bucket/folder"


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_the_folder_of_a_store_cannot_lead_out_of_it(scheme):
    with pytest.raises(ValueError, match="is no path below a store"):
        Store(f"{scheme}://bucket/a/../b")


def test_a_store_can_be_a_whole_bucket(service):
    store = Store(f"{service.scheme}://bucket")
    store.files.create("a/b", b"one")
    assert service.names() == ["a/b"]
    assert store.files.names("a") == ["b"]
    assert [entry.path for entry in store.files.entries()] == ["a/b"]


FORKED = """
import os, sys
from marin_dsl.store import Store
files = Store(sys.argv[1]).files
files.create("a", b"one")
child = os.fork()
if child == 0:
    os._exit(0 if files.read("a") == b"one" and files.create("b", b"two") else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), files.read("b"))
"""


def test_a_forked_process_goes_on_with_connections_of_its_own(service):
    command = [sys.executable, "-c", FORKED, f"{service.scheme}://bucket/x"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0 b'two'\n"


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
def test_a_large_object_is_sent_and_read_in_pieces(files, service, small_pieces, size):
    content = np.random.default_rng(size).bytes(size)
    service.requests.clear()
    files.replace("a", [content[:700], memoryview(content)[700:]])
    sent = [request for request in service.requests if re.search(r"[?&](upload_id|uploadId)=", request[1])]
    assert len([request for request in sent if request[0] == "PUT"]) == (0 if size < 1000 else -(-size // 1000))
    assert b"".join(files.pieces("a")) == content
    assert max(map(len, files.pieces("a"))) <= 1000
    assert files.read("a") == content


def test_nothing_is_seen_of_a_large_object_before_its_end(files, service, small_pieces):
    seen = []

    def chunks():
        for number in range(5):
            seen.append(files.size("a"))
            yield bytes([number]) * 1000

    files.replace("a", chunks())
    assert seen == [None] * 5
    assert files.size("a") == 5000


@pytest.mark.parametrize("error", [KeyboardInterrupt, ContentDamaged])
def test_a_large_object_whose_writing_stops_leaves_nothing(files, service, small_pieces, error):
    def chunks():
        yield b"x" * 3500
        raise error

    with pytest.raises(error):
        files.replace("a", chunks())
    assert files.read("a") is None
    assert service.unfinished() == []


@pytest.mark.parametrize("kind", ["unavailable", "reset", "lost"])
@pytest.mark.parametrize("pattern", ["POST", "PUT"])
def test_a_large_object_survives_passing_troubles(files, service, small_pieces, eager, kind, pattern):
    content = np.random.default_rng(0).bytes(4500)
    with service.failing(kind, pattern, times=2) as fault:
        files.replace("a", [content])
    assert fault.times == 0
    assert files.read("a") == content


def test_a_large_array_comes_back_mapped_from_a_file_without_a_name(service, few_pieces, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = Store(f"{service.scheme}://bucket/x")
    array = np.arange(20_000.0)
    got = store.get(store.put(array))
    assert np.array_equal(got, array)
    assert not got.flags.writeable
    assert "(deleted)" in next(
        line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line
    )
    assert list(tmp_path.iterdir()) == []


def test_a_large_leaf_that_is_damaged_or_gone_is_never_served(service, few_pieces):
    store = Store(f"{service.scheme}://bucket/x")
    stored = store.put(np.arange(20_000.0))
    ((digest, size),) = stored.leaves
    path = f"blobs/{digest.hex()[:2]}/{digest.hex()[2:]}"
    content = store.files.read(path)
    store.files.replace(path, [content[:-1] + b"x"])
    with pytest.raises(ContentDamaged, match=r"was damaged .* and has been removed; evaluate again"):
        store.read_leaf(digest, size)
    with pytest.raises(LeafMissing, match="is gone; evaluate again"):
        store.read_leaf(digest, size)


def test_no_room_for_a_local_copy_is_said_with_the_place(service, few_pieces, monkeypatch):
    import errno
    import tempfile

    store = Store(f"{service.scheme}://bucket/x")
    stored = store.put(np.arange(20_000.0))

    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StoreUnavailable) as caught:
        store.get(stored)
    assert str(caught.value).startswith(
        f"store {store.url}: cannot keep a local copy in {tempfile.gettempdir()} of blobs/"
    )
    assert str(caught.value).endswith(f"the disk is full: free some space, or {CHOOSE}")


def test_the_leaves_of_a_value_are_sent_looked_for_and_fetched_several_at_a_time(service, monkeypatch, tmp_path):
    store = Store(f"{service.scheme}://bucket/x")
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


def test_a_directory_holds_files_of_equal_content_and_keeps_them_while_it_lives(service, tmp_path):
    import gc

    for name in "abc":
        (tmp_path / name).write_text("same")
    store = Store(f"{service.scheme}://bucket/x")
    place = store.get(store.put({"d": Directory.of(tmp_path)}))["d"]
    folder = place.path
    gc.collect()
    assert [(folder / name).read_text() for name in "abc"] == ["same"] * 3


def test_opening_a_store_asks_nothing_of_the_service(service):
    service.requests.clear()
    Store(f"{service.scheme}://bucket/x")
    assert service.requests == []
