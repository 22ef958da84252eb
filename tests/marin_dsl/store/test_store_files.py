"""The file operations of a store: whole or absent, private, hidden temporaries, no way out, clear complaints."""

import concurrent.futures
import errno
import os
import pickle
import shutil
import stat
import sys
import threading
from pathlib import Path

import pytest

from marin_dsl.store import Store, StoreUnavailable, remote
from marin_dsl.store import local as module
from marin_dsl.store.files import KINDS, open_files, try_writing

CHOOSE = "choose another store with --store or MARIN_STORE"


@pytest.fixture
def files(store):
    return store.files


def test_a_file_is_read_as_it_was_written(files):
    assert files.read("a/b.json") is None
    assert files.create("a/b.json", b"one") is True
    assert files.read("a/b.json") == b"one"
    assert files.size("a/b.json") == 3


def test_creating_leaves_what_is_there(files):
    assert files.create("a/b", b"one") is True
    assert files.create("a/b", b"two") is False
    assert files.read("a/b") == b"one"


def test_a_file_with_the_content_of_another_one_stays_when_that_goes(files):
    files.create("a/b", b"one")
    assert files.create("c/d", b"one", same_as="a/b") is True
    assert files.create("c/d", b"one", same_as="a/b") is False
    assert files.create("c/e", b"one", same_as="a/b") is True
    files.replace("a/b", [b"two"])
    assert [files.read(path) for path in ("a/b", "c/d", "c/e")] == [b"two", b"one", b"one"]
    files.remove("c/d")
    assert files.read("c/e") == b"one"
    assert files.create("c/d", b"one", same_as="gone") is True
    assert files.read("c/d") == b"one"


def test_on_the_local_disk_one_content_is_kept_once_and_each_name_has_its_own_time(tmp_path):
    files = Store(tmp_path).files
    files.create("results/b", b"one")
    files.create("recipes/b", b"one", same_as="results/b")
    assert os.stat(tmp_path / "results/b").st_ino == os.stat(tmp_path / "recipes/b").st_ino
    os.utime(tmp_path / "recipes/b", (1e9, 1e9))
    assert files.move("results/b", "trash/results/b") is True
    assert files.read("results/b") is None
    assert files.read("trash/results/b") == files.read("recipes/b") == b"one"
    assert files.modified("recipes/b") == 1e9
    assert files.modified("trash/results/b") > 1.7e9
    assert files.names("trash/results") == ["b"]


def test_replacing_takes_the_place_of_what_is_there(files):
    files.create("a/b", b"one")
    files.replace("a/b", [b"t", memoryview(b"wo"), b""])
    assert files.read("a/b") == b"two"
    files.replace("a/b", [])
    assert files.read("a/b") == b""


def test_removing_is_done_once_and_twice_is_no_error(files):
    files.create("a/b", b"one")
    files.remove("a/b")
    files.remove("a/b")
    assert files.read("a/b") is None
    assert files.size("a/b") is None


def test_names_are_sorted_and_those_of_an_absent_folder_are_none(files):
    assert files.names("logs") == []
    for name in ("b", "a", "c"):
        files.create(f"logs/{name}", b"")
    files.create("logs/deeper/d", b"")
    assert files.names("logs") == ["a", "b", "c", "deeper"]


def test_names_hide_temporary_files(files):
    files.create("logs/a", b"")
    files.replace(f"logs/{module.temporary_name()}", [b"half"])
    assert files.names("logs") == ["a"]


def test_a_folder_is_no_file(files):
    files.create("a/b/c", b"one")
    assert files.size("a/b") is None


ESCAPES = ["", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", ".", "./a", "a//b", "a/", "a\0b", "a\\..\\b"]


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out_of_the_store(files, path):
    message = "is no path below a store: join names by `/`, without `.`, `..` or a leading `/`"
    operations = (
        files.read,
        files.size,
        files.names,
        files.remove,
        lambda path: files.create(path, b""),
        lambda path: files.replace(path, [b""]),
    )
    for operation in operations:
        with pytest.raises(ValueError) as caught:
            operation(path)
        assert str(caught.value) == f"{path!r} {message}"


@pytest.fixture
def impatient():
    """Threads take turns as often as Python lets them."""
    previous = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(previous)


def test_of_threads_that_create_one_file_exactly_one_wins(files, impatient):
    barrier = threading.Barrier(8)

    def create(path, number):
        barrier.wait()
        return files.create(path, b"%d" % number)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for turn in range(30):
            won = list(pool.map(create, [f"race/{turn}"] * 8, range(8)))
            assert sum(won) == 1
            assert files.read(f"race/{turn}") == b"%d" % won.index(True)


def test_of_threads_that_append_to_one_log_each_gets_its_own_number(store):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda n: store.add("log", {"n": n}), range(40)))
    assert sorted(numbers) == list(range(1, 41))
    assert {store.read(f"log/{name}")["n"] for name in store.files.names("log")} == set(range(40))


def test_readers_see_the_old_or_the_new_content_and_nothing_between(files):
    contents = [bytes([n]) * 200_000 for n in range(4)]
    files.replace("f", [contents[0]])
    seen = set()

    def read():
        for _ in range(100):
            seen.add(files.read("f"))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        for turn in range(50):
            files.replace("f", [contents[turn % 4][:90_000], contents[turn % 4][90_000:]])
        for reader in readers:
            reader.result()
    assert seen <= set(contents)


def test_local_files_and_folders_are_private_to_their_owner(tmp_path):
    previous = os.umask(0o022)
    try:
        store = Store(tmp_path / "new" / "store")
        store.check(writing=True)
        store.put("x" * 100_000)
        store.files.create("a/b/c/d", b"")
    finally:
        os.umask(previous)
    found = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {stat.S_IMODE(place.stat().st_mode) for place in found if place.is_file()} == {0o600}
    assert {stat.S_IMODE(place.stat().st_mode) for place in found if place.is_dir()} == {0o700}
    assert len(found) > 9


def test_a_store_goes_to_another_process_by_its_place(store):
    assert pickle.loads(pickle.dumps(store)).url == store.url
    assert repr(store) == f"Store({store.url!r})"


def test_a_store_is_a_folder_a_file_url_or_a_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert Store("here").url == str(tmp_path / "here")
    assert Store(f"file://{tmp_path}/s").url == f"{tmp_path}/s"
    assert Store("~/s").url == f"{tmp_path}/s"
    assert Store(tmp_path).files.local("a/b") == tmp_path / "a" / "b"
    assert Store("memory://x").files.local("a") is None


def test_a_file_system_on_which_two_writers_are_not_safe_is_refused(monkeypatch):
    monkeypatch.setattr(remote, "_REGISTERED", {"memory": remote._REGISTERED["memory"]})
    with pytest.raises(StoreUnavailable) as caught:
        Store("ftp://host/store")
    assert str(caught.value) == (
        "store ftp://host/store: `ftp` is not one of the file systems on which two writers are safe (gs, memory, s3, "
        "or a local folder); choose another store, or say how to create conditionally there with "
        "`marin_dsl.store.conditional_create`"
    )


ADVICE = {
    errno.ENOSPC: f"the disk is full: free some space, or {CHOOSE}",
    errno.EDQUOT: f"the disk quota is used up: free some space, or {CHOOSE}",
    errno.EROFS: f"the file system is read-only: {CHOOSE}",
    errno.EACCES: f"permission denied: make the folder accessible, or {CHOOSE}",
    errno.EIO: f"OSError: Input/output error; see whether the place is mounted and healthy, or {CHOOSE}",
}


def _failing(number):
    def fail(*given, **named):
        raise OSError(number, os.strerror(number))

    return fail


def _everything(root):
    return sorted(str(place.relative_to(root)) for place in root.rglob("*") if place.is_file())


@pytest.mark.parametrize("number", ADVICE, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("step", ["open", "write", "link or rename"])
def test_an_error_while_writing_says_what_where_and_what_to_do_and_leaves_nothing(local, monkeypatch, number, step):
    local.files.create("logs/before", b"old")
    if step == "open":
        monkeypatch.setattr(os, "open", _failing(number))
    elif step == "write":
        monkeypatch.setattr(module, "_write_all", _failing(number))
    else:
        monkeypatch.setattr(os, "link", _failing(number))
        monkeypatch.setattr(os, "replace", _failing(number))
    for write in (lambda: local.files.create("logs/new", b"x"), lambda: local.files.replace("logs/before", [b"x"])):
        with pytest.raises(StoreUnavailable) as caught:
            write()
        path = "logs/before" if "before" in str(caught.value) else "logs/new"
        assert str(caught.value) == f"store {local.url}: cannot write {path}: {ADVICE[number]}"
    monkeypatch.undo()
    assert _everything(local.files.root) == ["logs/before"]
    assert local.files.read("logs/before") == b"old"


def test_a_disk_that_fills_up_in_the_middle_of_a_file_leaves_nothing(local, monkeypatch):
    full = iter([None, None, OSError(errno.ENOSPC, "full")])
    write = module._write_all

    def fill(descriptor, chunk):
        if (error := next(full)) is not None:
            os.write(descriptor, memoryview(chunk)[:10])
            raise error
        write(descriptor, chunk)

    monkeypatch.setattr(module, "_write_all", fill)
    with pytest.raises(StoreUnavailable, match=r"cannot write blobs/.*the disk is full: free some space"):
        local.put(bytes(5_000_000))
    assert _everything(local.files.root) == []


def test_short_writes_are_continued(local, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, memoryview(data)[:3]))
    local.files.create("a", b"0123456789")
    local.files.replace("b", [b"0123456789", memoryview(b"abcde"), b""])
    monkeypatch.undo()
    assert local.files.read("a") == b"0123456789"
    assert local.files.read("b") == b"0123456789abcde"


def test_a_file_system_without_hard_links_is_said_to_be_one(local, monkeypatch):
    monkeypatch.setattr(os, "link", _failing(errno.EPERM))
    with pytest.raises(StoreUnavailable) as caught:
        local.files.create("a", b"")
    assert str(caught.value) == (
        f"store {local.url}: the file system has no hard links, and without them two writers are not safe: {CHOOSE}"
    )
    assert _everything(local.files.root) == []


def test_a_file_in_the_way_of_the_store(tmp_path):
    (tmp_path / "store").write_text("mine")
    for store in (Store(tmp_path / "store"), Store(tmp_path / "store" / "deeper")):
        in_the_way = f"a part of the path is a file, not a folder: {CHOOSE}"
        with pytest.raises(StoreUnavailable) as caught:
            store.check(writing=True)
        assert str(caught.value) == f"store {store.url}: cannot read format.json: {in_the_way}"
        with pytest.raises(StoreUnavailable) as caught:
            store.put(b"x" * 2000)
        assert str(caught.value).startswith(f"store {store.url}: cannot read blobs/")
        assert str(caught.value).endswith(in_the_way)
        with pytest.raises(StoreUnavailable, match="cannot write a/b: a part of the path is a file"):
            store.files.create("a/b", b"")
    assert (tmp_path / "store").read_text() == "mine"


def test_a_file_in_the_way_of_a_folder_of_the_store(local):
    local.files.create("results", b"")
    with pytest.raises(StoreUnavailable, match=r"cannot write results/ab: a part of the path is a file, not a folder"):
        local.files.create("results/ab", b"")
    with pytest.raises(StoreUnavailable, match=r"cannot list results: a part of the path is a file, not a folder"):
        local.files.names("results")


def test_a_folder_where_a_file_belongs(local):
    local.files.create("a/b", b"")
    with pytest.raises(StoreUnavailable) as caught:
        local.files.read("a")
    assert str(caught.value) == (
        f"store {local.url}: cannot read a: there is a folder where a file belongs: remove it, or {CHOOSE}"
    )


def test_an_error_of_a_remote_file_system_is_said_in_the_same_way(monkeypatch):
    store = Store("memory://broken")
    monkeypatch.setattr(type(store.files.fs), "cat_file", _failing(errno.EIO))
    with pytest.raises(
        StoreUnavailable, match=r"^store memory://broken: cannot read a: OSError: Input/output error; see"
    ):
        store.files.read("a")


def test_a_write_that_does_not_arrive_is_never_silent(monkeypatch):
    store = Store("memory://silent")
    monkeypatch.setattr(type(store.files.fs), "pipe_file", _failing(errno.ENOENT))
    for write in (lambda: store.files.create("a", b""), lambda: store.files.replace("a", [b""])):
        with pytest.raises(
            StoreUnavailable, match=r"^store memory://silent: cannot write a: FileNotFoundError: No such"
        ):
            write()


def test_a_file_in_the_way_in_memory_is_not_taken_for_the_file_itself():
    store = Store("memory://way")
    store.files.create("results", b"")
    with pytest.raises(StoreUnavailable, match=r"^store memory://way: cannot write results/ab: FileExistsError: "):
        store.files.create("results/ab", b"")


def test_an_interrupted_write_leaves_no_temporary_file(local):
    def chunks():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        local.files.replace("a/b", chunks())
    assert _everything(local.files.root) == []


def test_a_write_goes_on_when_another_process_makes_the_folder_meanwhile(local, monkeypatch):
    make = module._make_folder

    def late(folder):
        make(folder)
        make(folder)
        Path.mkdir(folder, exist_ok=True)

    monkeypatch.setattr(module, "_make_folder", late)
    assert local.files.create("a/b/c", b"")


class Removing:
    """Files of which somebody removes the first that is created."""

    def __init__(self, files):
        self.files, self.url, self.removed = files, files.url, 0

    def create(self, path, content):
        created = self.files.create(path, content)
        if created and not self.removed:
            self.files.remove(path)
            self.removed += 1
        return created

    def remove(self, path):
        self.files.remove(path)


def test_a_trial_that_somebody_removes_says_nothing_of_the_server(tmp_path):
    files = Removing(open_files(str(tmp_path)))
    try_writing(files)
    assert files.removed == 1
    assert not any((tmp_path / "runs").iterdir())


def test_a_name_that_no_store_gives_is_not_listed(tmp_path):
    files = Store(tmp_path / "store").files
    files.create("runs/a", b"")
    for name in (b"b\\c", b"\xff"):
        with open(os.fsencode(tmp_path / "store" / "runs") + b"/" + name, "wb"):
            pass
    assert files.names("runs") == ["a", "\udcff"]


def test_a_file_in_a_folder_of_folders_has_nothing_below_it(tmp_path):
    files = Store(tmp_path / "store").files
    files.create("labels/.DS_Store", b"")
    assert files.names("labels/.DS_Store") == files.names("labels/.DS_Store/deeper") == []


def test_a_whole_kind_may_be_on_another_disk_and_other_links_lead_nowhere(tmp_path):
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    files = Store(store).files
    files.create("runs/a/b", b"run")
    files.create("labels/a/b", b"label")
    shutil.move(store / "runs", elsewhere)
    (store / "runs").symlink_to(elsewhere)
    (store / "outside").symlink_to("/")
    (store / "labels" / "above").symlink_to("..")
    (store / "labels" / "circle").symlink_to("circle")
    (store / "labels" / "linked").symlink_to(elsewhere / "a" / "b")
    assert {entry.path for entry in files.entries()} == {"runs/a/b", "labels/a/b", "labels/linked"}
    assert files.names("labels") == ["a", "linked"]
    assert files.names("runs") == ["a"]


def test_a_pipe_among_the_files_keeps_nobody_waiting(tmp_path):
    files = Store(tmp_path / "store").files
    files.create("runs/a", b"")
    os.mkfifo(tmp_path / "store" / "runs" / "pipe")
    assert files.read("runs/pipe") == b""
    assert [entry.path for entry in files.entries()] == ["runs/a"]


def test_kinds_on_different_disks_share_no_names_and_move_by_copying(tmp_path, monkeypatch):
    files = Store(tmp_path / "store").files
    real = {name: getattr(os, name) for name in ("link", "replace")}

    def across(name):
        def attempted(source, target, **settings):
            kinds = [str(place).removeprefix(f"{files.url}/").partition("/")[0] for place in (source, target)]
            if kinds[0] != kinds[1] and not str(source).startswith("/proc"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            return real[name](source, target, **settings)

        return attempted

    for name in real:
        monkeypatch.setattr(module.os, name, across(name))
    assert files.create("recipes/a", b"one")
    assert files.create("results/a", b"one", same_as="recipes/a")
    assert not files.create("results/a", b"one", same_as="recipes/a")
    assert files.read("results/a") == b"one"
    assert files.move("results/a", "trash/results/a")
    assert (files.read("results/a"), files.read("trash/results/a")) == (None, b"one")
    assert not files.move("results/a", "trash/results/a")


@pytest.mark.parametrize("url", ["memory://", "memory:///"])
def test_a_store_in_memory_needs_no_name(url):
    files = Store(url).files
    try:
        assert files.create("runs/a", b"one")
        assert (files.read("runs/a"), files.names("runs")) == (b"one", ["a"])
        assert files.url == "memory://"
        assert {entry.path for entry in files.entries()} >= {"runs/a"}
    finally:
        files.remove("runs/a")


def test_a_link_that_leads_nowhere_in_the_place_of_a_store_is_said_to_be_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "absent" / "store")
    with pytest.raises(StoreUnavailable) as caught:
        Store(tmp_path / "link").check(writing=True)
    assert str(caught.value) == (
        f"store {tmp_path}/link: cannot write format.json: {tmp_path}/link is a link that leads nowhere "
        f"({tmp_path}/absent/store): make what it leads to, or {CHOOSE}"
    )


def test_a_folder_that_is_removed_just_before_a_file_gets_its_name_is_made_again(local, monkeypatch):
    link, folders = module._link, iter([local.files.root / "blobs" / "ab"])

    def collected_before(source, place):
        for folder in folders:
            folder.rmdir()
        return link(source, place)

    monkeypatch.setattr(module, "_link", collected_before)
    assert local.files.create("blobs/ab/cd", b"one")
    assert local.files.read("blobs/ab/cd") == b"one"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_that_is_a_link_to_itself_is_one_complaint(local, kind):
    local.files.root.mkdir()
    (local.files.root / kind).symlink_to(kind)
    with pytest.raises(StoreUnavailable, match=f"cannot read {kind}: .* is a link that leads nowhere"):
        list(local.files.entries())
