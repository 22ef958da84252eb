"""A small project in the working directory, and the command as a user types it."""

from __future__ import annotations

import importlib
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from marin_dsl.command_line import main

MODULE = """
    from marin_dsl import op, grid, attempt, context
    from marin_dsl.pages import Page, Prose

    @op(version="1")
    def double(n: int) -> int:
        return 2 * n

    @op(version="1")
    def fail(n: int) -> int:
        context().log(f"about to fail with {n}")
        raise ValueError(f"no {n}")

    @op(version="1")
    def write(title: str, parts: list) -> Page:
        context().log("writing")
        context().observe("parts", len(parts))
        context().observe("steps", list(range(1000)))
        return Page(title, "Does it work?", "It does.", "Yes.", (Prose("Parts", str(parts)),))

    good = double(double(1))
    bad = double(fail(3))
    fail_alone = fail(7)
    sweep = grid(n=[1, 2, 3])(lambda n: double(n))
    number = 3
    page = write("A page", [good, attempt(bad)]).named("a-page", "1.0")
    again = write("Another page", [good]).named("a-page", "2.0")
    broken = write("Broken", [bad]).named("broken", "1.0")
    long = double(double(double(1))).with_(title="x" * 300)
"""


def environment(project: Path) -> dict:
    return {
        "python": "3.11.7", "implementation": "CPython", "platform": "here", "processor": "one", "cores": 1,
        "memory": None, "packages": {}, "commit": "c0ffee" + "0" * 34, "patch": "", "untracked": ["notes.txt"],
    }  # fmt: skip


def write_module(name: str, text: str) -> None:
    """Write a module of the project anew."""
    Path(f"{name}.py").write_text(textwrap.dedent(text))
    sys.modules.pop(name, None)
    importlib.invalidate_caches()


def marin(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, list(words), prog_name="marin")


def told(*words: str, code: int = 0) -> list[str]:
    """The lines that a command prints."""
    done = marin(*words)
    assert done.exit_code == code, done.output
    assert "\x1b" not in done.output
    return done.output.splitlines()


def document(*words: str, code: int = 0, command: str = "") -> dict[str, Any]:
    """The document that a command prints."""
    done = marin(*words, "--json")
    assert done.exit_code == code, done.output
    found = json.loads(done.stdout)
    assert (found["schema"], found["command"]) == (1, command or words[0])
    return found
