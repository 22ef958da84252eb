"""What `make test-newest` tells: which tests fail on the newest JAX alone, known or not."""

import stat
import subprocess
import sys
from pathlib import Path

import newest_jax
import pytest
from newest_jax import Outcomes, compare, report

NEWEST = Outcomes({"Python": "3.13.0", "jax": "0.12.0"}, 7, 1, {"a.py::one[x]": "ValueError: no", "a.py::two": "E"})
PINNED = Outcomes({"Python": "3.11.7", "jax": "0.10.2"}, 1, 0, {"a.py::two": "E"})
PROGRAMS = """
import os
import pytest

@pytest.mark.parametrize("size", [1, 2])
def test_size(size):
    assert size != 1 or "NEWEST" not in os.environ, "size-1 axes"

def test_always():
    raise ValueError("on both")

def test_never():
    pass
"""


@pytest.fixture
def newest(tmp_path: Path) -> str:
    """A Python which is this one, but tells what it runs that it is the newest; a module of tests beside it."""
    (tmp_path / "test_programs.py").write_text(PROGRAMS)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nNEWEST=yes exec "{sys.executable}" "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return str(python)


def test_what_fails_only_on_the_newest_is_told_with_versions_and_ends_with_1():
    lines, status = report(NEWEST, PINNED, {})
    assert status == 1
    assert "\n".join(lines) == (
        "NEWEST JAX: Python 3.13.0, jax 0.12.0\n"
        "  7 tests pass, 1 were skipped, 2 fail\n"
        "compared with: Python 3.11.7, jax 0.10.2\n"
        "  FAILS ONLY THERE: a.py::one[x]\n"
        "    ValueError: no\n"
        "  fails on both: a.py::two"
    )


@pytest.mark.parametrize("name", ["a.py::one", "a.py::one[x]"])
def test_what_is_known_to_differ_is_told_with_its_reason_and_ends_with_0(name):
    lines, status = report(NEWEST, PINNED, {name: "its issue 123"})
    assert status == 0
    assert "  known to fail only there: a.py::one[x]\n    its issue 123" in lines


def test_what_was_known_and_does_not_fail_any_more_is_told():
    lines, status = report(NEWEST._replace(failed={}), None, {"a.py::one": "its issue 123"})
    assert status == 0
    assert lines[-1] == "  known, but did not fail: a.py::one; take it out of KNOWN in tests/newest_jax.py"
    assert not any("compared with" in line for line in lines)


def test_what_could_not_be_compared_counts_as_a_difference():
    lines, status = report(NEWEST, None, {})
    assert status == 1
    assert "compared with: nothing" in lines
    assert sum("FAILS ONLY THERE" in line for line in lines) == 2


def test_failures_are_looked_for_with_this_python_too(newest, tmp_path):
    (tmp_path / "test_gone.py").write_text("import os\nassert 'NEWEST' not in os.environ\ndef test_it(): pass\n")
    lines, status = compare(newest, ["test_gone.py", "test_programs.py"], tmp_path, {})
    assert status == 1
    assert lines[0].startswith("NEWEST JAX: Python 3.")
    assert lines[1] == "  2 tests pass, 0 were skipped, 3 fail"
    assert lines[3].startswith("  FAILS ONLY THERE: test_gone.py\n")
    assert lines[4] == "  FAILS ONLY THERE: test_programs.py::test_size[1]\n    AssertionError: size-1 axes"
    assert lines[5:] == ["  fails on both: test_programs.py::test_always"]


def test_a_run_that_breaks_off_ends_with_2(newest, tmp_path):
    (tmp_path / "test_programs.py").write_text("import os\ndef test_it(): os._exit(9)\n")
    lines, status = compare(newest, ["test_programs.py"], tmp_path, {})
    assert (lines, status) == (
        [f"NEWEST JAX: nothing to compare: {newest} broke off or ran no test (see above)"],
        2,
    )


def test_without_such_a_python_it_says_so_loudly_and_ends_with_0():
    command = [sys.executable, newest_jax.__file__, ".venv/absent/bin/python"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "NEWEST JAX LEFT OUT: no Python 3.12 or 3.13 found to install it in; "
        "name one with make NEWEST_PYTHON=/path/to/python3.13 test-newest\n"
    )


def test_known_differences_name_tests_that_exist():
    for name in newest_jax.KNOWN:
        file, _, function = name.partition("[")[0].partition("::")
        assert f"def {function}(" in (newest_jax.ROOT / file).read_text()
