"""Calls that several processes run together: one outcome, and all or none of them are at work."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from marin_dsl import Failed, Store, context, evaluate, op, provenance, secret
from marin_dsl.evaluation import retries
from tests.marin_dsl.gang_operators import gang, psum, telling
from tests.marin_dsl.worker.test_isolation import gone


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)


def run(expression, tmp_path, **settings):
    return evaluate(expression, store=tmp_path / "store", **{"debug": True, **settings})


def nobody_is_left(place: Path) -> bool:
    pids = [int(path.read_text()) for path in place.glob("pid-*")]
    return len(pids) == 2 and all(map(gone, pids))


def test_two_processes_sum_over_jax(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    outcome = run(psum([1.5, 2.0]), tmp_path)
    assert outcome.value == {"total": 3.5, "processes": 2, "rank": 0, "here": 1}


@pytest.mark.parametrize("settings", [{"debug": True}, {"debug": False}, {"debug": False, "workers": 1}])
def test_members_know_each_other_and_the_value_is_that_of_rank_0(tmp_path, settings):
    found = run(gang("describe", str(tmp_path)), tmp_path, **settings).value
    assert found == [0, 2, "127.0.0.1", True, 1, True, []]
    assert nobody_is_left(tmp_path)
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


def test_what_other_members_return_and_observe_is_dropped(tmp_path):
    assert run(gang("second returns junk", str(tmp_path)), tmp_path).value == "kept"
    assert (tmp_path / "starts").read_text().count("\n") == 2
    store = Store(tmp_path / "store")
    record = store.result(store.call_of(gang("second returns junk", str(tmp_path)).key))
    assert record["output"] == ["[rank 0] printed by 0", "[rank 1] printed by 1"]


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("exit", "rank 1 of 2: its process ended with exit status 7 before the operator returned (os._exit, perhaps)"),
        ("kill", "rank 0 of 2: its process was killed by signal 9 (SIGKILL)"),
    ],
)
def test_a_member_that_dies_stops_the_others_and_is_named(tmp_path, way, message):
    outcome = run(gang(way, str(tmp_path)).with_(retries=0), tmp_path)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.exception) == ("killed", "marin_dsl.worker.isolation.Killed")
    assert outcome.message == message
    assert {"[rank 0] printed by 0", "[rank 1] printed by 1"} <= set(outcome.output)
    assert nobody_is_left(tmp_path)


def test_a_death_is_the_cause_of_what_others_raise_although_they_are_heard_before(tmp_path, monkeypatch):
    monkeypatch.setattr("marin_dsl.worker.gang._MOMENT", 60.0)
    outcome = run(gang("lost collective", str(tmp_path)).with_(retries=0), tmp_path)
    assert outcome.message == "rank 1 of 2: its process was killed by signal 9 (SIGKILL)"
    assert nobody_is_left(tmp_path)


def test_what_a_member_raises_is_the_failure_of_the_gang(tmp_path):
    outcome = run(gang("raise", str(tmp_path)), tmp_path)
    assert (outcome.kind, outcome.exception) == ("raised", "ZeroDivisionError")
    assert outcome.message == "rank 1 of 2: division by zero"
    assert "gang_operators.py" in outcome.traceback
    assert "1 / 0" in outcome.traceback
    assert outcome.attempts == 1
    assert nobody_is_left(tmp_path)


def test_a_gang_fails_although_rank_0_has_returned(tmp_path):
    assert run(gang("first returns", str(tmp_path)), tmp_path).message == "rank 1 of 2: division by zero"


def test_what_a_member_raises_may_be_transient(tmp_path):
    outcome = run(gang("refused", str(tmp_path)).with_(transient=OSError, retries=1), tmp_path)
    assert outcome.exception == "FileNotFoundError"
    assert len(outcome.history) == 1


def test_a_timeout_stops_all(tmp_path):
    outcome = run(gang("hang", str(tmp_path)).with_(timeout=0.5), tmp_path)
    assert (outcome.kind, outcome.exception) == ("timeout", "marin_dsl.worker.context.TimedOut")
    assert outcome.message in {f"rank {rank} of 2: no result within 0.5s, the timeout of the call" for rank in range(2)}
    assert any("gang_operators.py" in line for line in outcome.output)
    assert nobody_is_left(tmp_path)


def test_a_gang_that_lost_a_member_is_tried_again_from_what_it_has_kept(tmp_path):
    outcome = run(gang("resume", str(tmp_path)), tmp_path)
    assert outcome.value == ["step-0-0", "step-0-1", "step-1-0", "step-1-1"]
    assert (tmp_path / "starts").read_text().count("\n") == 6
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


def test_what_a_gang_has_kept_is_there_in_a_later_run_too(tmp_path):
    for _ in range(2):
        outcome = run(gang("resume", str(tmp_path)).with_(retries=0), tmp_path)
        assert outcome.message.startswith("rank 1 of 2: its process ended with exit status 7")
    assert run(gang("resume", str(tmp_path)), tmp_path).value == ["step-0-0", "step-0-1", "step-1-0", "step-1-1"]


def test_a_gang_disturbs_nobody_who_is_still_at_work_in_what_was_kept(tmp_path):
    expression = gang("resume", str(tmp_path)).with_(retries=0)
    assert run(expression, tmp_path).kind == "killed"
    (kept,) = tmp_path.glob("store/scratch/*/kept")
    before = sorted(path.name for path in kept.iterdir())
    handle = os.open(kept, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert run(expression, tmp_path).kind == "killed"
    finally:
        os.close(handle)
    assert sorted(path.name for path in kept.iterdir()) == before == ["step-0-0", "step-0-1"]
    assert list(kept.parent.iterdir()) == [kept]


def test_without_a_disk_for_it_what_a_gang_keeps_lasts_an_attempt(tmp_path, monkeypatch):
    monkeypatch.setattr("marin_dsl.store.local.LocalFiles.local", lambda files, path: None)
    assert run(gang("look", str(tmp_path)), tmp_path).value == []
    assert not (tmp_path / "store" / "scratch").exists()


def test_one_host_is_an_ordinary_call_which_is_a_gang_of_one(tmp_path):
    expression = gang("rank", str(tmp_path)).with_(hosts=1)
    assert run(expression, tmp_path).value == [0, 1]
    assert int((tmp_path / "pid-0").read_text()) == os.getpid()
    alone = context().gang
    assert (alone.rank, alone.size, alone.coordinator) == (0, 1, None)
    assert alone.scratch.is_dir()
    alone.initialize()  # nobody to meet


def test_an_interrupt_stops_all(tmp_path):
    def interrupt() -> None:
        while len(list(tmp_path.glob("begun-*"))) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run(gang("hang once", str(tmp_path)), tmp_path)
    assert nobody_is_left(tmp_path)


@pytest.mark.parametrize(
    ("way", "kind"), [("die", "killed"), ("raise", "raised"), ("return", "unstorable"), ("use", None)]
)
def test_no_byte_of_a_secret_comes_out_of_a_member(tmp_path, monkeypatch, way, kind):
    token = "tok-'quoted'/42"
    monkeypatch.setenv("MARIN_TEST_TOKEN", token)
    seen = []
    expression = telling(secret("env://MARIN_TEST_TOKEN"), way).with_(retries=0)
    outcome = run(expression, tmp_path, watch=seen.append)
    assert getattr(outcome, "kind", None) == kind
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for trace in (token, repr(token)[1:-1], "quoted'/42"):
        assert trace.encode() not in written
        assert trace not in repr(seen)
    assert b"printing <secret env://MARIN_TEST_TOKEN>" in written
    logged = {event["content"] for event in seen if event["event"] == "log"}
    if way == "use":
        assert logged == {f"[rank {rank}] logging <secret env://MARIN_TEST_TOKEN>" for rank in range(2)}
        assert len([event for event in seen if event["event"] == "progress"]) == 1
        store = Store(tmp_path / "store")
        (observed,) = store.result(store.call_of(expression.key))["observations"].items()
        assert observed[0] == "rank"


def test_a_store_in_memory_is_refused_with_advice(tmp_path):
    outcome = evaluate(gang("rank", str(tmp_path)), store="memory://gang", debug=True)
    assert outcome.kind == "lost"
    assert outcome.message == (
        "hosts=2 runs gang in processes of its own, and memory://gang is in the memory of this one; choose a store on "
        "a disk or in a bucket (--store or MARIN_STORE)"
    )


def test_what_cannot_travel_is_refused_with_advice(tmp_path):
    lock = threading.Lock()

    @op(version="1", hosts=2)
    def locking() -> bool:
        return lock.locked()

    outcome = run(locking(), tmp_path)
    assert outcome.kind == "lost"
    assert outcome.message.startswith("locking cannot be sent to another process")
