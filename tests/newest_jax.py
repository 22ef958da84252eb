"""What differs on the newest JAX: tests that fail with it, and pass with the JAX of constraints.txt.

    python tests/newest_jax.py .venv/newest/bin/python [tests ...]

runs tests with the Python that is named, and with this one those that failed there. `make test-newest` runs it. Exit
status: 0 where nothing differs but what is known, 1 where something else does, 2 where nothing could be compared.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "jaxtyping", "numpy")
TESTS = ("tests/marin_models", "tests/marin_kernels", "tests/library")
OPTIONS = ("-q", "-p", "no:cacheprovider", "--continue-on-collection-errors")
OPTIONS += ("-m", "not long and not compilers and not interop")
KNOWN: dict[str, str] = {}
"""By test (for all its parameters, or with those that differ): why it fails on the newest JAX alone."""
LEFT_OUT = (
    "NEWEST JAX LEFT OUT: no Python 3.12 or 3.13 found to install it in; "
    "name one with make NEWEST_PYTHON=/path/to/python3.13 test-newest"
)


class Outcomes(NamedTuple):
    """What became of the tests of one run."""

    versions: dict[str, str]
    passed: int
    skipped: int
    failed: dict[str, str]
    """By test (or module, where it could not be collected): the first line of what it raised."""

    @property
    def described(self) -> str:
        """The versions it ran with."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())


class Recorder:
    """A plugin of pytest that counts what passes, and keeps what fails and why."""

    def __init__(self) -> None:
        self.passed, self.skipped, self.failed = 0, 0, {}

    def pytest_runtest_logreport(self, report) -> None:
        self.passed += report.when == "call" and report.passed
        self.pytest_collectreport(report)

    def pytest_collectreport(self, report) -> None:
        self.skipped += report.skipped
        if report.failed:
            text = getattr(getattr(report.longrepr, "reprcrash", None), "message", None) or str(report.longrepr)
            self.failed.setdefault(report.nodeid, next(filter(None, map(str.strip, text.splitlines())), "no message"))


def record(file: str, *arguments: str) -> int:
    """Run pytest in this process and write its outcomes to a file."""
    import pytest

    recorder = Recorder()
    status = pytest.main(list(arguments), plugins=[recorder])
    versions = {"Python": platform.python_version()} | {name: _version(name) for name in PACKAGES}
    Path(file).write_text(json.dumps([versions, recorder.passed, recorder.skipped, recorder.failed]))
    return status


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def outcomes(python: str, tests: Sequence[str], folder: Path) -> Outcomes | None:
    """Run tests with a Python, in a folder; none where it broke off or ran no test."""
    with tempfile.TemporaryDirectory() as kept:
        file = Path(kept, "outcomes.json")
        subprocess.run([python, __file__, "--record", str(file), *OPTIONS, *tests], cwd=folder, check=False)
        found = Outcomes(*json.loads(file.read_text())) if file.exists() else None
    return found if found and (found.passed or found.failed) else None


def report(newest: Outcomes, pinned: Outcomes | None, known: Mapping[str, str]) -> tuple[list[str], int]:
    """What differs, in lines for a person, and the exit status; `pinned` ran what failed with the newest JAX."""
    reasons = {test: known.get(test, known.get(_function(test))) for test in newest.failed}
    both = [test for test in newest.failed if pinned and test in pinned.failed]
    new = [test for test in newest.failed if test not in both and reasons[test] is None]
    old = [test for test in newest.failed if test not in both and reasons[test] is not None]
    gone = known.keys() - {*old, *map(_function, old)}
    lines = [
        f"NEWEST JAX: {newest.described}",
        f"  {newest.passed} tests pass, {newest.skipped} were skipped, {len(newest.failed)} fail",
        *([f"compared with: {pinned.described if pinned else 'nothing'}"] if newest.failed else []),
        *(f"  FAILS ONLY THERE: {test}\n    {newest.failed[test]}" for test in new),
        *(f"  known to fail only there: {test}\n    {reasons[test]}" for test in old),
        *(f"  fails on both: {test}" for test in both),
        *(f"  known, but did not fail: {name}; take it out of KNOWN in tests/newest_jax.py" for name in sorted(gone)),
    ]
    return lines, int(bool(new))


def _function(test: str) -> str:
    return test.partition("[")[0]


def compare(
    python: str, tests: Sequence[str] = TESTS, folder: Path = ROOT, known: Mapping[str, str] = KNOWN
) -> tuple[list[str], int]:
    """Run tests with the newest JAX, and what failed there with this Python; lines for a person and the exit status."""
    if not shutil.which(python):
        return [LEFT_OUT], 0
    newest = outcomes(python, tests, folder)
    if newest is None:
        return [f"NEWEST JAX: nothing to compare: {python} broke off or ran no test (see above)"], 2
    pinned = outcomes(sys.executable, list(newest.failed), folder) if newest.failed else None
    return report(newest, pinned, known)


def main(arguments: Sequence[str]) -> int:
    """What the command does."""
    if arguments[0] == "--record":
        return record(*arguments[1:])
    python, *tests = arguments
    lines, status = compare(python, tests or TESTS)
    print(*lines, sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
