"""What of `benchmarks/gpu_check.py` can be seen without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_check

SCRIPT = Path(gpu_check.__file__)


def test_without_a_gpu_it_says_so_exits_with_2_and_writes_nothing(tmp_path):
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--report", str(tmp_path / "report.json")],
        capture_output=True,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert run.returncode == 2
    assert "gpu_check: no GPU here: JAX runs on cpu; nothing was checked" in run.stderr
    assert not (tmp_path / "report.json").exists()


def test_a_check_that_raises_is_a_failed_one_in_the_report(monkeypatch):
    def broken():
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu_check, "checks", lambda: iter([("one", lambda: {"passed": True}), ("two", broken)]))
    found = gpu_check.report("")
    assert found["passed"] is False
    assert found["checks"]["one"]["passed"]
    assert found["checks"]["two"]["raised"] == "RuntimeError: out of memory"
    assert "broken" in found["checks"]["two"]["at"]
    assert gpu_check.report("one")["passed"] is True
    assert gpu_check.report("three")["passed"] is False  # nothing checked is nothing passed


def test_checks_that_find_no_time_have_failed(monkeypatch):
    monkeypatch.setattr(gpu_check, "checks", lambda: iter([("one", lambda: {"passed": True})]))
    monkeypatch.setattr(gpu_check, "BUDGET", -1.0)
    assert gpu_check.report("")["checks"]["one"]["raised"] == "no time was left"


@pytest.mark.parametrize(("found", "error"), [([1.0, float("nan")], float("inf")), ([1.0, 2.2], 0.1)])
def test_errors_are_relative_to_the_peak_and_nan_is_the_worst(found, error):
    assert gpu_check.worst_error([found], [[1.0, 2.0]]) == pytest.approx(error)
