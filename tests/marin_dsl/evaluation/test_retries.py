"""Trying again: what is, how often, what is remembered of it, and that nobody waits in a worker."""

from __future__ import annotations

import os
import signal

import pytest

from marin_dsl import Failed, Store, evaluate, op, provenance
from marin_dsl.evaluation import retries
from marin_dsl.evaluation.executors import Here, ResourceMissing
from marin_dsl.evaluation.retries import Retries, pause_before, set_apart
from marin_dsl.expression.annotations import Annotations
from marin_dsl.worker.task import Answer, Task
from tests.marin_dsl.isolated_operators import counted, plain


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.01)


def run(expression, tmp_path, **settings):
    return evaluate(expression, store=tmp_path / "store", debug=True, **settings)


def tries(tmp_path) -> int:
    return len((tmp_path / "tries").read_text().splitlines())


def test_a_transient_exception_is_tried_again(tmp_path):
    seen = []
    made = counted(str(tmp_path), "refused", 3).with_(transient=ConnectionError)
    assert run(made, tmp_path, watch=seen.append).value == 3
    retry = [event for event in seen if event["event"] == "retry"]
    assert [event["attempt"] for event in retry] == [2, 3]
    assert {(event["kind"], event["reason"]) for event in retry} == {
        ("raised", "ConnectionRefusedError: nobody there"),
    }
    assert [event["event"] for event in seen].count("running") == 3
    assert [event["event"] for event in seen].count("ok") == 1
    store = Store(tmp_path / "store")
    call = store.call_of(made.key)
    assert len(store.files.names(f"failures/{call.hex()}")) == 2, "each attempt is recorded"
    history = store.result(call)["history"]
    assert [(each["kind"], each["exception"], each["message"]) for each in history] == [
        ("raised", "ConnectionRefusedError", "nobody there")
    ] * 2
    assert all(f"process {os.getpid()}" in each["where"] and each["seconds"] >= 0 for each in history)


@pytest.mark.parametrize(
    ("way", "annotations", "attempts"),
    [
        ("refused", {}, 1),
        ("refused", {"retries": 5}, 1),
        ("refused", {"transient": OSError}, 3),
        ("refused", {"transient": OSError, "retries": 1}, 2),
        ("refused", {"transient": (ValueError, KeyError)}, 1),
        ("wrong", {"transient": OSError}, 1),
        ("kill", {"isolate": True}, 3),
        ("kill", {"isolate": True, "retries": 0}, 1),
        ("hang", {"isolate": True, "timeout": 0.2}, 1),
        ("hang", {"isolate": True, "timeout": 0.2, "retries": 1}, 2),
        ("hang", {"timeout": 0.1, "retries": 1}, 2),
    ],
)
def test_how_often_depends_on_what_happened_and_on_what_was_said(tmp_path, way, annotations, attempts):
    outcome = run(counted(str(tmp_path), way, 100).with_(**annotations), tmp_path)
    assert isinstance(outcome, Failed)
    assert tries(tmp_path) == outcome.attempts == attempts
    assert [each.kind for each in outcome.history] == [outcome.kind] * (attempts - 1)


def test_a_process_that_is_killed_once_is_tried_again_and_sees_nothing_of_before(tmp_path):
    assert run(counted(str(tmp_path), "kill", 2).with_(isolate=True), tmp_path).value == 2
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


def test_the_attempts_of_an_earlier_run_do_not_count(tmp_path):
    made = counted(str(tmp_path), "refused", 4).with_(transient=OSError, retries=1)
    first = run(made, tmp_path)
    assert (first.attempts, len(first.history)) == (2, 1)
    assert run(made, tmp_path).value == 4


@op(version="1")
def deadly(n: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return n


def test_a_worker_that_is_killed_is_lost_and_the_run_goes_on(tmp_path):
    seen = []
    once, always, others = counted(str(tmp_path), "kill", 2), deadly(1), [plain(n) for n in range(4)]
    roots = (once, plain([once, *others]), always, *others)
    found = evaluate(*roots, store=tmp_path / "store", workers=2, watch=seen.append)
    assert [outcome.value for outcome in found if outcome.ok] == [2, [2, 0, 1, 2, 3], 0, 1, 2, 3]
    first, second = (tmp_path / "tries").read_text().split()
    assert first != second
    assert (found[2].kind, found[2].message) == ("killed", "its process was killed by signal 9 (SIGKILL)")
    assert [each.kind for each in found[2].history] == ["lost", "killed"], "it was found out which operator it is"
    lost = [event for event in seen if event["event"] == "retry" and event["kind"] == "lost"]
    assert {event["reason"].partition(":")[0] for event in lost} == {"WorkerLost"}
    store = Store(tmp_path / "store")
    failure = store.read(f"failures/{store.call_of(once.key).hex()}/000001.json")["failure"]
    assert failure["message"] == "its worker died before it had answered, by this operator or by another one"
    assert failure["notes"][0].startswith("the worker was tcp://")
    assert failure["notes"][1] == (
        "isolate=True tells which operator it is: it keeps what one does to its process from the others"
    )


def test_what_needs_a_device_is_not_isolated_when_its_worker_was_lost():
    assert set_apart(Annotations({"CPU": 2})).isolate
    assert not set_apart(Annotations({"GPU": 1})).isolate


def test_nobody_waits_in_a_worker_for_the_next_attempt(tmp_path, monkeypatch):
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.3)
    seen = []
    made = counted(str(tmp_path), "refused", 2).with_(transient=OSError, title="again", priority=1)
    evaluate(made, plain(1), store=tmp_path / "store", debug=True, watch=seen.append)
    told = [(event["event"], event["title"]) for event in seen if event["event"] in ("retry", "ok")]
    assert told == [("retry", "again"), ("ok", "plain(value=1)"), ("ok", "again")]


def test_pauses_grow_and_are_never_too_long(monkeypatch):
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.5)
    for attempt, mean in ((2, 0.5), (3, 1.0), (4, 2.0), (12, 60.0), (10_000, 60.0)):
        found = [pause_before(attempt) for _ in range(20)]
        assert all(0.5 * mean <= pause <= 1.5 * mean for pause in found)
        assert len(set(found)) > 1


def test_a_call_that_waits_is_due_in_time(tmp_path):
    @op(version="1")
    def local() -> int:
        return 1

    task = Task(Store(tmp_path), local, local().payload, (), local().key, "local", "run", "", "", False)
    waiting = Retries(lambda event: None)
    assert waiting.pause(3.0) == 3.0
    assert not waiting.takes(task, Answer(None, Failed("raised", "ValueError", "x"), True, 0.1))
    assert waiting.takes(task, Answer(None, Failed("killed", "Killed", "x"), True, 0.1))
    assert waiting.pause(3.0) < 0.1
    found: list[Task] = []
    while not found:
        found = list(waiting.due())
    assert (found[0].attempt, found[0].history[0].kind) == (2, "killed")
    assert waiting.pause(3.0) == 3.0


def test_what_nobody_can_run_any_more_when_its_time_has_come_has_failed(tmp_path, monkeypatch):
    submit = Here.submit

    def full(self, task, *, resources, priority):
        if task.attempt > 1:
            raise ResourceMissing("no worker has it now")
        submit(self, task, resources=resources, priority=priority)

    monkeypatch.setattr(Here, "submit", full)
    outcome, other = evaluate(
        counted(str(tmp_path), "refused", 9).with_(transient=OSError), plain(1), store=tmp_path / "store", debug=True
    )
    assert (outcome.kind, outcome.message) == ("lost", "no worker has it now")
    assert [each.kind for each in outcome.history] == ["raised"]
    assert other.value == 1
