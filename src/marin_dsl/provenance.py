"""Where and by what a run was made: interpreter, packages, machine, commit and command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any


def environment(project: Path) -> dict[str, Any]:
    """The environment of this process as a value: the same for all runs until something in it changes.

    Args:
        project: folder whose commit and uncommitted changes are recorded, if it is under git.
    """
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory": _memory(),
        "packages": dict(sorted(_packages().items())),
        **_commit(project),
    }


def command() -> str:
    """The command line of this process, as a person would type it."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path("python")
    program = ["python", "-m", script.parent.name] if script.name == "__main__.py" else [script.name]
    return shlex.join([*program, *sys.argv[1:]])


def _packages() -> dict[str, str]:
    """Versions by distribution; of one that is installed twice the first on the path, which is what is imported."""
    packages: dict[str, str] = {}
    for found in importlib.metadata.distributions():
        try:
            text = found.read_text("METADATA") or found.read_text("PKG-INFO") or ""
        except OSError:
            continue
        # `found.metadata` parses the whole file as an e-mail, which takes most of the time of a small run.
        head = dict(_FIELD.findall(text.partition("\n\n")[0]))
        if {"Name", "Version"} <= head.keys():  # else these are the remains of an interrupted installation
            packages.setdefault(head["Name"], head["Version"])
    return packages


_FIELD = re.compile(r"^(Name|Version):[ \t]*(\S+)[ \t]*\r?$", re.MULTILINE)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    """Bytes of physical memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _commit(project: Path) -> dict[str, Any]:
    """The commit, the uncommitted patch of tracked files, and the untracked files, of the project."""
    commit = _git(project, "rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "patch": "", "untracked": []}
    return {
        "commit": commit.strip(),
        "patch": _git(project, "diff", "--no-color", "--no-ext-diff", "--unified=3", "HEAD") or "",
        "untracked": (_git(project, "ls-files", "-z", "--others", "--exclude-standard") or "").split("\0")[:-1],
    }


# How a person likes to see changes is no part of them.
_PLAIN = ("-c", "core.quotePath=false", "-c", "diff.noprefix=false", "-c", "diff.mnemonicPrefix=false")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *_PLAIN, *arguments],
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
