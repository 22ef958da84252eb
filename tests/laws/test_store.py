"""L10, L18, L19, L23: whatever stops a store or changes its files, it serves the whole right value or none."""

import contextlib
import errno
import os
import tempfile
import uuid
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import recipe_record, result_record

from marin_dsl import Directory, File, Ok, context, evaluate, op
from marin_dsl.encoding import LeafMissing, encode
from marin_dsl.store import Store, StoredValue, StoreUnavailable
from marin_dsl.store import local as module
from marin_dsl.testing import same, values

CALL = bytes(range(32))
VALUE = {"weights": np.arange(20_000.0), "text": "x" * 70_000, "losses": [n / 7 for n in range(500)], "small": 1}


class Stopped(BaseException):
    """The process was killed here."""


class Faulty:
    """Files of which one operation fails: not done at all, or done and then not reported."""

    def __init__(self, files, at, when, error):
        self.files, self.at, self.when, self.error = files, at, when, error
        self.url, self.count, self.dead = files.url, 0, False

    def __getattr__(self, name):
        operation = getattr(self.files, name)
        if name not in ("read", "create", "replace", "size", "names", "remove"):
            return operation

        def run(*given, **named):
            if self.dead:
                raise Stopped
            self.count += 1
            if self.count - 1 != self.at:
                return operation(*given, **named)
            self.dead = self.error is Stopped
            if self.when == "after":
                operation(*given, **named)
            raise self.error(f"at operation {self.at}")

        return run


def commit(store, value=VALUE):
    store.check(writing=True)
    record = result_record(store.put(value))
    store.put_recipe(CALL, recipe_record("f"))
    store.put_call(CALL, CALL)
    return store.commit(CALL, record)


def commit_together(store):
    """The same of a call whose expression is recorded with its result; and it is to outlast a power failure."""
    store.check(writing=True)
    record = result_record(store.put(VALUE))
    return store.commit(CALL, record, structure=recipe_record("f"), lasting=True)


def served(store, value=VALUE):
    """Whether the store has the result; fails if it gives another value than the right one."""
    record = store.result(CALL)
    if record is None:
        return False
    assert same(store.get(StoredValue.from_record(record["value"])), value)
    return True


@pytest.mark.parametrize("kind", ["local", "memory", "google", pytest.param("s3", marks=pytest.mark.long)])
@pytest.mark.parametrize("error", [Stopped, StoreUnavailable])
@pytest.mark.parametrize("when", ["before", "after"])
def test_l19_a_commit_stopped_at_any_operation_leaves_the_whole_value_or_none(kind, error, when, new_url):
    at = 0
    while True:
        store = Store(new_url(kind))
        files, store.files = store.files, Faulty(store.files, at, when, error)
        try:
            commit(store)
            reached = store.files.count > at
        except error:
            reached = True
        healthy = Store(files.url)
        served(healthy)
        commit(healthy)  # nothing has to be cleaned by hand
        assert served(healthy)
        assert healthy.files.names(f"conflicts/{CALL.hex()}") == []
        if not reached:
            break
        at += 1
    assert at > 12


SYSTEM_CALLS = ("open", "mkdir", "link", "replace", "unlink")


@contextlib.contextmanager
def failing_disk(root, at, when, error):
    """The `at`-th change of a folder fails: before it is done, half done (writing), or after; then all of them do."""
    state = {"count": 0, "dead": False, "reached": None}
    kept = {name: getattr(os, name) for name in SYSTEM_CALLS}
    write = module._write_all

    def run(name, operation, half, *given, **named):
        if state["dead"]:
            raise Stopped
        state["count"] += 1
        if state["count"] - 1 != at:
            return operation(*given, **named)
        state["reached"] = name
        if when == "after":
            operation(*given, **named)
        if when == "half":
            half(*given)
        state["dead"] = error is Stopped
        raise error

    def patched(name):
        def call(*given, **named):
            if not any(str(each).startswith(str(root)) for each in given[:2]):
                return kept[name](*given, **named)
            return run(name, kept[name], lambda *_: None, *given, **named)

        return call

    def half_written(descriptor, chunk):
        os.write(descriptor, memoryview(chunk)[: len(chunk) // 2])

    try:
        for name in SYSTEM_CALLS:
            setattr(os, name, patched(name))
        module._write_all = lambda descriptor, chunk: run("write", write, half_written, descriptor, chunk)
        yield state
    finally:
        for name in SYSTEM_CALLS:
            setattr(os, name, kept[name])
        module._write_all = write


def _complaint(action):
    try:
        action()
    except StoreUnavailable as error:
        return str(error)
    return ""


def _temporaries(root):
    return [place for place in root.rglob("*") if place.name.startswith(".temporary-")]


@pytest.mark.parametrize("when", ["before", "half", "after"])
@pytest.mark.parametrize(("commit", "least"), [(commit, 40), (commit_together, 30)])
def test_l19_a_process_killed_at_any_system_call_leaves_the_whole_value_or_none(commit, least, when, tmp_path):
    at, reached = 0, True
    while reached:
        store = Store(tmp_path / f"store-{at}")
        with failing_disk(store.files.root, at, when, Stopped) as state, contextlib.suppress(Stopped):
            commit(store)
        reached = state["reached"]
        listed = [name for folder in ("runs", "results", "blobs") for name in store.files.names(folder)]
        assert not any(name.startswith(".") for name in listed)
        served(store)
        commit(store)
        assert served(store)
        at += 1
    assert at > least


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("when", ["before", "half"])
def test_l19_an_io_error_at_any_system_call_is_one_complaint_and_leaves_nothing_half_written(number, when, tmp_path):
    at, reached = 0, True
    while reached:
        store = Store(tmp_path / f"store-{at}")
        with failing_disk(store.files.root, at, when, OSError(number, os.strerror(number))) as state:
            complaint = _complaint(lambda store=store: commit(store))
        assert complaint == "" or complaint.startswith(f"store {store.url}: cannot ")
        assert complaint == "" or "choose another store" in complaint
        reached = state["reached"]
        # A temporary file stays only when it is its removal that failed; no listing shows it.
        assert len(_temporaries(store.files.root)) <= (reached == "unlink")
        served(store)
        commit(store)
        assert served(store)
        at += 1
    assert at > 40


def filled(store, folder):
    """A store with a value of every form; what it must say about each."""
    (folder / "d").mkdir()
    (folder / "d" / "a").write_bytes(b"alpha" * 5)
    contents = [1.5, "y" * 2000, VALUE["text"], Directory.of(folder / "d"), {"w": np.arange(9000.0)}]
    store.check(writing=True)
    for number, value in enumerate(contents):
        call = bytes([number]) * 32
        store.commit(call, result_record(store.put(value)))
        store.put_recipe(call, recipe_record(f"op{number}"))
        store.put_call(call, call)
        store.add("log", {"n": number})
    return contents


def look(store, contents):
    """Read everything; each answer is right, or there is none and it was said why."""
    for number, value in enumerate(contents):
        call = bytes([number]) * 32
        with contextlib.suppress(LeafMissing):
            record = store.result(call)
            if record is not None:
                got = store.get(StoredValue.from_record(record["value"]))
                assert same(got, value)
                if isinstance(got, Directory):
                    assert got["a"].read_bytes() == b"alpha" * 5
        assert store.recipe(call) in (None, recipe_record(f"op{number}"))
        assert store.call_of(call) in (None, call)
    last = store.last("log")
    assert last is None or last["n"] == last["number"] - 1


def every_file(store):
    """Paths of all files of a store in memory."""
    root = store.files.root
    return sorted(path.removeprefix(f"{root}/") for path in store.files.fs.find(root))


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    store = Store(f"memory://{uuid.uuid4().hex}")
    contents = filled(store, tmp_path_factory.mktemp("full"))
    look(store, contents)
    return store, contents, {path: store.files.read(path) for path in every_file(store)}


def restored(full):
    store, contents, files = full
    for path in every_file(store):
        store.files.remove(path)
    for path, content in files.items():
        store.files.replace(path, [content])
    return store, contents, files


@given(data=st.data())
def test_l19_any_changed_byte_of_any_file_is_detected_or_harmless(full, data):
    store, contents, files = restored(full)
    path = data.draw(st.sampled_from(sorted(files)))
    damaged = bytearray(files[path])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    store.files.replace(path, [bytes(damaged)])
    look(store, contents)
    look(store, contents)


def test_l19_every_byte_of_every_record_is_covered(full):
    store, contents, files = restored(full)
    for path, good in files.items():
        if (path.startswith("blobs/") and len(good) > 3000) or path == "format.json":
            continue
        for place in range(0, len(good), 3):
            damaged = bytearray(good)
            damaged[place] ^= 1 << place % 8
            store.files.replace(path, [bytes(damaged)])
            if path.startswith("blobs/"):
                look(store, contents)
            else:
                assert store.read(path) is None
        store.files.replace(path, [good])
    look(store, contents)


def test_l19_a_changed_byte_on_a_local_disk_is_detected_too(tmp_path):
    store = Store(tmp_path / "store")
    contents = filled(store, tmp_path)
    for place in sorted(store.files.root.rglob("*")):
        if not place.is_file() or place.name == "format.json":
            continue
        good = place.read_bytes()
        for at in (0, len(good) // 2, len(good) - 1):
            place.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
            look(store, contents)
            place.write_bytes(good)
    look(store, contents)


@given(data=st.data())
def test_l19_files_cut_short_or_emptied_are_detected(full, data):
    store, contents, files = restored(full)
    for path in data.draw(st.sets(st.sampled_from(sorted(files)), max_size=4)):
        if path != "format.json":
            store.files.replace(path, [files[path][: data.draw(st.integers(0, len(files[path]) - 1))]])
    look(store, contents)


@given(data=st.data())
def test_l10_l18_a_store_that_lost_any_of_its_files_gives_what_a_whole_one_gives_or_nothing(full, data):
    store, contents, files = restored(full)
    for path in data.draw(st.sets(st.sampled_from(sorted(files)))):
        store.files.remove(path)
    look(store, contents)
    for number, value in enumerate(contents):  # and computing anew heals it, whatever was lost
        call = bytes([number]) * 32
        store.commit(call, result_record(store.put(value)))
        record = store.result(call)
        assert record is not None
        assert same(store.get(StoredValue.from_record(record["value"])), value)


@given(values())
def test_l10_a_value_is_got_from_a_store_as_it_was_put(value):
    store = Store(f"memory://{uuid.uuid4().hex}")
    stored = store.put(value)
    assert same(store.get(stored), value)
    assert store.put(store.get(stored, lazy=True)) == stored


@op
def grow(flag: File, place: str) -> dict:
    """Fails while there is no file at a place of the environment."""
    scratch = context().scratch
    before = sorted(os.listdir(scratch))
    (scratch / "partial").write_text("half a result")
    if not os.path.exists(place):
        raise FileNotFoundError(place)
    return {"before": before, "partial": File.of(scratch / "partial")}


def test_l18_a_failed_attempt_leaves_no_file_and_blocks_no_later_one(tmp_path):
    (tmp_path / "flag").write_text("x")
    flag = File.of(tmp_path / "flag")
    store = Store(tmp_path / "store")
    call = grow(flag, str(tmp_path / "environment"))
    for _ in range(2):
        assert evaluate(call, store=store, debug=True).kind == "raised"
        assert list((store.files.root / "scratch").rglob("*")) == []
    (tmp_path / "environment").write_text("corrected")
    outcome = evaluate(call, store=store, debug=True)
    assert isinstance(outcome, Ok)
    assert outcome.value["before"] == []
    assert outcome.value["partial"].read_text() == "half a result"
    assert list((store.files.root / "scratch").rglob("*")) == []
    assert _temporaries(store.files.root) == []


names = st.text("abc .é\udc80", min_size=1, max_size=4).filter(lambda name: name not in (".", "..") and name.strip())
trees = st.recursive(
    st.binary(max_size=8),
    lambda inner: st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))


def write_tree(folder, tree):
    for name, content in tree.items():
        if isinstance(content, dict):
            (folder / name).mkdir()
            write_tree(folder / name, content)
        else:
            (folder / name).write_bytes(content)


def flattened(tree, above=""):
    for name, content in tree.items():
        if isinstance(content, dict):
            yield from flattened(content, f"{above}{name}/")
        else:
            yield f"{above}{name}", content


@given(tree=trees, kind=st.sampled_from(["local", "memory"]))
def test_l23_a_directory_lists_exactly_what_was_written(tree, kind):
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store" if kind == "local" else f"memory://{uuid.uuid4().hex}")
        place = Path(folder) / "d"
        place.mkdir()
        write_tree(place, tree)
        directory = Directory.of(place)
        expected = dict(flattened(tree))
        assert {name: file.read_bytes() for name, file in directory.files.items()} == expected
        got = store.get(store.put(directory))
        assert {name: file.read_bytes() for name, file in got.files.items()} == expected
        assert {p.relative_to(got.path).as_posix() for p in got.path.rglob("*") if p.is_file()} == set(expected)
        assert encode(got) == encode(directory)


@given(tree=trees)
def test_l23_modes_times_and_empty_folders_are_no_part_of_a_directory(tree):
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder) / "one", Path(folder) / "other"
        for place in (one, other):
            place.mkdir()
            write_tree(place, tree)
        (other / "zzz empty" / "deeper").mkdir(parents=True)
        for place in other.rglob("*"):
            os.utime(place, (1, 1))
            place.chmod(0o700)
        assert encode(Directory.of(one)) == encode(Directory.of(other))
