"""Which workers a gang gets, and when."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from marin_dsl.evaluation.executors import _worker_lost
from marin_dsl.evaluation.gangs import GangMisplaced, Gangs
from marin_dsl.expression.annotations import Annotations


class Client:
    """A connection to a cluster of which is known what each worker has, where it is, and what it has to do."""

    def __init__(self, **workers) -> None:
        self.workers = workers
        self.submitted, self.cancelled = [], []

    def scheduler_info(self, n_workers):
        assert n_workers == -1, "of the five that are told otherwise no gang could be chosen"
        return {"workers": {name: {"host": host, "resources": has} for name, (host, has, _) in self.workers.items()}}

    def processing(self):
        return {name: ["call"] * busy for name, (_, _, busy) in self.workers.items()}

    def run(self, function, workers):
        self.prepared = workers

    def submit(self, function, *args, workers, **settings):
        self.submitted.append((function.__name__, *workers))
        return SimpleNamespace(add_done_callback=lambda callback: None)

    def cancel(self, futures, force):
        self.cancelled += futures


class Turns:
    """The lock of who takes workers, which somebody else has at first."""

    def __init__(self, *answers) -> None:
        self.answers, self.released = list(answers), 0

    def acquire(self, timeout):
        assert timeout == 0
        return self.answers.pop(0)

    def release(self):
        self.released += 1


def task(hosts: int, call: bytes = b"call"):
    return SimpleNamespace(
        annotations=Annotations(hosts=hosts), title="train()", operator=SimpleNamespace(short_name="train"),
        call=call, run="run", attempt=1, asked=0,
    )  # fmt: skip


def gangs(client, *turns, settled=None):
    made = Gangs(client, "topic", lambda *found: settled.append(found), _worker_lost)
    made._turn = Turns(*(turns or (True,) * 9))
    return made


def handed_out(found: Gangs):
    found._next_ask = 0.0
    found.hand_out()


def test_members_are_spread_over_machines_and_go_where_least_is_to_do():
    client = Client(
        a1=("a", {}, 2), a2=("a", {}, 0), a3=("a", {}, 1), b1=("b", {}, 3), b2=("b", {}, 0), c1=("c", {}, 9)
    )
    found = gangs(client)
    found.add(task(4), b"", {}, 0)
    handed_out(found)
    assert client.submitted[0] == ("lead_gang", "a2")
    assert sorted(client.submitted[1:]) == [("join_gang", "a3"), ("join_gang", "b2"), ("join_gang", "c1")]
    assert client.prepared == ["a2"]


def test_only_workers_with_the_resources_count():
    client = Client(a=("a", {"GPU": 8}, 0), b=("b", {"GPU": 4}, 0), c=("c", {"GPU": 8}, 5), d=("d", {}, 0))
    found = gangs(client)
    found.add(task(2), b"", {"GPU": 8}, 0)
    handed_out(found)
    assert [worker for _, worker in client.submitted] == ["a", "c"]
    with pytest.raises(GangMisplaced, match="asks for hosts=3, and the cluster has 2 workers with GPU=8, where each"):
        found.add(task(3), b"", {"GPU": 8}, 0)
    with pytest.raises(GangMisplaced, match=r"has 0 workers with GPU=9, .*; start more, or say expr.with_\(hosts=1\)"):
        found.add(task(2), b"", {"GPU": 9}, 0)


def test_one_gang_at_a_time_takes_workers_the_urgent_one_first_and_in_turn_with_other_runs():
    client = Client(a=("a", {}, 0), b=("b", {}, 0))
    found = gangs(client, False, True, True)
    calls = [task(2, call) for call in (b"1", b"2")]
    found.add(calls[0], b"", {}, 0)
    found.add(calls[1], b"", {}, 7)
    handed_out(found)
    assert client.submitted == [], "somebody else takes workers"
    handed_out(found)
    handed_out(found)
    assert len(client.submitted) == 2, "the first one has not assembled"
    assert list(found._at_work) == ["train-32-run-1-0"]
    found.assembled("train-32-run-1-0")
    found.assembled("train-32-run-1-0")  # heard twice, it lets go once
    assert found._turn.released == 1
    handed_out(found)
    assert len(client.submitted) == 4


def test_a_gang_waits_while_workers_are_missing():
    client = Client(a=("a", {}, 0), b=("b", {}, 0))
    found = gangs(client)
    found.add(task(2), b"", {}, 0)
    lost = client.workers.pop("b")
    handed_out(found)
    assert client.submitted == []
    client.workers["b"] = lost
    handed_out(found)
    assert len(client.submitted) == 2


def test_a_lost_worker_of_rank_0_is_the_answer_once_and_lets_the_others_go():
    client, settled = Client(a=("a", {}, 0), b=("b", {}, 0)), []
    found, call = gangs(client, settled=settled), task(2)
    found.add(call, b"", {}, 0)
    handed_out(found)
    found.look(["a", "b"])
    assert settled == []
    found.look(["b"])
    found.look(["b"])
    [(about, error)] = settled
    assert about is call
    assert error.__notes__[0] == "the worker was a"
    found.over(call)
    found.over(call)
    assert len(client.cancelled) == 2
    assert found._turn.released == 1, "it had not assembled, and holds nobody up"
