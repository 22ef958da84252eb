"""The log of a run's events: there while the run goes on, whole after a kill, never a reason to stop."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import marin_dsl
from marin_dsl import Store, evaluate, op, provenance
from marin_dsl.evaluation import event_log
from marin_dsl.evaluation.events import SCHEMA
from marin_dsl.store import StoreUnavailable


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


@op(version="1")
def double(n: int) -> int:
    return 2 * n


def run_id(store: Store) -> str:
    return store.files.names("runs")[-1]


def test_an_operator_finds_its_own_start_in_the_log(tmp_path):
    @op(version="1")
    def look(n: int) -> list:
        log = next((tmp_path / "runs").glob("*/events.jsonl"))
        while log.read_text().count('"running"') < 2:
            time.sleep(0.01)  # events wait a moment before they are written
        return log.read_text().splitlines()

    found = [json.loads(line) for line in evaluate(look(double(1)), store=tmp_path, debug=True).value]
    assert [event["event"] for event in found] == ["planned", "started", "running", "ok", "running"]
    assert {event["schema"] for event in found} == {SCHEMA}
    (log,) = (tmp_path / "runs").glob("*/events.jsonl")
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_kill_leaves_what_had_happened(tmp_path):
    (tmp_path / "deadly.py").write_text(
        textwrap.dedent("""
        import os, signal, time
        from pathlib import Path
        from marin_dsl import evaluate, op, provenance

        provenance.environment = lambda project: {"python": "3"}

        @op(version="1")
        def double(n: int) -> int:
            return 2 * n

        @op(version="1")
        def die(n: int) -> int:
            log = next(Path("store").glob("runs/*/events.jsonl"))
            while log.read_text().count('"running"') < 2:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

        evaluate(die(double(1)), store="store", debug=True)
        """)
    )
    source = str(Path(marin_dsl.__file__).parents[1])
    done = subprocess.run([sys.executable, "deadly.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": source})
    assert done.returncode == -signal.SIGKILL
    store = Store(tmp_path / "store")
    found = event_log.state(store, run_id(store))
    assert found.counts == {"served": 0, "run": 1, "kept": 0, "skipped": 0, "open": 1}
    assert [call.title for call in found.running.values()] == ["die(double)"]
    assert found.ending is None


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_where_files_cannot_grow_the_log_is_in_segments(monkeypatch, seconds):
    monkeypatch.setattr(event_log, "_SEGMENT_SECONDS", seconds)
    store = Store(f"memory://segments-{seconds}")
    evaluate(double(double(double(1))), store=store, debug=True)
    names = store.files.names(f"runs/{run_id(store)}/events")
    assert names[:2] == ["000001.jsonl", "000002.jsonl"]
    assert (len(names) == 2) == (seconds > 0)
    found = event_log.state(store, run_id(store))
    assert found.counts["run"] == 3
    assert found.ending is not None


def test_a_run_that_serves_everything_writes_no_log(tmp_path):
    evaluate(double(1), store=tmp_path, debug=True)
    evaluate(double(1), store=tmp_path, debug=True)
    assert len(list((tmp_path / "runs").iterdir())) == 1


class Writing:
    """The module `os` with another way to write; the files of the store are written as ever."""

    def __init__(self, write):
        self.write = write

    def __getattr__(self, name):
        return getattr(os, name)


def test_a_log_that_cannot_be_written_stops_no_run(tmp_path, monkeypatch):
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(event_log, "os", Writing(full))
        assert evaluate(double(double(1)), store=tmp_path, debug=True).value == 4
    store = Store(tmp_path)
    assert event_log.lines(store, run_id(store)) == []


def test_a_segment_that_cannot_be_written_stops_no_run(monkeypatch):
    store = Store("memory://no-segments")
    create = store.files.create

    def refuse(path: str, data: bytes, **named) -> bool:
        if "/events/" in path:
            raise StoreUnavailable("the network is gone")
        return create(path, data, **named)

    monkeypatch.setattr(store.files, "create", refuse)
    assert evaluate(double(double(1)), store=store, debug=True).value == 4
    assert event_log.lines(store, run_id(store)) == []


def test_a_half_written_line_ends_the_log(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(event_log, "os", Writing(lambda file, data: os.write(file, data[: len(data) // 2])))
        evaluate(double(1), store=tmp_path, debug=True)
    store = Store(tmp_path)
    assert len(event_log.lines(store, run_id(store))) == 1
    assert event_log.state(store, run_id(store)).settled == {}


def test_how_long_operators_took_is_known_from_recent_runs(tmp_path):
    store = Store(tmp_path)
    assert event_log.durations(store, [double.name]) == {}
    evaluate(double(double(1)), store=store, debug=True)
    found = event_log.durations(store, [double.name, "another"])
    assert set(found) == {double.name}
    assert found[double.name] >= 0
    seen: list[dict] = []
    evaluate(double(5), store=store, debug=True, watch=seen.append)
    assert seen[0]["durations"].keys() == {double.name}
    assert seen[0]["operators"] == {double.name: 1}
