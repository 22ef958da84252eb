"""Whether there can be worker processes: they see neither the memory of this one nor how its script is run."""

from __future__ import annotations

import ast
import sys
import traceback
from pathlib import Path
from typing import Any

from marin_dsl.store import Store
from marin_dsl.store.files import OTHER


class WorkersCannotStart(RuntimeError):
    """Worker processes were asked for where there can be none; the message says why and what to do."""


def check_workers(store: Store, workers: int) -> None:
    """Make sure that so many worker processes can do what they are there for.

    Raises:
        ValueError: there cannot be so many.
        WorkersCannotStart: they would not see the store, or would begin by running the script that starts them.
    """
    if type(workers) is not int or workers < 1:
        raise ValueError(
            f"workers={workers!r}: expected how many processes to start, a number like 2, or None for threads of this "
            "one"
        )
    if not store.shared:
        raise WorkersCannotStart(
            f"store {store.url} is in the memory of this process, and worker processes do not see it: leave `workers` "
            f"out, or {OTHER}"
        )
    line = _unguarded()
    if line is not None:
        raise WorkersCannotStart(
            f"{line}: each worker process begins by importing this script, and would come to the same line and start "
            'workers, too: put what evaluates below `if __name__ == "__main__":`, or into a function that is called '
            "there"
        )


def _unguarded() -> str | None:
    """The line of the script that is being run now, if it is also run when the script is only imported."""
    main = sys.modules["__main__"]
    frames = (frame for frame, _ in traceback.walk_stack(None))
    top = next(
        (found for found in frames if found.f_globals is vars(main) and found.f_code.co_name == "<module>"), None
    )
    try:
        tree = ast.parse(Path(str(getattr(main, "__file__", None))).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None  # no file: an interpreter or a notebook, which nothing imports
    if top is None or any(_guards(found) and _holds(found, top.f_lineno) for found in ast.walk(tree)):
        return None
    return f"{main.__file__}:{top.f_lineno}"


def _guards(found: ast.AST) -> bool:
    return isinstance(found, ast.If) and any(
        isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(found.test)
    )


def _holds(found: Any, line: int) -> bool:
    return bool(found.lineno <= line <= found.end_lineno)
