"""Values, results, failures, logs and recipes of a store."""

import errno
import itertools
import json
import os

import numpy as np
import pytest
from made_up_records import failure_record, recipe_record, result_record

from marin_dsl import Directory, File
from marin_dsl.encoding import Leaf, LeafMissing, encode_with_leaves, format_digest
from marin_dsl.store import ContentDamaged, Store, StoredValue, StoreUnavailable
from marin_dsl.store.blobs import INLINE_LIMIT
from marin_dsl.store.records import SCHEMA, write_record
from marin_dsl.testing import same

CALL = bytes(range(32))
PATH = "results/00/" + CALL.hex()[2:] + ".json"


def record_of(store, value):
    return result_record(store.put(value))


def blobs(store):
    """Content of every blob by path."""
    return {
        f"blobs/{folder}/{name}": store.files.read(f"blobs/{folder}/{name}")
        for folder in store.files.names("blobs")
        for name in store.files.names(f"blobs/{folder}")
    }


VALUES = {
    "small": {"loss": 0.5},
    "at the limit of a record": "x" * (INLINE_LIMIT - 3),
    "beyond it": "x" * (INLINE_LIMIT - 2),
    "many parts": list(range(5000)),
    "large text": "é" * 100_000,
    "large bytes": b"x" * 100_000,
    "large array": np.arange(100_000.0),
    "nest with large leaves": [{"w": np.ones((300, 300)), "again": np.ones((300, 300))}, "y" * 70_000],
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_got_as_it_was_put(store, name):
    stored = store.put(VALUES[name])
    assert same(store.get(stored), VALUES[name])
    assert store.complete(stored)
    assert stored.digest == encode_with_leaves(VALUES[name]).digest
    assert StoredValue.from_record(json.loads(json.dumps(stored.as_record()))) == stored


def test_a_short_manifest_is_in_the_record_and_a_long_one_is_a_blob(store):
    assert store.put(VALUES["at the limit of a record"]).inline is not None
    assert blobs(store) == {}
    assert store.put(VALUES["beyond it"]).inline is None
    assert len(blobs(store)) == 1


def test_equal_values_in_two_stores_are_the_same_bytes_in_the_same_blobs(store, tmp_path):
    other = Store(tmp_path / "other")
    for value in VALUES.values():
        store.put(value)
    for value in reversed(VALUES.values()):
        other.put(value)
        other.put(value)
    assert blobs(store) == blobs(other)
    assert len(blobs(store)) > 6


def test_a_blob_is_named_by_the_sha256_of_its_content(store):
    import hashlib

    store.put(VALUES["nest with large leaves"])
    for path, content in blobs(store).items():
        assert path.removeprefix("blobs/").replace("/", "") == hashlib.sha256(content).hexdigest()


def test_what_one_reader_does_no_other_reader_sees(store):
    stored = store.put(VALUES["nest with large leaves"])
    first = store.get(stored)
    first[0]["w"] = None
    first.append("spoilt")
    assert same(store.get(stored), VALUES["nest with large leaves"])


def test_a_large_array_of_a_local_store_is_mapped_and_read_only(local):
    array = local.get(local.put(VALUES["large array"]))
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_reading_lazily_reads_no_leaf(store):
    stored = store.put([np.arange(100_000.0), "x" * 100_000])
    for digest, _ in stored.leaves:
        store.files.remove(f"blobs/{digest.hex()[:2]}/{digest.hex()[2:]}")
    array, _ = store.get(stored, lazy=True)
    assert array.shape == [100_000]
    with pytest.raises(LeafMissing):
        store.get(stored)


def test_a_result_is_visible_when_it_is_committed(store):
    record = record_of(store, {"loss": 1.0})
    assert store.result(CALL) is None
    assert store.commit(CALL, record) == record
    assert store.result(CALL) == record


def test_the_first_commit_of_a_call_stays_and_a_different_second_one_is_recorded(store):
    first, second = record_of(store, 1), record_of(store, 2)
    store.commit(CALL, first)
    assert store.commit(CALL, second) == first
    assert store.result(CALL) == first
    assert store.files.names(f"conflicts/{CALL.hex()}") == ["000001.json"]
    assert store.last(f"conflicts/{CALL.hex()}") == {**second, "number": 1}


def test_a_result_and_the_expression_that_it_belongs_to_can_be_one_record(store):
    visible = store.commit(CALL, record_of(store, 1), structure=recipe_record("f"))
    assert store.recipe(CALL) == store.result(CALL) == visible
    assert visible["operator"]["name"] == "f"
    assert store.commit(CALL, record_of(store, 2), structure=recipe_record("g")) == visible
    assert store.recipe(CALL) == visible


def test_the_record_of_an_expression_that_is_there_stays_when_its_result_comes(store):
    store.put_recipe(CALL, recipe_record("f"))
    store.commit(CALL, record_of(store, 1), structure=recipe_record("f"))
    assert store.recipe(CALL) == recipe_record("f")
    assert store.result(CALL)["operator"]["name"] == "f"


@pytest.fixture
def synced(local, monkeypatch):
    """Paths below a local store that were brought to the disk, in order, each with whether the result was visible."""
    seen, fsync = [], os.fsync

    def noted(descriptor):
        place = os.readlink(f"/proc/self/fd/{descriptor}")
        seen.append((os.path.relpath(place, local.files.root), local.files.size(PATH) is not None))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return seen


def test_what_is_to_last_is_on_the_disk_first_the_value_then_the_result_that_names_it(local, synced):
    record = record_of(local, ["x" * 3000, np.arange(100_000.0)])
    assert local.commit(CALL, record, lasting=True) == record
    blobs_of_value = [path for path, _ in synced if path.startswith("blobs/") and len(path) > 60]
    assert sorted(blobs_of_value) == sorted(blobs(local))
    assert [path for path, visible in synced if not visible and path.startswith(("results", "recipes"))] == []
    assert [path for path, visible in synced if visible] == [PATH, "results/00", "results", "."]
    del synced[:]
    assert local.commit(CALL, record, lasting=True) == record
    assert [path for path, _ in synced if path.startswith("results")] == [PATH, "results/00", "results"]


def test_what_is_made_anew_at_once_does_not_wait_for_the_disk(local, synced):
    local.commit(CALL, record_of(local, np.arange(100_000.0)))
    assert synced == []


def test_a_store_elsewhere_takes_what_is_to_last(store):
    record = record_of(store, "x" * 3000)
    assert store.commit(CALL, record, lasting=True) == record
    assert store.result(CALL) == record


def test_a_disk_that_cannot_keep_a_result_is_complained_about(local, monkeypatch):
    def broken(descriptor):
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StoreUnavailable, match=r"cannot write blobs/.*OSError: no; see whether the place is mounted"):
        local.commit(CALL, record_of(local, "x" * 3000), lasting=True)
    assert local.result(CALL) is None


def test_an_equal_second_commit_is_no_conflict(store):
    first = {**record_of(store, 1), "seconds": 1}
    store.commit(CALL, first)
    assert store.commit(CALL, {**record_of(store, 1), "seconds": 2}) == first
    assert store.files.names(f"conflicts/{CALL.hex()}") == []


GARBAGE = {
    "empty": b"",
    "null": b"null",
    "text": b"hello",
    "binary": bytes(range(256)),
    "deep": b"[" * 50_000,
    "cut": write_record(PATH, {"value": {"digest": "sha256:" + "0" * 64, "inline": None, "leaves": []}})[:-20],
    "other digest": write_record(PATH, {"a": 1}).replace(b'{"a":1}', b'{"a":2}'),
    "no value": write_record(PATH, {"a": 1}),
    "list": b"[1, 2]",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_damaged_record_is_a_miss_and_the_next_commit_takes_its_place(store, kind):
    store.files.create(PATH, GARBAGE[kind])
    assert store.result(CALL) is None
    record = record_of(store, 5)
    assert store.commit(CALL, record) == record
    assert store.result(CALL) == record
    assert store.files.names(f"conflicts/{CALL.hex()}") == []


@pytest.mark.parametrize("name", ["beyond it", "large text", "nest with large leaves"])
def test_a_result_one_of_whose_blobs_is_gone_is_a_miss_and_is_committed_anew(store, name):
    record = record_of(store, VALUES[name])
    store.commit(CALL, record)
    for path in blobs(store):
        store.files.remove(path)
        assert store.result(CALL) is None
        store.commit(CALL, record_of(store, VALUES[name]))
        assert store.result(CALL) is not None
        assert same(store.get(StoredValue.from_record(store.result(CALL)["value"])), VALUES[name])


@pytest.mark.parametrize("name", ["beyond it", "large text", "large array"])
def test_a_damaged_blob_is_never_served_but_removed(store, name):
    stored = store.put(VALUES[name])
    (path,) = list(blobs(store))[:1]
    content = store.files.read(path)
    digest = f"sha256:{path.removeprefix('blobs/').replace('/', '')}"
    store.files.replace(path, [content[:-1] + bytes([content[-1] ^ 1])])
    with pytest.raises(ContentDamaged) as caught:
        store.get(stored)
    assert str(caught.value) == (
        f"store {store.url}: blob {digest} was damaged (its content does not have this digest) and has been removed; "
        "evaluate again to compute it anew"
    )
    with pytest.raises(LeafMissing) as caught:
        store.get(stored)
    assert str(caught.value) == f"store {store.url}: blob {digest} is gone; evaluate again to compute it anew"
    assert not store.complete(stored)
    store.put(VALUES[name])
    assert same(store.get(stored), VALUES[name])


def test_a_damaged_blob_of_a_store_that_cannot_be_written_is_not_served_either(local, monkeypatch):
    stored = local.put("x" * 2000)
    (path,) = blobs(local)
    local.files.replace(path, [b"y" * 2003])

    def refuse(path):
        raise StoreUnavailable("read-only")

    monkeypatch.setattr(local.files, "remove", refuse)
    with pytest.raises(
        ContentDamaged, match=r"is damaged \(its content .* this digest\), and cannot be removed: read-only"
    ):
        local.get(stored)


def test_a_blob_cut_short_makes_a_miss_and_is_written_anew(store):
    record = record_of(store, "x" * 100_000)
    store.commit(CALL, record)
    (path,) = blobs(store)
    store.files.replace(path, [b"x" * 50_000])
    assert store.result(CALL) is None
    store.put("x" * 100_000)
    assert store.result(CALL) == record


def test_a_value_changed_after_its_digest_was_taken_is_refused_and_leaves_no_blob(store):
    array = np.zeros(100_000)
    encoded = encode_with_leaves([array])
    array[5] = 1
    with pytest.raises(ContentDamaged) as caught:
        store.put_encoded(encoded)
    assert str(caught.value) == (
        "a large value (800000 bytes) changed after it became part of an expression or a result; pass a copy, and "
        "leave files that a value refers to as they are"
    )
    assert blobs(store) == {}


@pytest.mark.parametrize("change", ["rewritten", "cut", "grown"])
def test_a_file_changed_after_its_digest_was_taken_is_refused_and_leaves_no_blob(store, tmp_path, change):
    place = tmp_path / "data"
    place.write_bytes(b"x" * 3_000_000)
    file = File.of(place)
    place.write_bytes({"rewritten": b"y" * 3_000_000, "cut": b"x" * 2_000_000, "grown": b"x" * 3_000_001}[change])
    with pytest.raises(ContentDamaged, match=r"^a large value \(3000000 bytes\) changed after it became part of"):
        store.put(file)
    assert blobs(store) == {}


def test_a_file_that_is_gone_before_it_is_stored_is_named_with_advice(store, tmp_path):
    place = tmp_path / "data"
    place.write_bytes(b"x")
    file = File.of(place)
    place.unlink()
    with pytest.raises(LeafMissing) as caught:
        store.put({"out": file})
    assert str(caught.value) == (
        f"the file {place} that a value refers to cannot be read any more (No such file or directory); keep it until "
        "the value is stored: in an operator, write it below `context().scratch`"
    )
    assert blobs(store) == {}


def test_a_leaf_whose_content_is_elsewhere_cannot_be_put(store):
    with pytest.raises(LeafMissing, match=r"^the content of leaf sha256:0{64} \(5 bytes\) is not at hand$"):
        store.put_leaf(Leaf(bytes(32), 5, None))
    assert blobs(store) == {}


def test_files_and_directories_are_got_with_their_content(store, tmp_path):
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "sub" / "a").write_bytes(b"alpha")
    (tmp_path / "d" / "empty").write_bytes(b"")
    value = {"file": File.of(tmp_path / "d" / "sub" / "a"), "folder": Directory.of(tmp_path / "d")}
    got = store.get(store.put(value))
    assert got == value
    assert got["file"].read_bytes() == b"alpha"
    assert {name: file.read_text() for name, file in got["folder"].files.items()} == {"empty": "", "sub/a": "alpha"}
    assert (got["folder"].path / "sub" / "a").read_bytes() == b"alpha"
    assert store.put(got).digest == store.put(value).digest


def test_failures_are_kept_attempt_by_attempt(store):
    assert store.last_failure(CALL) is None
    assert [store.fail(CALL, failure_record(text)) for text in ("one", "two", "three")] == [1, 2, 3]
    assert store.last_failure(CALL) == {**failure_record("three"), "number": 3}
    assert store.files.names(f"failures/{CALL.hex()}") == ["000001.json", "000002.json", "000003.json"]
    assert store.read(f"failures/{CALL.hex()}/000001.json") == failure_record("one")


def test_failures_never_hide_a_result(store):
    store.fail(CALL, failure_record("one"))
    assert store.result(CALL) is None
    record = record_of(store, 1)
    store.commit(CALL, record)
    store.fail(CALL, failure_record("two"))
    assert store.result(CALL) == record


def test_a_damaged_entry_of_a_log_is_passed_over(store):
    store.add("log", {"n": 1})
    store.add("log", {"n": 2})
    store.files.replace("log/000002.json", [b"garbage"])
    assert store.last("log") == {"n": 1, "number": 1}
    assert store.add("log", {"n": 3}) == 3
    store.files.remove("log/000001.json")
    assert store.add("log", {"n": 4}) == 4
    assert store.last("log") == {"n": 4, "number": 4}


def test_recipes_are_written_once_and_damaged_ones_anew(store):
    path = "recipes/00/" + CALL.hex()[2:] + ".json"
    assert store.recipe(CALL) is None
    store.put_recipe(CALL, recipe_record("f"))
    store.put_recipe(CALL, recipe_record("g"))
    assert store.recipe(CALL) == recipe_record("f")
    store.files.replace(path, [b"garbage"])
    assert store.recipe(CALL) is None
    store.put_recipe(CALL, recipe_record("f"))
    assert store.recipe(CALL) == recipe_record("f")


def test_the_call_of_a_recipe_is_the_latest(store):
    assert store.call_of(CALL) is None
    store.put_call(CALL, bytes(32))
    assert store.call_of(CALL) == bytes(32)
    store.put_call(CALL, CALL)
    assert store.call_of(CALL) == CALL


def test_opening_a_store_writes_nothing_and_looking_into_it_neither(tmp_path):
    store = Store(tmp_path / "store")
    store.check()
    assert store.result(CALL) is None
    assert store.last_failure(CALL) is None
    assert not (tmp_path / "store").exists()


def test_a_store_that_is_to_be_written_is_made_with_its_schema(store):
    store.check(writing=True)
    store.check(writing=True)
    store.check()
    assert json.loads(store.files.read("format.json")) == {"schema": SCHEMA}
    assert store.files.names("runs") == []


def test_a_store_of_a_later_version_is_refused(store):
    store.files.create("format.json", b'{"schema": 3}')
    for writing in (False, True):
        with pytest.raises(StoreUnavailable) as caught:
            store.check(writing=writing)
        assert str(caught.value) == (
            f"store {store.url} has schema 3, and this version reads up to 2; upgrade Marin DSL, or choose another "
            "store with --store or MARIN_STORE"
        )


def test_a_store_of_an_earlier_version_is_read_and_becomes_one_of_this_version_when_it_is_written(store):
    store.files.create("format.json", b'{"schema": 1}')
    store.check()
    assert store.files.read("format.json") == b'{"schema": 1}'
    store.check(writing=True)
    assert json.loads(store.files.read("format.json")) == {"schema": SCHEMA}


UNFINISHED = [b"", b"{", b'{"schema": ']


@pytest.mark.parametrize("content", UNFINISHED, ids=range(len(UNFINISHED)))
def test_a_format_file_whose_writing_was_stopped_is_written_anew(store, content):
    store.files.create("format.json", content)
    store.check()
    store.check(writing=True)
    assert json.loads(store.files.read("format.json")) == {"schema": SCHEMA}


DAMAGED = [b"{x", b"[]", b"1", b"{}", b'{"schema": null}', b'{"schema": "1"}', b'{"schema": 0}',
           b'{"schema": true}', b'{"schema": 1.5}', b'{"schema": -1}', b"\xff", b"[" * 50_000]  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_format_file_is_said_to_be_damaged(store, content):
    store.files.create("format.json", content)
    with pytest.raises(StoreUnavailable) as caught:
        store.check()
    assert str(caught.value) == (
        f'store {store.url}: format.json is damaged; if the folder is a Marin store, write {{"schema": 2}} into it, '
        "else choose another folder"
    )


def test_checking_finds_out_whether_a_store_can_really_be_written(local, monkeypatch):
    import errno
    import os

    from marin_dsl.store import local as files

    local.check(writing=True)

    def full(stream, chunk):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "_write_all", full)
    local.check()
    with pytest.raises(StoreUnavailable, match=r"cannot write runs/.*: the disk is full: free some space, or choose"):
        local.check(writing=True)
    assert local.files.names("runs") == []


def test_the_digest_of_a_stored_value_is_written_in_full(store):
    stored = store.put(1)
    assert stored.as_record()["digest"] == format_digest(stored.digest)
    assert len(stored.as_record()["digest"]) == 71


def test_a_result_that_is_there_and_is_not_seen_yet_stays(store, monkeypatch):
    """As on storage that shows late what somebody else has written."""
    first, second = (record_of(store, value) for value in ("first", "second"))
    store.commit(CALL, first)
    looks = itertools.count()

    def unseen_at_first(look):
        return lambda path: None if path == PATH and next(looks) < 3 else look(path)

    for name in ("read", "size"):
        monkeypatch.setattr(store.files, name, unseen_at_first(getattr(store.files, name)))
    assert store.commit(CALL, second) == first
    assert store.result(CALL) == first
    assert store.last(f"conflicts/{CALL.hex()}")["value"] == second["value"]


def test_a_value_in_a_record_that_is_not_what_its_digest_says_is_not_served(store):
    stored = store.put("small")
    wrong = StoredValue(stored.digest, store.put("other").inline, ())
    with pytest.raises(ContentDamaged, match="is damaged in its record"):
        store.get(wrong)
    assert not store.complete(wrong)


def test_the_next_record_of_a_log_comes_after_all_that_are_there(store):
    for number in range(3):
        store.add("log", {"n": number})
    for gone in ("000001", "000002"):
        store.files.remove(f"log/{gone}.json")
    assert store.add("log", {"n": 3}) == 4
    assert store.last("log") == {"n": 3, "number": 4}
