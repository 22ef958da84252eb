"""Where tasks run. One small cluster of threads is started, and shared."""

from __future__ import annotations

import importlib
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin_dsl import Failed, Ok, Skipped, Store, attempt, context, evaluate, op, provenance
from marin_dsl.evaluation.executors import Here, SchedulerMissing
from marin_dsl.store import StoreUnavailable
from marin_dsl.worker.task import Task


@pytest.fixture(scope="module", autouse=True)
def _quick_environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3"})
        yield


@pytest.fixture(scope="module")
def scheduler():
    import distributed

    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=4, processes=False, protocol="tcp", dashboard_address=":0", resources={"CPU": 4}
    ) as cluster:
        yield cluster.scheduler_address


@op(version="1")
def f(value: Any) -> Any:
    return value


@op(version="1")
def telling(n: int) -> int:
    current = context()
    current.log("line one\nbroken \udc80")
    current.progress(np.int64(1), 2, loss=np.float32(0.5))
    current.observe("loss", np.float32(0.5))
    return n


@op(version="1")
def raising(kind: str, url: str = "") -> int:
    store = StoreUnavailable("store s: full", url)
    raise {"interrupt": KeyboardInterrupt("mine"), "exit": SystemExit(2), "store": store}[kind]


@op(version="1")
def waiting(folder: str, name: str, others: int) -> int:
    Path(folder, name).touch()
    deadline = time.monotonic() + 20
    while len(list(Path(folder).iterdir())) < others:
        assert time.monotonic() < deadline, "the others never started"
        time.sleep(0.01)
    return 1


def test_a_resource_that_nobody_has_is_a_failure_of_that_node_and_the_rest_goes_on(tmp_path, scheduler):
    wanted = f(1).with_(resources={"TPU": 4})
    outcomes = evaluate(wanted, f(wanted), f(2), attempt(wanted), store=tmp_path, scheduler=scheduler)
    assert isinstance(outcomes[0], Failed)
    assert outcomes[0].kind == "lost"
    assert outcomes[0].message == (
        "f(value=1) needs TPU=4, and no worker has more than 0; "
        "lower it with expr.with_(resources=...), or run on a cluster that has it (--scheduler)"
    )
    assert isinstance(outcomes[1], Skipped)
    assert outcomes[2].value == 2
    assert outcomes[3].value == outcomes[0]
    assert Store(tmp_path).last_failure(Store(tmp_path).call_of(wanted.key))["failure"]["kind"] == "lost"
    assert evaluate(f(3).with_(resources={"CPU": 2}), store=tmp_path, scheduler=scheduler).value == 3


def test_events_come_from_the_workers_on_the_thread_of_the_evaluation(tmp_path, scheduler):
    import threading

    seen = []
    outcome = evaluate(
        f([telling(1), f(2)]), store=tmp_path, scheduler=scheduler,
        watch=lambda event: seen.append((event["event"], threading.current_thread(), event)),
    )  # fmt: skip
    assert outcome.value == [1, 2]
    assert {thread for _, thread, _ in seen} == {threading.main_thread()}
    kinds = [kind for kind, _, _ in seen]
    assert kinds[0] == "planned"
    assert kinds[-1] == "finished"
    assert kinds.count("ok") == 3
    progress = next((event for kind, _, event in seen if kind == "progress"), None)
    if progress is not None:  # news may come later than the end
        assert progress["content"]["facts"] == {"loss": 0.5}


@pytest.mark.parametrize("kind", ["interrupt", "exit"])
def test_an_operator_that_raises_what_would_end_a_process_fails_like_any_other(tmp_path, scheduler, kind):
    failed, other = evaluate(raising(kind), f(1), store=tmp_path, scheduler=scheduler)
    assert isinstance(failed, Failed)
    assert failed.exception == {"interrupt": "KeyboardInterrupt", "exit": "SystemExit"}[kind]
    assert other.value == 1


def test_trouble_of_the_store_in_a_worker_stops_the_run(tmp_path, scheduler):
    with pytest.raises(StoreUnavailable, match="store s: full"):
        evaluate(f([raising("store", str(tmp_path)), f(1)]), store=tmp_path, scheduler=scheduler)
    assert isinstance(evaluate(f(1), store=tmp_path, scheduler=scheduler), Ok)


def test_independent_nodes_run_at_the_same_time(tmp_path, scheduler):
    (tmp_path / "met").mkdir()
    made = [waiting(str(tmp_path / "met"), str(n), 3) for n in range(3)]
    assert [found.value for found in evaluate(*made, store=tmp_path / "s", scheduler=scheduler)] == [1, 1, 1]


def test_a_scheduler_that_is_not_there_is_an_error_soon(tmp_path):
    import dask

    importlib.import_module("distributed")  # its defaults win over what was set before it is first imported
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}), pytest.raises(SchedulerMissing) as caught:
        evaluate(f(1), store=tmp_path, scheduler="tcp://127.0.0.1:1")
    assert str(caught.value) == (
        "no Dask scheduler answers at tcp://127.0.0.1:1 (Timed out trying to connect to tcp://127.0.0.1:1 after 1 s); "
        "start one with `dask scheduler`, or leave the address out"
    )


@pytest.mark.parametrize("address", ["nonsense:x", "x", "tcp://", "tcp://127.0.0.1", "foo://x:1", ":", "tcp://[::1"])
def test_what_is_no_address_is_an_error_at_once_and_nothing_is_left_that_holds_the_process(
    tmp_path, monkeypatch, address
):
    def client(*_, **__):
        raise AssertionError("a client of no address waits a minute before it lets the process end")

    monkeypatch.setattr(importlib.import_module("distributed"), "Client", client)
    with pytest.raises(SchedulerMissing, match=re.escape(f"no Dask scheduler answers at {address} (")):
        evaluate(f(1), store=tmp_path, scheduler=address)


def test_here_takes_the_highest_priority_first_and_equal_ones_in_order(tmp_path):
    started = []
    here = Here(lambda event: started.append(event["title"]))
    for title, priority in (("a", 0), ("b", 0), ("c", 5), ("d", -1)):
        here.submit(
            Task(Store(tmp_path), f, f(title).payload, (), f(title).key, title, "run", "", "", False),
            resources={},
            priority=priority,
        )
    while here.next(0) is not None:
        pass
    assert started == ["c", "a", "b", "d"]
    here.submit(
        Task(Store(tmp_path), f, f("e").payload, (), f("e").key, "e", "run", "", "", False), resources={}, priority=0
    )
    here.close(grace=0)
    assert here.next(0) is None
