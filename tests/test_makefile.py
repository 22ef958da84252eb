"""What `make` runs and keeps, with a Python that only writes down what it is asked for."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYTHON = """\
#!/bin/sh
echo "${HYPOTHESIS_PROFILE:-quick}: $*" >> asked.txt
exit %d
"""
ENVIRONMENTS = ("python", "development", "compilers", "interop", "newest")


def make(folder, target, *, options=(), status=0, ready=ENVIRONMENTS):
    """Run it where some environments are ready: how it ended, what it told, and what Python was asked for."""
    (folder / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
        os.utime(folder / name, (0, 0))
    for name in ready:
        (folder / ".venv" / name).touch()
    python = folder / ".venv" / "bin" / "python"
    python.write_text(PYTHON % status)
    python.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "HYPOTHESIS_PROFILE"))}
    done = subprocess.run(["make", *options, target], cwd=folder, env=kept, capture_output=True, text=True, check=False)
    asked = folder / "asked.txt"
    return done.returncode, done.stdout + done.stderr, asked.read_text().splitlines() if asked.exists() else []


@pytest.mark.parametrize("status", [0, 1])
def test_everything_is_tested_though_some_of_it_fails_and_what_takes_longest_comes_last(tmp_path, status):
    ended, told, asked = make(tmp_path, "test-all", status=status)
    assert (ended != 0) == bool(status), told
    most, newest, compilers = asked
    assert most.startswith("long: -m pytest --numprocesses auto")
    assert most.endswith("-m not compilers")
    assert newest == "quick: tests/newest_jax.py .venv/newest/bin/python"
    assert compilers == "long: -m pytest -m compilers"


@pytest.mark.parametrize("name", ["interop", "compilers"])
def test_what_could_not_be_fetched_is_told_and_tried_again_the_next_time(tmp_path, name):
    make(tmp_path, ".venv/development")
    (tmp_path / ".venv" / name).unlink()
    for status in (1, 1, 0):
        ended, told, asked = make(tmp_path, f".venv/{name}", status=status, ready=())
        assert ended == 0
        assert ("the tests that need them will be left out" in told) == bool(status)
    assert len(asked) == 3
    assert make(tmp_path, f".venv/{name}", ready=())[2] == asked


def test_what_would_be_tested_is_printed_and_not_begun(tmp_path):
    make(tmp_path, ".venv/development")
    ended, told, asked = make(tmp_path, "test-all", options=["--dry-run"])
    assert (ended, asked) == (0, [])
    assert told.count("-m pytest") == 2
