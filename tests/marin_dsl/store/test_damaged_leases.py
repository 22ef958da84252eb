"""Leases of any content: nobody hangs, nobody trips, and who is at work shows that again."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import attrs
import pytest

from marin_dsl import Store, evaluate, op
from marin_dsl.evaluation.elsewhere import Elsewhere
from marin_dsl.store.leases import Lease, Sighting, Watch, acquire, free, look
from marin_dsl.store.owner import Owner

CALL = bytes(range(32))
PATH = f"leases/{CALL.hex()}"
ME = Owner.here("20261201T212952Z-8bba16")


def lease(**changes):
    return json.dumps({"nonce": "n", "owner": attrs.asdict(ME) | changes, "released": False}).encode()


GARBAGE = {
    "empty": b"",
    "binary": bytes(range(256)),
    "text": b"hello",
    "cut": lease()[:-20],
    "null": b"null",
    "a list": b"[1, 2]",
    "deep": b"[" * 50_000,
    "no owner": b"{}",
    "an owner that is none": b'{"owner": 3, "released": []}',
    "an owner of lists": json.dumps({"owner": {name: [] for name in attrs.asdict(ME)}, "released": False}).encode(),
    "an endless pid": lease(run="another").replace(f'"pid": {ME.pid}'.encode(), b'"pid": Infinity'),
    "a pid of digits": lease(run="another", pid="x" * 5000),
    "a pid that is large": lease(run="another", pid=10**400),
    "a beginning that is no number": lease(run="another", born="soon"),
    "more fields": lease(run="another", since="tomorrow"),
    "no utf-8": b'{"owner": "\xff"}',
}


@pytest.fixture
def files(tmp_path):
    return Store(tmp_path / "store").files


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_lease_of_any_content_is_seen_and_taken_over_in_time(files, kind):
    files.create(PATH, GARBAGE[kind])
    seen = look(files, CALL)
    assert seen.content == GARBAGE[kind]
    assert isinstance(seen.described, str)
    assert not seen.released
    assert not free(seen, "a run")
    assert acquire(files, CALL, ME) == seen
    clock = [0.0]
    watch = Watch(60.0, lambda: clock[0])
    looks = 0
    while not watch.abandoned(look(files, CALL)):
        clock[0], looks = clock[0] + 15.0, looks + 1
        assert looks < 10
    assert acquire(files, CALL, ME, abandoned=seen).generation == 2


@pytest.mark.parametrize("kind", [kind for kind in GARBAGE if "pid" not in kind and "fields" not in kind])
def test_the_owner_of_a_lease_that_was_damaged_shows_again_that_it_is_at_work(files, kind):
    mine = acquire(files, CALL, ME)
    assert isinstance(mine, Lease)
    files.replace(PATH, (GARBAGE[kind],))
    assert mine.refresh()
    seen = look(files, CALL)
    assert seen.owner == ME
    assert not mine.lost
    files.replace(PATH, (GARBAGE[kind],))
    mine.release()
    assert look(files, CALL) is None


def test_the_lease_of_somebody_else_at_the_place_of_ones_own_is_left_alone(files):
    mine = acquire(files, CALL, ME)
    theirs = lease(run="another")
    files.replace(PATH, (theirs,))
    assert not mine.refresh()
    assert mine.lost
    mine.release()
    assert files.read(PATH) == theirs


@op(version="1")
def f(n: int) -> int:
    time.sleep(0.06)
    return n


@pytest.mark.parametrize("kind", ["empty", "binary", "deep", "an endless pid", "a folder"])
def test_an_evaluation_waits_for_such_a_lease_no_longer_than_for_others(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("MARIN_LEASE_SECONDS", "0.2")
    store = Store(tmp_path / "store")
    assert evaluate(f(1), store=store, debug=True).ok  # so that it is known not to be short
    place = store.files.root / "leases" / f(2).key.hex()
    place.parent.mkdir(exist_ok=True)
    if kind == "a folder":
        (place / "inside").mkdir(parents=True)
    else:
        place.write_bytes(GARBAGE[kind])
    assert evaluate(f(2), store=store, debug=True).value == 2


@attrs.frozen
class _Task:
    call: bytes
    asked: int = 0
    abandoned: Sighting | None = None


def test_a_look_at_leases_in_the_driver_stands_any_content(tmp_path):
    store = Store(tmp_path / "store")
    clock = [0.0]
    for kind, content in GARBAGE.items():
        elsewhere = Elsewhere(store, "mine", 60.0, clock=lambda: clock[0])
        task = _Task(CALL)
        store.files.replace(PATH, (content,))
        elsewhere.add(task, Sighting(1, content))
        handed_out = []
        for _ in range(10):
            clock[0] += 16.0
            handed_out += elsewhere.due()
        assert [each.abandoned for each in handed_out] == [Sighting(1, content)], kind


DRIVER = """
    import os, pathlib, sys, time
    from marin_dsl import evaluate, op

    @op(version="1", name="slow")
    def slow(n: int, folder: str) -> int:
        with open(pathlib.Path(folder, "ran"), "a") as log:
            log.write(f"{os.getpid()}\\n")
        time.sleep(float(pathlib.Path(folder, "seconds").read_text()))
        return n

    folder = sys.argv[1]
    print(evaluate(slow(1, folder), store=f"{folder}/store", debug=True).value)
"""


def driver(folder):
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[3] / "src"), "MARIN_LEASE_SECONDS": "2",
    }  # fmt: skip
    (folder / "driver.py").write_text(textwrap.dedent(DRIVER))
    command = [sys.executable, str(folder / "driver.py"), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ran(folder):
    return (folder / "ran").read_text().split() if (folder / "ran").exists() else []


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True], ids=["both go on", "the first is killed"])
def test_two_drivers_and_a_lease_that_is_damaged_again_and_again(tmp_path, killed):
    (tmp_path / "seconds").write_text("8")
    first = driver(tmp_path)
    until(lambda: ran(tmp_path) and list((tmp_path / "store" / "leases").glob("*")))
    (tmp_path / "seconds").write_text("0.1")
    second = driver(tmp_path)
    contents = [GARBAGE[kind] for kind in ("empty", "binary", "cut", "deep")]
    for number in range(8):
        for place in (tmp_path / "store" / "leases").glob("*"):
            place.write_bytes(contents[number % len(contents)])
        time.sleep(0.4)
        if killed and number == 4:
            first.kill()
    told, trouble = second.communicate(timeout=60)
    assert (second.returncode, told) == (0, "1\n"), trouble
    first.communicate(timeout=60)
    assert first.returncode == (-9 if killed else 0)
    assert len(ran(tmp_path)) == 1 + killed
