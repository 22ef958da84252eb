"""Verification finds every change of every file, and every name of something that is not there; it changes nothing."""

import pytest
from experiments import evaluated, new_store
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_dsl import evaluate, op, provenance
from marin_dsl.encoding import format_digest
from marin_dsl.evaluation.recording import Recorder
from marin_dsl.store import Store, StoreUnavailable
from marin_dsl.store.records import write_record
from marin_dsl.store.verify import Finding, verify


@pytest.fixture(autouse=True, scope="module")
def _quick_environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3" * 2000})
        yield


@pytest.fixture(scope="module")
def full():
    """A store in memory with an experiment, its root, and its files."""
    store = new_store("memory")
    root = evaluated(store)
    paths = (path.removeprefix(f"{store.files.root}/") for path in store.files.fs.find(store.files.root))
    return store, root, {path: store.files.read(path) for path in paths}


@pytest.fixture
def restored(full):
    restore(*full)
    return full


def restore(store, _, files):
    store.files.fs.rm(store.files.root, recursive=True)
    for path, content in files.items():
        store.files.replace(path, [content])


@pytest.mark.parametrize("kind", ["local", "memory", "google", pytest.param("s3", marks=pytest.mark.long)])
def test_a_store_that_is_as_it_was_written_is_sound(kind, new_url):
    store = Store(new_url(kind))
    empty = verify(store)
    assert (empty.sound, empty.blobs, empty.records) == (True, 0, 0)
    evaluated(store)
    found = verify(store)
    assert found.sound
    assert found.findings == ()
    assert found.unused == 0
    assert found.blobs > 5
    assert found.records > 20
    assert str(found) == f"{found.blobs} blobs ({found.bytes} bytes), {found.records} records; sound"


def checked(path):
    """Whether a file is one that says by itself whether it is intact."""
    return not path.endswith((".jsonl", "format.json"))


@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_any_changed_or_missing_byte_of_any_file_is_found(full, data):
    store, _, files = full
    restore(*full)
    path = data.draw(st.sampled_from(sorted(filter(checked, files))))
    content = bytearray(files[path])
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    store.files.replace(path, [bytes(content)])
    found = verify(store)
    assert not found.sound
    assert any(finding.kind == "damaged" and finding.path == path for finding in found.findings)
    assert store.files.read(path) == bytes(content)


def test_every_blob_that_is_lost_is_named_by_what_needs_it(restored):
    store, _, files = restored
    for path in files:
        if path.startswith("blobs/"):
            store.files.remove(path)
            digest = format_digest(bytes.fromhex(path[6:].replace("/", "")))
            (first, *_) = verify(store).findings
            assert first.kind == "gone"
            assert first.message.startswith(f"blob {digest} is gone or damaged; evaluate ")
            store.files.replace(path, [files[path]])


def test_every_recipe_that_is_lost_is_named_by_what_refers_to_it(restored):
    store, _, files = restored
    for path in files:
        if path.startswith("recipes/") and path.endswith(".json"):
            store.files.remove(path)
            key = format_digest(bytes.fromhex(path[8:-5].replace("/", "")))
            found = verify(store).findings
            assert any(f"{key}, of which there is no record" in finding.message for finding in found)
            store.files.replace(path, [files[path]])


def test_a_label_without_its_recipe_is_named(restored):
    store, root, _ = restored
    store.files.remove(f"recipes/{root.key.hex()[:2]}/{root.key.hex()[2:]}.json")
    assert (
        Finding(
            "gone",
            "labels/experiment/@1.0",
            f"experiment@1.0 stands for {format_digest(root.key)}, of which there is no record",
        )
        in verify(store).findings
    )


def test_a_recipe_whose_result_is_gone_is_open_and_no_damage(restored):
    store, root, _ = restored
    call = store.call_of(root.key)
    store.files.remove(f"results/{call.hex()[:2]}/{call.hex()[2:]}.json")
    found = verify(store)
    assert found.sound
    assert [(finding.kind, finding.message) for finding in found.findings] == [
        ("open", "it has neither a result nor a failure; evaluate again")
    ]


@pytest.mark.parametrize("path", ["blobs/ab/cd", "blobs/zz/" + "0" * 62, "results/ab/x.json", "recipes/ab/y.txt"])
def test_a_file_that_no_store_has_is_a_stray(restored, path):
    store, _, _ = restored
    store.files.create(path, b"x")
    found = verify(store)
    assert not found.sound
    kind = "blob" if path.startswith("blobs") else "record"
    assert [(finding.kind, finding.path) for finding in found.findings if finding.kind == "stray"] == [("stray", path)]
    assert f"no {kind} has such a name; remove it" in str(found)


def test_a_blob_that_nothing_names_is_counted(restored):
    store, _, _ = restored
    store.put("z" * 5000)
    found = verify(store)
    assert (found.sound, found.unused) == (True, 1)


def test_the_report_says_what_and_where_with_damage_first(restored):
    store, _, files = restored
    paths = sorted(path for path in files if path.startswith("blobs/"))
    store.files.replace(paths[0], [b"x"])
    found = verify(store)
    lines = str(found).splitlines()
    assert lines[0].endswith(f"; {len(found.findings)} findings")
    assert lines[1] == (
        f"  damaged {paths[0]}: its content has the digest sha256:"
        "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881; evaluate again or remove it"
    )


def test_a_store_of_a_later_version_is_not_judged():
    store = new_store("memory")
    store.files.create("format.json", b'{"schema": 3}')
    with pytest.raises(StoreUnavailable, match="reads up to 2; upgrade"):
        verify(store)


def test_a_record_of_a_later_version_is_not_judged(restored):
    store, _, _ = restored
    path = "labels/experiment/@1.0/000001.json"
    store.files.replace(path, [write_record(path, {"a": 1}, schema=3)])
    with pytest.raises(StoreUnavailable) as caught:
        verify(store)
    assert str(caught.value) == (
        f"store {store.url}: labels/experiment/@1.0/000001.json: a record has schema 3, and this version of Marin DSL "
        "reads up to 2; upgrade it"
    )


ALIVE = {"first": False}


@op(version="1")
def leaf(number: int) -> int:
    if number == 1 and not ALIVE["first"]:
        raise KeyboardInterrupt
    return number


@op(version="1")
def total(numbers: list[int]) -> int:
    return sum(numbers)


def test_what_a_killed_run_had_not_begun_with_is_open_and_no_damage(tmp_path, monkeypatch):
    store, root = Store(tmp_path), total([leaf(number) for number in range(4)])
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "catch_up", lambda recorder: None)  # a kill leaves no time for it
        with pytest.raises(KeyboardInterrupt):
            evaluate(root, store=store, debug=True)
    found = verify(store)
    assert found.sound
    assert {finding.message for finding in found.findings} == {
        f"it refers to {format_digest(leaf(number).key)}, of which there is no record yet; evaluate again"
        for number in (1, 2, 3)
    }
    monkeypatch.setitem(ALIVE, "first", True)
    evaluate(root, store=store, debug=True)
    assert verify(store).findings == ()
