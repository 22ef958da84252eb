"""`marin failures` and `marin log`: what a store has recorded."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from marin_dsl import Store, provenance
from marin_dsl.lineage import history
from marin_dsl.store.owner import Owner
from tests.marin_dsl.command_line.project import MODULE, document, marin, told, write_module


def test_failures_are_listed_with_their_attempts_the_latest_first(evaluated):
    marin("run", "experiment:page", "experiment:fail_alone", "--debug")
    shown = told("failures")
    assert len(shown) == 6
    assert re.fullmatch(r"✗ fail\(n=\d\)  (2 attempts, )?raised  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown[0])
    assert "    ValueError: no 7" in shown
    place = shown.index("    ValueError: no 3")
    assert shown[place - 1].startswith("✗ fail(n=3)  2 attempts, raised  ")
    assert re.fullmatch(r"    .*experiment.py:\d+ in fail  run \S+  \S+, process \d+  call \w{12}…", shown[place + 1])


def test_failures_under_a_target_of_one_run_and_with_tracebacks(evaluated):
    marin("run", "experiment:fail_alone", "--debug")
    assert [found["title"] for found in document("failures", "experiment:page")["failures"]] == ["fail(n=3)"]
    assert [found["title"] for found in document("failures", "a-page@1.0")["failures"]] == ["fail(n=3)"]
    last = document("log")["runs"][0]["run"]
    assert [found["title"] for found in document("failures", "--run", last[-6:])["failures"]] == ["fail(n=7)"]
    shown = told("failures", "experiment:fail_alone", "--traceback")
    assert "    │ about to fail with 7" in shown
    assert "    Traceback (most recent call last):" in shown
    assert shown[-1] == "    ValueError: no 7"


def test_a_failure_that_was_mended_says_so(evaluated):
    write_module("experiment", MODULE.replace("raise ValueError", "return 1\n        raise ValueError"))
    marin("run", "experiment:bad", "--debug")
    (failed,) = document("failures")["failures"]
    assert failed["mended"]
    assert told("failures")[0].endswith("has a result by now")


def test_no_failures_and_no_such_run(evaluated):
    assert told("failures", "experiment:good") == ["no failures are recorded under experiment:good"]
    assert told("failures", "--store", "empty")[0].startswith("no failures are recorded in store ")
    done = marin("failures", "--run", "20990101")
    assert done.exit_code == 2
    assert "has no run 20990101; marin log lists them" in done.stderr
    marin("run", "experiment:long", "--debug")
    assert "2 runs are like 2" in marin("failures", "--run", "2").stderr


def test_log_lists_runs_the_newest_first(evaluated):
    marin("run", "experiment:bad", "--debug", "--keep-failures", "--accept")
    marin("run", "experiment:sweep", "--debug", "--keep-failures", "--accept")
    shown = told("log")
    assert len(shown) == 4, "a run that had nothing to do leaves no record"
    assert re.fullmatch(r"ok         \d{8}T\d{6}Z-[0-9a-f]{9}  \S+ \S+  (\d+ ms|[\d.]+ s)  2 run, 1 served", shown[0])
    assert shown[1] == " " * 11 + "experiment:sweep  drift: accept  failures kept"
    assert shown[2].endswith("4 run, 0 served, 1 failed, 1 skipped")
    newest, first = document("log")["runs"]
    assert (newest["state"], newest["counts"]["served"], newest["drift"]) == ("ok", 1, "accept")
    assert first["roots"][0]["label"] == "a-page@1.0"
    assert [run["run"] for run in document("log", "--limit", "1")["runs"]] == [newest["run"]]
    assert [run["run"] for run in document("log", "a-page@1.0", "--runs")["runs"]] == [first["run"]]


def test_log_of_a_label_tells_what_it_stood_for(evaluated):
    write_module("experiment", MODULE.replace('"A page"', '"A better page"'))
    marin("run", "experiment:page", "--debug", "--accept")
    shown = told("log", "a-page@1.0")
    assert shown[0] == "a-page@1.0"
    kinds = [re.fullmatch(r"  \S+ \S+  (stands for|evaluated ) .*", line)[1].strip() for line in shown[1:]]
    assert sorted(kinds) == ["evaluated", "evaluated", "stands for", "stands for"]
    found = document("log", "a-page@1.0")["log"]
    assert found[0]["recipe"] != found[-1]["recipe"]
    assert {entry["target"] for entry in found if entry["kind"] == "evaluated"} == {"experiment:page"}


@pytest.mark.parametrize("name", ["a-page", "nothing@1.0"])
def test_log_of_what_is_no_label_is_one_message(evaluated, name):
    done = marin("log", name)
    assert done.exit_code == 2
    assert "label" in done.stderr


def test_log_of_an_empty_store_says_how_to_begin():
    assert "has no runs; marin run TARGET makes one" in told("log")[0]


KILLED = """
    import os, signal, time
    from pathlib import Path
    from marin_dsl import op

    @op(version="1")
    def first() -> int:
        return 1

    @op(version="1")
    def die(n: int) -> int:
        log = next(Path(".marin").glob("runs/*/events.jsonl"))
        while log.read_text().count('"running"') < 2:
            time.sleep(0.01)  # events wait a moment before they are written
        os.kill(os.getpid(), signal.SIGKILL)

    x = die(first())
"""


def test_a_run_that_was_killed_is_lost_and_one_at_work_is_running(project):
    write_module("deadly", KILLED)
    code = "from marin_dsl.command_line import main; main(prog_name='marin')"
    source = Path(provenance.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "deadly.py:x", "--debug"],
        env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    (run,) = document("log")["runs"]
    assert (run["state"], run["ran"], run["seconds"], run["counts"]["open"]) == ("lost", 1, None, 1)
    assert "no end" in told("log")[0]
    store = Store(".marin")
    path = next(Path(".marin/runs").glob("*/start/000001.json"))
    record = store.last(f"runs/{run['run']}/start")
    path.unlink()
    store.add(f"runs/{run['run']}/start", {**record, "owner": attrs.asdict(Owner.here(run["run"]))})
    assert document("log")["runs"][0]["state"] == "running"
    assert re.search(r"  for .* s so far  1 run, 0 served, 1 open$", told("log")[0])
    path.unlink()
    store.add(f"runs/{run['run']}/start", {**record, "owner": {**record["owner"], "machine": "another"}})
    assert document("log")["runs"][0]["state"] == "running", "it said something a moment ago"


def test_a_run_on_another_host_is_lost_when_it_has_been_silent(evaluated, monkeypatch):
    (run,) = (Path(".marin/runs")).iterdir()
    next(run.glob("end/*")).unlink()
    store = Store(".marin")
    record = store.last(f"runs/{run.name}/start")
    next(run.glob("start/*")).unlink()
    store.add(f"runs/{run.name}/start", {**record, "owner": {**record["owner"], "machine": "another"}})
    monkeypatch.setattr(history, "SILENT", 0.0)
    assert document("log")["runs"][0]["state"] == "lost"
    (run / "cancelled").touch()
    assert document("log")["runs"][0]["state"] == "interrupted"


def test_records_of_runs_from_before_hosts_were_recorded_are_read(evaluated):
    (run,) = (Path(".marin/runs")).iterdir()
    store = Store(".marin")
    record = store.last(f"runs/{run.name}/start")
    for name in ("owner", "drift"):
        del record[name]
    next(run.glob("start/*")).unlink()
    store.add(f"runs/{run.name}/start", record)
    (found,) = document("log")["runs"]
    assert (found["host"], found["drift"], found["state"]) == ("", "advise", "ok")
    assert json.dumps(found)
