"""Holding leases: what work pays for one, what keeps it alive, and that no trouble with it reaches the work."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading

import attrs
import pytest

from marin_dsl.store.files import StoreUnavailable
from marin_dsl.store.heartbeat import HEARTBEAT, Heartbeat
from marin_dsl.store.leases import Lease, Sighting, acquire, look
from marin_dsl.store.local import LocalFiles
from marin_dsl.store.owner import Owner
from tests.laws.interleaving import InMemory

CALL, OTHER = bytes(range(32)), bytes(32)
T = 60.0


class Counted(InMemory):
    """Files that count what is done to them, and fail when they are told to."""

    def __init__(self):
        super().__init__()
        self.done, self.broken = [], False

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name not in ("read", "create", "replace", "remove"):
            return found
        if self.broken:
            raise StoreUnavailable("no")
        self.done.append(name)
        return found


class Manual(Heartbeat):
    """A heartbeat that beats when the test says so, on the test's clock."""

    def __init__(self):
        self.now = 0.0
        super().__init__(lambda: self.now)

    def _start(self):
        return threading.current_thread()

    def wait(self, seconds):
        for _ in range(int(seconds * 4)):
            self.now += 0.25
            self.beat()


@pytest.fixture
def files():
    return Counted()


@pytest.fixture
def heart():
    return Manual()


@contextlib.contextmanager
def held(heart, files, run="run", kind=b"kind", seconds=T, call=CALL, **more):
    """Gives the lease of somebody else, or None when the work is to be done here."""
    with heart.held(files, call, run, seconds=seconds, kind=kind, **more) as found:
        yield found if isinstance(found, Sighting) else None


def test_work_of_unknown_length_pays_one_create_one_look_and_one_remove(heart, files):
    with held(heart, files) as elsewhere:
        assert elsewhere is None
        assert look(files, CALL).owner.run == "run"
        files.done.clear()
        heart.wait(0.75)
    assert files.done == ["remove"]
    assert files.files == {}
    files.done.clear()
    with held(heart, files, kind=b"another"):
        pass
    assert files.done == ["create", "read", "remove"]


def test_work_that_was_short_pays_nothing_the_next_time(heart, files):
    with held(heart, files):
        heart.now += 0.01
    files.done.clear()
    for _ in range(3):
        with held(heart, files) as elsewhere:
            assert elsewhere is None
    assert files.done == []


def test_work_that_turns_out_long_gets_its_lease_after_a_second(heart, files):
    with held(heart, files):
        pass
    with held(heart, files):
        heart.wait(0.75)
        assert look(files, CALL) is None
        heart.wait(0.5)
        assert look(files, CALL).owner.run == "run"
    assert look(files, CALL) is None
    with held(heart, files):
        assert look(files, CALL) is not None, "from now on it is known to be long"
    for _ in range(5):
        with held(heart, files):
            pass
    with held(heart, files):
        assert look(files, CALL) is None, "until it was short for a while"


def test_who_comes_second_sees_who_is_at_work(heart, files):
    with held(heart, files), held(heart, files, run="second") as elsewhere:
        assert elsewhere.owner.run == "run"
        assert elsewhere.owner.pid == os.getpid()
        assert not elsewhere.released
    with held(heart, files, run="second") as elsewhere:
        assert elsewhere is None


def test_no_lease_is_taken_where_they_are_off(heart, files):
    with held(heart, files, seconds=0) as elsewhere:
        assert elsewhere is None
    assert files.done == []


def test_a_lease_changes_four_times_in_the_time_after_which_it_would_count_as_abandoned(heart, files):
    seen = set()
    with held(heart, files):
        for _ in range(int(T)):
            seen.add(look(files, CALL).content)
            heart.wait(1)
    assert len(seen) == 4


def test_an_abandoned_lease_is_taken_over_and_the_late_owner_changes_nothing(heart, files):
    with held(heart, files):
        abandoned = look(files, CALL)
        with held(heart, files, run="second", abandoned=abandoned) as elsewhere:
            assert elsewhere is None
            now = look(files, CALL)
            assert (now.generation, now.owner.run) == (2, "second")
            heart.wait(T)
            assert look(files, CALL).owner.run == "second"
        assert look(files, CALL).released
    assert look(files, CALL).released
    with held(heart, files, run="third") as elsewhere:
        assert elsewhere is None
        assert look(files, CALL).generation == 3


def test_a_lease_that_lived_on_is_not_taken_over_by_who_saw_it_before(heart, files):
    with held(heart, files):
        before = look(files, CALL)
        heart.wait(T / 2)
        with held(heart, files, run="second", abandoned=before) as elsewhere:
            assert elsewhere.owner.run == "run"


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), RuntimeError("a file system's own"), OSError(5, "EIO")])
def test_trouble_with_the_store_reaches_no_work(heart, files, error, monkeypatch):
    def broken(*given):
        raise error

    for kind in (b"long", b"short"):
        for name in ("create", "read", "replace", "remove"):
            with monkeypatch.context() as patch:
                with held(heart, files, kind=kind):
                    patch.setattr(files, name, broken)
                    heart.wait(T)
                with held(heart, files, kind=kind) as elsewhere:
                    assert elsewhere is None or elsewhere.owner.run == "run"
    with held(heart, files, call=OTHER) as elsewhere:
        assert elsewhere is None
        assert look(files, OTHER) is not None


def test_a_heartbeat_that_hangs_in_the_file_system_does_not_hold_up_the_work(heart, files):
    hangs, goes_on = threading.Event(), threading.Event()
    read = files.read

    def hanging(path):
        hangs.set()
        assert goes_on.wait(30)
        return read(path)

    with held(heart, files):
        files.read = hanging
        heart.now += T
        beating = threading.Thread(target=heart.beat)
        beating.start()
        assert hangs.wait(30)
    goes_on.set()
    beating.join(30)
    assert files.files == {}, "it is given back by the heartbeat, afterwards"


def test_a_failing_operator_gives_its_lease_back(heart, files):
    with pytest.raises(KeyError), held(heart, files):
        raise KeyError
    assert files.files == {}


def test_a_run_does_not_wait_for_a_worker_that_it_lost(heart, files):
    files.create(f"leases/{CALL.hex()}", b"")
    files.remove(f"leases/{CALL.hex()}")
    lost = acquire(files, CALL, attrs.evolve(Owner.here("run"), host="elsewhere", machine="another"))
    assert isinstance(lost, Lease)
    with held(heart, files, run="run") as elsewhere:
        assert elsewhere is None
    assert look(files, CALL).released


def test_a_process_that_ended_holds_nothing(heart, files):
    ended = subprocess.run(
        [sys.executable, "-c", "from marin_dsl.store.owner import Owner; print(repr(Owner.here('dead')))"],
        capture_output=True,
        text=True,
        check=True,
    )
    owner = eval(ended.stdout, {"Owner": Owner})
    if owner.born is None:
        pytest.skip("LEFT OUT: this system, unlike Linux, does not tell when processes began")
    assert isinstance(acquire(files, CALL, owner), Lease)
    with held(heart, files) as elsewhere:
        assert elsewhere is None


@pytest.mark.parametrize(
    "change",
    [{"machine": "another boot"}, {"machine": ""}, {"born": None}],
)
def test_a_process_that_cannot_be_seen_from_here_counts_as_alive(change):
    assert not attrs.evolve(Owner.here("run"), pid=2**22 + 1, **change).ended
    assert not Owner.here("run").ended


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"owner": 3}', b'{"owner": {"pid": 1}}'])
def test_a_damaged_lease_is_somebody_elses_until_it_was_watched_for_long_enough(heart, files, content):
    files.create(f"leases/{CALL.hex()}", content)
    with held(heart, files) as elsewhere:
        assert elsewhere.content == content
        assert elsewhere.owner is None
        assert not elsewhere.released
    with held(heart, files, abandoned=elsewhere) as now:
        assert now is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_holds_nothing_of_its_parents(tmp_path):
    files = LocalFiles(tmp_path)
    with HEARTBEAT.held(files, CALL, "run", seconds=T, kind=b"fork") as holding:
        before = look(files, CALL)
        lease = holding.lease
        child = os.fork()
        if child == 0:
            lease.refresh()
            lease.release()
            os._exit(HEARTBEAT.beat())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert look(files, CALL) == before
    assert look(files, CALL) is None


def test_one_thread_serves_all_and_ends_when_nothing_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr("marin_dsl.store.heartbeat._SOON", 0.001)
    heart, files = Heartbeat(), LocalFiles(tmp_path)
    with held(heart, files, seconds=0.01), held(heart, files, call=OTHER, seconds=T):
        thread = heart._thread
        seen = look(files, CALL)
        while look(files, CALL) == seen:
            pass
    thread.join(30)
    assert not thread.is_alive()
    with held(heart, files):
        assert heart._thread is not thread
