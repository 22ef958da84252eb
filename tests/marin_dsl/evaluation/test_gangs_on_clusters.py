"""Gangs on the workers of a cluster that exists: each member has a worker of its own, and there is one outcome."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import distributed
import pytest

from marin_dsl import Failed, Store, evaluate, provenance
from marin_dsl.evaluation import retries
from tests.marin_dsl.gang_operators import busy, gang, losing_a_worker, meeting, psum
from tests.marin_dsl.worker.test_gang import nobody_is_left


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3"})
        patch.setattr(retries, "FIRST_PAUSE", 0.01)
        patch.setenv("JAX_PLATFORMS", "cpu")
        patch.setenv("MARIN_LEASE_SECONDS", "2")
        yield


@pytest.fixture(scope="module")
def cluster():
    soon = dask.config.set({"distributed.scheduler.locks.lease-timeout": "2 s"})
    with (
        soon,
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=":0", resources={"GPU": 1}
        ) as found,
    ):
        yield found


@pytest.fixture
def run(cluster, tmp_path):
    return lambda *expressions: evaluate(*expressions, store=tmp_path / "store", scheduler=cluster.scheduler_address)


def until(happens) -> None:
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_members_know_each_other_and_the_value_is_that_of_rank_0(run, tmp_path):
    assert run(gang("describe", str(tmp_path))).value == [0, 2, "127.0.0.1", True, 1, True, []]
    assert nobody_is_left(tmp_path)
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


def test_each_member_has_a_worker_of_its_own(run, cluster, tmp_path):
    workers = run(meeting("here", str(tmp_path)).with_(hosts=3)).value
    assert len(set(workers)) == 3


def test_workers_sum_over_jax(run):
    assert run(psum([1.5, 2.0])).value == {"total": 3.5, "processes": 2, "rank": 0, "here": 1}


def test_what_members_print_is_recorded_with_their_ranks(run, tmp_path):
    assert run(gang("second returns junk", str(tmp_path))).value == "kept"
    store = Store(tmp_path / "store")
    record = store.result(store.call_of(gang("second returns junk", str(tmp_path)).key))
    assert record["output"] == ["[rank 0] printed by 0", "[rank 1] printed by 1"]


@pytest.mark.parametrize(
    ("way", "kind", "message"),
    [
        ("exit", "killed", "rank 1 of 2: its process ended with exit status 7 before the operator returned"),
        ("kill", "killed", "rank 0 of 2: its process was killed by signal 9 (SIGKILL)"),
        ("raise", "raised", "rank 1 of 2: division by zero"),
        ("lost collective", "killed", "rank 1 of 2: its process was killed by signal 9 (SIGKILL)"),
        ("hang", "timeout", "rank "),
    ],
)
def test_a_member_that_fails_stops_the_others_and_is_named(run, tmp_path, way, kind, message):
    expression = gang(way, str(tmp_path)).with_(retries=0)
    outcome = run(expression.with_(timeout=1.0) if kind == "timeout" else expression)
    assert isinstance(outcome, Failed)
    assert outcome.kind == kind
    assert outcome.message.startswith(message)
    assert {"[rank 0] printed by 0", "[rank 1] printed by 1"} <= set(outcome.output)
    assert nobody_is_left(tmp_path)


def test_a_gang_that_lost_a_member_is_tried_again_from_what_it_has_kept(run, tmp_path):
    assert run(gang("resume", str(tmp_path))).value == ["step-0-0", "step-0-1", "step-1-0", "step-1-1"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_dies_under_a_gang_is_missed_soon_and_the_gang_tried_again(run, cluster, tmp_path, rank):
    outcome = run(losing_a_worker(rank, str(tmp_path)))
    assert outcome.value == "second attempt"
    until(lambda: len(cluster.scheduler.workers) == 3)


def test_an_interrupt_stops_all_members(cluster, tmp_path):
    def watch(event):
        if len([*tmp_path.glob("pid-*")]) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(
            gang("hang", str(tmp_path)), store=tmp_path / "store", scheduler=cluster.scheduler_address, watch=watch
        )
    until(lambda: nobody_is_left(tmp_path))
    until(lambda: not cluster.scheduler.tasks)


def test_gangs_that_need_each_others_workers_take_turns_whoever_hands_them_out(run, tmp_path):
    gangs = [meeting(f"{run_of_it}-{n}", str(tmp_path)) for run_of_it in "ab" for n in range(4)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = [*pool.map(lambda some: run(*some), (gangs[:4], gangs[4:]))]
    assert all(len(set(outcome.value)) == 2 for some in outcomes for outcome in some)


def test_a_gang_waits_for_workers_that_have_other_work(run, cluster, tmp_path):
    place = str(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        others = pool.submit(run, *(busy(place, name) for name in "abc"))
        until(lambda: len(list(tmp_path.glob("busy-*"))) == 3)
        late = pool.submit(run, meeting("late", place).with_(hosts=3))
        until(lambda: any(str(key).endswith("rank-2") for key in [*cluster.scheduler.tasks]))
        assert not list(tmp_path.glob("late-*"))
        for name in "abc":
            Path(place, f"end-{name}").touch()
        assert [outcome.value for outcome in others.result()] == ["a", "b", "c"]
        assert len(set(late.result().value)) == 3


HALF = """
from marin_dsl import evaluate
from tests.marin_dsl.gang_operators import meeting
evaluate(meeting("half", {place!r}).with_(hosts=3), store={store!r}, scheduler={scheduler!r})
"""


def test_who_dies_before_a_gang_has_assembled_leaves_no_worker_waiting(run, cluster, tmp_path):
    place, store = str(tmp_path), str(tmp_path / "store")
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(run, busy(place, "a"))
        until((tmp_path / "busy-a").exists)
        program = HALF.format(place=place, store=store, scheduler=cluster.scheduler_address)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen([sys.executable, "-c", program], env=environment) as half:
            until(lambda: any(str(key).endswith("rank-2") for key in [*cluster.scheduler.tasks]))
            half.kill()
        Path(place, "end-a").touch()
        assert other.result().value == "a"
    assert len(set(run(meeting("next", place).with_(hosts=3)).value)) == 3
    assert not list(tmp_path.glob("half-*"))


def test_more_members_than_workers_are_refused_with_advice(run, tmp_path):
    outcomes = run(
        gang("rank", str(tmp_path)).with_(hosts=4),
        gang("look", str(tmp_path)).with_(resources={"GPU": 2}),
        gang("rank", str(tmp_path / "none")).with_(hosts=1, retries=0),
    )
    assert [outcome.kind for outcome in outcomes[:2]] == ["lost", "lost"]
    assert outcomes[0].message.endswith(
        " asks for hosts=4, and the cluster has 3 workers, where each member needs one of its own; start more, or say "
        "expr.with_(hosts=3)"
    )
    assert " needs GPU=2, and no worker has more than 1" in outcomes[1].message
    assert outcomes[2].exception == "FileNotFoundError"  # it ran
