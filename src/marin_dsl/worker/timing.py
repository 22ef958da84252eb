"""Running a call in this process, but no longer than its timeout.

A thread cannot be stopped from outside. So the operator runs in a thread of its own, and when the time is up it is let
go: the call has failed, the worker is free, and the operator ends when it asks its context (`check()`), or when the
process does. Nothing that it does then is seen any more.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import traceback
from typing import Any

from marin_dsl.worker.context import Context
from marin_dsl.worker.performance import Performance, described, perform, performed
from marin_dsl.worker.redaction import Redaction
from marin_dsl.worker.task import Task


def perform_in_time(task: Task, current: Context, redaction: Redaction) -> Performance:
    """Run the operator of a task, and let it go when its timeout has passed.

    Raises:
        StoreUnavailable: the store cannot be read or written.
        Cancelled: the run was cancelled meanwhile.
    """
    found: list[Performance | BaseException] = []

    def run() -> None:
        try:
            found.append(perform(task, current, redaction))
        except BaseException as error:
            found.append(error)

    surroundings = contextvars.copy_context()
    thread = threading.Thread(target=surroundings.run, args=(run,), name=threading.current_thread().name, daemon=True)
    thread.start()
    thread.join(task.annotations.limit)
    if not found:
        function = task.operator.function
        failure = {**described("timeout", current.timed_out(), function), "traceback": _stack(thread, function)}
        return performed(current, failure=redaction.plain(failure))
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _stack(thread: threading.Thread, function: Any) -> str:
    """Where a thread is at work, from the operator's own frame on."""
    frame: Any = sys._current_frames().get(thread.ident or 0)
    frames = list(traceback.walk_stack(frame)) if frame is not None else []
    ours = [place for place, (each, _) in enumerate(frames) if each.f_code is getattr(function, "__code__", None)]
    own = frames[: ours[-1] + 1] if ours else frames
    return "".join(traceback.StackSummary.extract(reversed(own)).format())
