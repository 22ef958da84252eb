"""L13: killed at any point, the next run gives the same value and runs only what was not committed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from marin_dsl import Store
from marin_dsl.store.verify import verify
from tests.marin_dsl import killed_work

ROOT = Path(killed_work.__file__).parents[2]


def start(store: Path, ledger: Path, *settings: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.marin_dsl.killed_work", str(store), str(ledger), *settings],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "MARIN_LEASE_SECONDS": "1"},
        start_new_session=True,
        stderr=subprocess.PIPE,
    )


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


def killed_at_random(chance: random.Random, store: Path, ledger: Path, *settings: str) -> bool:
    """Start the experiment and kill it with all its processes somewhere; whether it was not faster."""
    before, wanted = len(lines(ledger)), chance.randrange(5)
    process = start(store, ledger, *settings)
    deadline = time.monotonic() + 60
    while process.poll() is None and len(lines(ledger)) < before + wanted and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(chance.random() * 0.02)
    with process:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        error = process.stderr.read().decode()
    assert process.returncode in (0, -signal.SIGKILL), error
    return process.returncode != 0


def check(tmp_path: Path, kills: int, *settings: str) -> None:
    chance, store, ledger = random.Random(kills), tmp_path / "store", tmp_path / "ledger"
    killed = sum(killed_at_random(chance, store, ledger, *settings) for _ in range(kills))
    last = start(store, ledger, *settings)
    _, error = last.communicate(timeout=120)
    assert last.returncode == 0, error.decode()
    found = lines(ledger)
    assert found[-1] == f"value {killed_work.VALUE}"
    ran = [line for line in found if not line.startswith("value")]
    assert set(ran) == killed_work.EACH
    # A call that returned an expression is in flight until that has a value, whatever else is.
    unfolded = sum(line.startswith("unfolded") for line in ran)
    in_flight = 1 if not settings else (os.cpu_count() or 1)
    assert unfolded <= 1 + killed
    assert len(ran) - unfolded <= len(killed_work.EACH) - 1 + killed * in_flight
    assert killed > 0
    left = verify(Store(store))
    assert left.sound, str(left)


def test_a_run_that_is_killed_a_few_times_ends_like_one_that_was_not(tmp_path):
    check(tmp_path, 5)


@pytest.mark.long
def test_a_run_that_is_killed_200_times_ends_like_one_that_was_not(tmp_path):
    for number in range(20):
        check(tmp_path / str(number), 10)


@pytest.mark.long
def test_workers_and_driver_that_are_killed_40_times_lose_nothing(tmp_path):
    for number in range(5):
        check(tmp_path / str(number), 8, "1")
