"""Whether a process has loaded the code that a call is identified by.

Whoever evaluates identifies a call by the code that is loaded there. Another process loads it anew: from files that may
have been edited since, and without what was set in modules while running. What came of that would be recorded as the
result of code that never ran.
"""

from __future__ import annotations

from typing import Any

from marin_dsl.encoding import format_digest
from marin_dsl.operator.functions import meaning_of, place_of
from marin_dsl.worker.task import CannotRun, Task


class OtherCode(CannotRun):
    """The code that is loaded where a call is to run is not that which identifies it."""


def differs(task: Task) -> bool:
    """Whether the code of a task's operator is another one here; with a declared version that does not matter."""
    if any(map(_is_another, task.functions, task.functions.values())):
        return True
    operator = task.operator
    if operator.version is not None or not operator.is_importable:  # what cannot be imported came with the task
        return False
    return format_digest(operator.code.digest) != task.code


def _is_another(named: tuple[str, bytes], function: Any) -> bool:
    """Whether a function that was imported here has another code than that by which it is an argument."""
    if not place_of(function) or function.__module__ == "__main__":
        return False  # it came with the task
    meaning = meaning_of(function)
    return meaning is not None and meaning.code != named[1]


def other_code(task: Task) -> OtherCode:
    """What is said of it."""
    return OtherCode(
        f"the code of {task.operator.name} that a process of its own has loaded is not that which this run began with: "
        "a file was edited since, or something that the code reads was set in a module while running, which no other "
        "process sees. Run it again if a file was edited; else make what is set an argument, or say "
        "@op(excludes=['package.module.NAME']) if it makes no difference"
    )
