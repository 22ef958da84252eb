"""`marin doctor`: each kind of trouble is found, and comes with advice."""

from __future__ import annotations

import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from marin_dsl import Store
from marin_dsl.evaluation import event_log
from marin_dsl.lineage import health
from marin_dsl.store import StoreUnavailable
from marin_dsl.store.collection import pin
from marin_dsl.store.owner import Owner
from tests.marin_dsl.command_line.project import document, marin, told


def level(name: str, code: int) -> dict[str, Any]:
    """What the doctor found under a name."""
    return next(check for check in document("doctor", code=code)["checks"] if check["name"] == name)


def test_a_sound_store_is_said_to_be_one(evaluated):
    shown = told("doctor")
    assert all(line.startswith("✓ ") for line in shown)
    assert any(line.startswith("✓ store      ") and line.endswith(", schema 2") for line in shown)
    assert [check["name"] for check in document("doctor")["checks"]] == [
        "versions", "store", "writing", "space", "leftovers", "records", "conflicts", "runs", "python",
    ]  # fmt: skip


def test_a_store_that_is_not_there_yet_is_a_note():
    assert document("doctor")["checks"][-1]["level"] == "note"
    assert "there is no store at" in told("doctor")[1]
    assert not Path(".marin").exists(), "nothing is written"


def test_a_store_of_a_later_version_is_exit_3(evaluated):
    Path(".marin/format.json").write_text('{"schema": 99}')
    assert marin("doctor").exit_code == 3


def test_a_store_that_cannot_be_written_is_bad(evaluated, monkeypatch):
    def check(self: Store, *, writing: bool = False) -> None:
        if writing:
            raise StoreUnavailable("store s: cannot write runs: the file system is read-only")

    monkeypatch.setattr(Store, "check", check)
    found = level("writing", 1)
    assert (found["level"], found["text"]) == ("bad", "store s: cannot write runs: the file system is read-only")
    assert "still served" in found["advice"]


def test_little_room_is_bad(evaluated, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: type("Usage", (), {"free": 5 << 20})())
    found = level("space", 1)
    assert (found["level"], found["text"]) == ("bad", "only 5.00 MiB free")


def test_a_folder_that_others_may_read_is_a_note(evaluated):
    Path(".marin").chmod(0o755)
    assert "chmod 700" in level("privacy", 0)["advice"]


def test_what_was_left_behind_is_found_and_can_be_removed_as_the_advice_says(evaluated):
    shard = next(Path(".marin/results").iterdir())
    (shard / ".temporary-1").touch()
    Path(".marin/scratch/abc").mkdir(parents=True)
    assert level("leftovers", 0)["level"] == "good", "somebody may be at work"
    before = time.time() - 100_000
    for place in (shard / ".temporary-1", Path(".marin/scratch/abc")):
        os.utime(place, (before, before))
    found = level("leftovers", 1)
    assert found["text"].startswith("1 temporary files and 1 scratch folders were left behind")
    assert sorted(found["items"]) == [f"results/{shard.name}/.temporary-1", "scratch/abc"]
    assert os.system(found["advice"].removeprefix("when nothing is running, remove them: ")) == 0
    assert level("leftovers", 0)["level"] == "good"


def test_what_a_gang_keeps_for_its_next_attempt_is_not_left_behind(evaluated):
    scratch = Path(".marin/scratch/abc")
    (scratch / "kept").mkdir(parents=True)
    before = time.time() - 100_000
    os.utime(scratch, (before, before))
    assert level("leftovers", 0)["level"] == "good"
    (scratch / "marin-xyz").mkdir()
    os.utime(scratch, (before, before))
    assert level("leftovers", 1)["items"] == ["scratch/abc"]


def test_damaged_records_are_found(evaluated):
    paths = [next(Path(".marin/results").glob("*/*.json")), next(Path(".marin/recipes").glob("*/*.call"))]
    for path in paths:
        path.write_bytes(path.read_bytes()[:-9])
    found = level("records", 1)
    assert found["text"].startswith("2 of ")
    assert sorted(found["items"]) == sorted(str(path.relative_to(".marin")) for path in paths)


def test_files_of_others_in_the_store_are_no_trouble(evaluated):
    pin(Store(".marin"), event_log.runs(Store(".marin"))[0])
    for folder in ("results", "runs", "labels", "failures"):
        Path(f".marin/{folder}/.DS_Store").touch()
    assert level("records", 0)["level"] == "good"
    assert len(told("log")) == 2
    assert len(told("failures")) == 3
    assert marin("run", "experiment:long", "--debug").exit_code == 0


def test_calls_that_came_to_two_values_are_named(evaluated):
    store = Store(".marin")
    path = next(Path(".marin/results").glob("*/*.json"))
    call = bytes.fromhex(path.parent.name + path.stem)
    record = store.result(call)
    store.commit(call, {**record, "value": store.put("another").as_record()})
    found = level("conflicts", 1)
    assert found["text"].startswith("1 calls came to different values")
    assert record["title"] in found["items"][0]
    assert "context().rng()" in found["advice"]


def test_runs_that_never_ended_are_found_until_they_are_run_again(evaluated, monkeypatch):
    marin("run", "experiment:sweep", "--debug")
    monkeypatch.setattr(Owner, "ended", True)
    last = max(Path(".marin/runs").iterdir())
    next((last / "end").iterdir()).unlink()
    found = level("runs", 1)
    assert found["text"].startswith("1 runs never ended")
    assert found["items"][0].startswith(last.name)
    assert "run it again" in found["advice"]
    shutil.rmtree(".marin/results")
    marin("run", "experiment:sweep", "--debug")
    assert level("runs", 0)["level"] == "good"


def test_another_python_than_that_of_the_latest_run_is_a_note(evaluated, monkeypatch):
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.1")
    found = level("python", 0)
    assert (found["level"], found["text"]) == ("note", "this is Python 3.99.1, and the latest run had Python 3.11.7")


def test_a_scheduler_that_does_not_answer_is_exit_2(evaluated, monkeypatch):
    monkeypatch.setattr(health, "ANSWER", 0.5)
    done = marin("doctor", "--scheduler", "tcp://127.0.0.1:1")
    assert done.exit_code == 2
    assert "no Dask scheduler answers at tcp://127.0.0.1:1" in done.stderr


def test_the_workers_of_a_cluster_are_looked_at(monkeypatch):
    import distributed

    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0", protocol="tcp") as cluster:
        address = cluster.scheduler_address
        found = document("doctor", "--scheduler", address)["checks"][-1]
        assert (found["level"], found["text"][:10]) == ("good", "1 workers,")
        monkeypatch.setattr(health.platform, "python_version", lambda: "3.99.1")
        found = document("doctor", "--scheduler", address, code=1)["checks"][-1]
        assert found["text"] == "1 of 1 workers have another Python than 3.99.1"


@pytest.mark.parametrize("items", [0, 5, 6])
def test_many_things_are_counted(items):
    found = health._some([str(number) for number in range(items)])
    assert len(found) == min(items, 6)
    assert items < 6 or found[-1] == "… and 1 more"
