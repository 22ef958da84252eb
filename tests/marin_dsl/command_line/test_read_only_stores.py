"""A store that can only be read: what is there is served and told, and what needs writing says so, and where."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from marin_dsl.store import Store
from tests.marin_dsl.command_line.project import marin

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@pytest.fixture
def read_only(evaluated, monkeypatch):
    """The project's store, on a file system that is mounted read-only."""
    assert marin("run", "experiment:good", "--debug").exit_code == 0
    store = str(evaluated / ".marin")

    def refuse(where):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(where))

    def guarded(name, places):
        real = getattr(os, name)

        def guard(*given, **options):
            where = [place for place in given[:places] if str(place).startswith(store)]
            if where and (name != "open" or given[1] & WRITING):
                refuse(where[0])
            return real(*given, **options)

        monkeypatch.setattr(os, name, guard)

    for name in ("open", "unlink", "mkdir", "rmdir", "utime", "chmod", "truncate"):
        guarded(name, 1)
    for name in ("link", "replace", "rename", "symlink"):
        guarded(name, 2)
    return Store(store)


READING = (
    "run experiment:good --debug", "run experiment:good", "run experiment:page --debug --keep-failures",
    "plan experiment:page", "plan experiment:sweep", "show example@1.0", "why experiment:good", "lineage example@1.0",
    "diff example@1.0 example@1.0", "failures", "log", "label list", "label log example@1.0", "verify", "gc",
    "page example@1.0", "export example@1.0 exported", "store copy .marin elsewhere",
)  # fmt: skip
NEEDING_TO_WRITE = (
    "run experiment:sweep --debug", "run experiment:sweep", "run experiment:good --debug --verify-sample 1",
    "gc --apply", "adopt data@1.0 pyproject.toml", "store copy .marin elsewhere && store copy elsewhere .marin",
)  # fmt: skip


def words_of(command, read_only):
    label = next(iter(marin("label", "list", "--store", read_only.url).output.split()), "")
    return command.replace("example@1.0", label).split()


@pytest.mark.parametrize("command", READING)
def test_what_only_reads_works(read_only, command):
    done = marin(*words_of(command, read_only))
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", NEEDING_TO_WRITE)
def test_what_needs_to_write_says_that_it_cannot(read_only, command):
    for each in command.split(" && "):
        done = marin(*each.split())
    assert done.exit_code == 3
    assert done.stderr.splitlines()[-1].startswith(f"marin: store {read_only.url}: cannot write ")
    assert done.stderr.endswith(": the file system is read-only: choose another store with --store or MARIN_STORE\n")
    assert "Traceback" not in done.output


def test_the_command_runs_workers_also_when_it_is_started_as_a_module(evaluated):
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[3] / 'src'}{os.pathsep}{evaluated}"}
    command = [sys.executable, "-m", "marin_dsl", "run", "experiment:sweep", "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
