"""Calls in processes of their own: whatever one does there, it has an outcome."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import distributed
import pytest

from marin_dsl import Failed, Ok, Store, evaluate, op, provenance, secret
from marin_dsl.evaluation import retries
from marin_dsl.store import StoreUnavailable
from marin_dsl.worker.isolation import Process, Ready, _death, ready
from tests.marin_dsl.isolated_operators import continuing, isolated, plain

DEATHS = {
    "hard exit": "its process ended with exit status 3 before the operator returned (os._exit, perhaps)",
    "silent exit": "its process ended with exit status 0 before the operator returned (os._exit, perhaps)",
    "segfault": "its process was killed by signal 11 (SIGSEGV)",
    "kill": "its process was killed by signal 9 (SIGKILL)",
    "terminate": "its process was killed by signal 15 (SIGTERM)",
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})
    monkeypatch.setattr(retries, "RETRIES", 0)


def run(expression, tmp_path, **settings):
    return evaluate(expression, store=tmp_path / "store", debug=True, **settings)


def test_a_fresh_process_runs_it_and_what_it_gives_is_kept(tmp_path):
    first, second = (run(isolated("pid").with_(title=str(n)), tmp_path / str(n)).value for n in range(2))
    assert len({first, second, os.getpid()}) == 3
    found = run(isolated("modules"), tmp_path).value
    assert "jax" not in found
    assert "distributed" not in found


def test_the_memory_of_a_process_that_died_before_anybody_looked_is_known(tmp_path, monkeypatch):
    told = Process.told

    def told_and_dead(process, *arguments):
        found = told(process, *arguments)
        os.waitid(os.P_PID, process.popen.pid, os.WEXITED | os.WNOWAIT)
        return found

    monkeypatch.setattr(Process, "told", told_and_dead)
    assert run(isolated("kill"), tmp_path).peak_memory > 1 << 20


@pytest.mark.parametrize(("way", "message"), DEATHS.items())
def test_a_death_is_a_failure_that_names_the_cause(tmp_path, way, message):
    outcome, other = evaluate(isolated(way), plain(1), store=tmp_path, debug=True)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.exception) == ("killed", "marin_dsl.worker.isolation.Killed")
    assert outcome.message == message
    assert outcome.output[0] == f"about to {way}"
    assert outcome.peak_memory > 1 << 20
    assert other.value == 1
    if way == "kill":
        (advice,) = outcome.notes
        assert advice == (
            "out of memory? That is how the kernel ends processes then (`dmesg` says so): run it where more memory is "
            "free, ask for more with resources=, or let it need less"
        )
        with pytest.raises(RuntimeError, match=r"out of memory\?[^│]*│ about to kill"):
            _ = outcome.value
    if way == "segfault":
        assert any("isolated_operators.py" in line and "segfault" in line for line in outcome.output)


def test_a_signal_without_a_name_is_told_too():
    assert str(_death(-200)) == "its process was killed by signal 200 (a signal)"


@pytest.mark.parametrize(
    ("way", "kind", "exception", "message"),
    [
        ("raise", "raised", "ZeroDivisionError", "division by zero"),
        ("noted", "raised", "ValueError", "no"),
        ("unpicklable", "raised", "tests.marin_dsl.isolated_operators.Unpicklable", "('no way', "),
        ("exit", "raised", "SystemExit", "bye"),
        ("interrupt", "raised", "KeyboardInterrupt", "mine"),
        ("unstorable", "unstorable", "marin_dsl.encoding.registry.Unencodable", "the result of isolated cannot be"),
    ],
)
def test_what_it_raises_and_what_cannot_be_kept_are_failures(tmp_path, way, kind, exception, message):
    outcome = run(isolated(way), tmp_path)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.exception) == (kind, exception)
    assert outcome.message.startswith(message)
    assert outcome.output == (f"about to {way}",)
    if kind == "raised":
        assert "isolated_operators.py" in outcome.traceback
        assert "signature.py" not in outcome.traceback
    assert outcome.notes == (("try another one",) if way == "noted" else ())


def test_a_timeout_ends_it_and_tells_where_it_was(tmp_path):
    outcome = run(isolated("hang").with_(timeout=0.7), tmp_path)
    assert (outcome.kind, outcome.exception) == ("timeout", "marin_dsl.worker.context.TimedOut")
    assert outcome.message == "no result within 0.7s, the timeout of the call"
    assert any("isolated_operators.py" in line and "in hang" in line for line in outcome.output)
    assert run(isolated("return").with_(timeout="1h"), tmp_path).value == 3


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_that_it_started_outlives_it(tmp_path):
    assert gone(run(isolated("leave a child"), tmp_path).value)


def test_what_it_prints_is_kept_and_what_it_closes_is_no_harm(tmp_path):
    assert run(isolated("closed output"), tmp_path).value == "done"
    assert run(isolated("flood"), tmp_path).value == "done"
    store = Store(tmp_path / "store")
    record = store.result(store.call_of(isolated("flood").key))
    assert record["output"] == [f"line {number}" for number in range(59_950, 60_000)]


def test_scratch_logs_and_observations_are_as_elsewhere(tmp_path):
    seen = []
    file, folder = run(isolated("scratch"), tmp_path, watch=seen.append).value
    assert file.read_text() == "kept"
    assert not Path(folder).exists()
    store = Store(tmp_path / "store")
    record = store.result(store.call_of(isolated("scratch").key))
    assert record["output"] == ["about to scratch", "logged"]
    assert set(record["observations"]) == {"n"}
    assert [event["content"] for event in seen if event["event"] == "log"] == ["logged"]
    assert run(isolated("leave scratch and die"), tmp_path).kind == "killed"
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the mark includes what the parent had")
def test_the_memory_is_that_of_the_process_alone(tmp_path):
    store = Store(tmp_path / "store")
    held = bytearray(b"x" * (300 << 20))
    run(isolated("memory"), tmp_path)
    run(isolated("return"), tmp_path)
    much, little = (
        store.result(store.call_of(isolated(way).key))["provenance"]["peak_memory"] for way in ("memory", "return")
    )
    assert much > 150 << 20
    assert little < 150 << 20 < len(held)


def test_it_sees_the_surroundings_of_the_worker_as_they_are_now(tmp_path, monkeypatch):
    ready().take().leave()  # one is waiting now, and was started before the changes
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_TEST_SETTING", "new")
    assert run(isolated("folder"), tmp_path).value == [str(tmp_path), "new"]


def test_a_process_that_has_ended_while_it_waited_is_replaced(tmp_path):
    waiting = ready()
    waiting.take().leave()
    for process in waiting._waiting:
        process.signal(signal.SIGKILL)
        process.popen.wait()
    assert run(isolated("return"), tmp_path).value == 3


def test_a_process_that_cannot_start_is_a_failure_that_shows_why(tmp_path, monkeypatch):
    monkeypatch.setattr("marin_dsl.worker.isolation.ready", Ready)
    monkeypatch.setattr("marin_dsl.worker.isolation._program", lambda descriptor: "raise SystemExit('no interpreter')")
    outcome = run(isolated("return"), tmp_path)
    assert outcome.kind == "killed"
    assert outcome.output == ("no interpreter",)


def test_a_working_folder_that_is_gone_is_no_harm(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")

    def remove(event):
        if event["event"] == "started":
            (tmp_path / "gone").rmdir()

    assert run(isolated("return"), tmp_path, watch=remove).value == 3


FORKS = {
    "fork and return": 0,
    "fork and exit": 0,
    "fork and exit with 3": 3,
    "fork and exit with a text": 1,
    "fork and raise": 1,
    "fork in a fork": 0,
}


@pytest.mark.parametrize(("way", "status"), FORKS.items())
@pytest.mark.parametrize("settings", [{"isolate": True}, {"isolate": False}, {"isolate": False, "timeout": 60}])
def test_only_the_process_that_was_given_a_call_answers_and_not_one_that_it_forked(tmp_path, way, status, settings):
    outcomes = evaluate(isolated(way).with_(**settings), plain(1), store=tmp_path / "store", debug=True)
    with open(tmp_path / "drivers", "a") as file:
        file.write(f"{os.getpid()}\n")
    assert [found.value for found in outcomes] == [f"parent of one that ended with {status}", 1]
    assert (tmp_path / "drivers").read_text() == f"{os.getpid()}\n", "a child went on with what its parent does"


def test_the_trouble_of_the_store_in_its_process_stops_the_run(tmp_path):
    with pytest.raises(StoreUnavailable, match=r"blobs/.*a part of the path is a file"):
        run(isolated("lose the store"), tmp_path)


def test_a_cancellation_that_it_sees_in_its_process_is_no_failure_of_the_operator(tmp_path):
    outcome = run(isolated("cancel"), tmp_path)
    assert (outcome.kind, outcome.message) == ("lost", "the run was cancelled")


def test_what_a_fork_raised_is_shown_by_it(tmp_path):
    raised, said = (run(isolated(f"fork and {way}"), tmp_path) for way in ("raise", "exit with a text"))
    assert "ZeroDivisionError: division by zero" in raised_output(tmp_path, "fork and raise")
    assert "gone wrong" in raised_output(tmp_path, "fork and exit with a text")
    assert raised.ok
    assert said.ok


def raised_output(tmp_path, way) -> list[str]:
    store = Store(tmp_path / "store")
    return store.result(isolated(way).key)["output"]


def test_an_operator_of_no_module_travels_by_its_code(tmp_path):
    factor = 7

    @op(version="1", isolate=True)
    def local(n: int) -> int:
        return factor * n

    assert run(local(3), tmp_path).value == 21


def test_it_may_go_on_with_an_expression_also_one_of_no_module(tmp_path):
    assert run(continuing(3).with_(isolate=True), tmp_path).value == [12, 5]


class Unreadable:
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise ImportError("no such module here")


def test_a_call_that_cannot_be_read_there_is_lost(tmp_path):
    handle = Unreadable()

    @op(version="1", isolate=True)
    def closing() -> str:
        return repr(handle)

    outcome = run(closing(), tmp_path)
    assert (outcome.kind, outcome.exception, outcome.message) == ("lost", "ImportError", "no such module here")


@pytest.mark.parametrize("where", ["here", "scheduler"])
def test_an_operator_that_cannot_travel_is_a_failure_with_advice(tmp_path, where):
    lock = threading.Lock()

    @op(version="1")
    def locking(n: int) -> int:
        with lock:
            return n

    if where == "here":
        outcomes = evaluate(locking(1).with_(isolate=True), locking(2), store=tmp_path, debug=True)
    else:
        with distributed.LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address=":0") as cluster:
            outcomes = evaluate(locking(1), plain(2), store=tmp_path, scheduler=cluster.scheduler_address)
    assert (outcomes[0].kind, outcomes[1].value) == ("lost", 2)
    assert outcomes[0].message == (
        "locking cannot be sent to another process (TypeError: cannot pickle '_thread.lock' object); define it at the "
        "top of a module, or make what it holds inside of it"
    )


def test_a_store_in_memory_is_refused_with_advice():
    outcome = evaluate(isolated("return"), store="memory://isolation", debug=True)
    assert outcome.kind == "lost"
    assert outcome.message == (
        "isolate=True runs isolated in a process of its own, and memory://isolation is in the memory of this one; "
        "choose a store on a disk or in a bucket (--store or MARIN_STORE)"
    )


def test_threads_isolate_too_and_beside_each_other(tmp_path):
    outcomes = evaluate(isolated("pid"), isolated("kill"), isolated("return"), plain(2), store=tmp_path)
    assert isinstance(outcomes[0], Ok)
    assert outcomes[1].kind == "killed"
    assert [outcomes[2].value, outcomes[3].value] == [3, 2]


def test_an_interrupt_ends_the_process_at_once(tmp_path):
    pids = tmp_path / "pid"

    @op(version="1", isolate=True)
    def waiting() -> int:
        pids.write_text(str(os.getpid()))
        time.sleep(600)
        return 1

    def interrupt() -> None:
        while not pids.exists() or not pids.read_text():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run(waiting(), tmp_path)
    assert gone(int(pids.read_text()))


@op(version="1", isolate=True)
def leaking(token: str, way: str) -> str:
    print("printing", token, repr(token))
    os.write(2, token.encode())
    if way == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return token if way == "return" else "used it"


@pytest.mark.parametrize(("way", "kind"), [("die", "killed"), ("return", "unstorable"), ("use", None)])
def test_no_byte_of_a_secret_comes_out_of_the_process(tmp_path, monkeypatch, way, kind):
    token = "tok-'quoted'/42 ünïcode"
    monkeypatch.setenv("MARIN_TEST_TOKEN", token)
    seen = []
    outcome = run(leaking(secret("env://MARIN_TEST_TOKEN"), way), tmp_path, watch=seen.append)
    assert getattr(outcome, "kind", None) == kind
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for trace in (token, repr(token)[1:-1], "quoted'/42"):
        assert trace.encode() not in written
        assert trace not in repr(seen)
    assert b"printing <secret env://MARIN_TEST_TOKEN>" in written
