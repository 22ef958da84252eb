"""What git tells of a folder: the same for everybody, whatever they like to see."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

PATIENCE = 20.0
"""Seconds after which git is not waited for any more."""

# How a person likes to see changes is no part of them. Whoever runs a project's code trusts its folder already, though
# it may belong to another user (in a container); no watcher of the folder is started for a question.
_PLAIN = ("-c", "core.quotePath=false", "-c", "safe.directory=*", "-c", "core.fsmonitor=false")

# A hook of git sets some of these for whatever it starts; others change what names of files mean, or what is told.
_LEADING = frozenset((
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CEILING_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIFF_OPTS", "GIT_DIR",
    "GIT_EXTERNAL_DIFF", "GIT_GLOB_PATHSPECS", "GIT_GRAFT_FILE", "GIT_ICASE_PATHSPECS", "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_LITERAL_PATHSPECS", "GIT_NAMESPACE", "GIT_NOGLOB_PATHSPECS",
    "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
))  # fmt: skip


def git(folder: Path, *arguments: str, most: int = 16 << 20) -> bytes | None:
    """What a command of git writes; None where git is not there, fails, or takes too long.

    Args:
        folder: where.
        arguments: the command.
        most: bytes that are read; of more, this many and one are returned.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _LEADING}
    try:
        process = subprocess.Popen(
            ["git", *_PLAIN, *arguments],
            cwd=folder,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
    with process:
        assert process.stdout is not None
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        try:
            data = process.stdout.read(most + 1)
            if len(data) > most:
                process.kill()
            return data if process.wait() == 0 or len(data) > most else None
        finally:
            timer.cancel()
