"""Trying again: which failures, how often, and after how long.

Tried again are calls that may well succeed the next time: whose process was killed, whose worker was lost, which raised
what their operator declares transient, and, if they are annotated with `retries`, which timed out. Whoever waits for
the next attempt holds no worker.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Iterator

import attrs

from marin_dsl.encoding import format_digest
from marin_dsl.evaluation.executors import WorkerLost
from marin_dsl.expression.annotations import Annotations
from marin_dsl.outcome import Failed
from marin_dsl.worker import attempt_of
from marin_dsl.worker.performance import exception_name
from marin_dsl.worker.remote import MemberLost
from marin_dsl.worker.task import Answer, Emit, Task

RETRIES = 2
"""How often a call is tried again that does not say it itself."""
FIRST_PAUSE = 0.5
"""Seconds before the second attempt, on average; each pause is twice as long as the one before it."""
LONGEST_PAUSE = 60.0
"""Seconds that a pause has at most, on average."""


_OF_WORKERS = {exception_name(WorkerLost("")), exception_name(MemberLost(""))}


def allowed(task: Task, failed: Failed, transient: bool) -> int:
    """How often a call may be tried again after such a failure."""
    chosen = task.annotations.retries
    if failed.kind == "timeout":
        return chosen or 0
    lost = failed.kind == "lost" and failed.exception in _OF_WORKERS
    if failed.kind == "killed" or lost or transient:
        return RETRIES if chosen is None else chosen
    return 0  # it would fail in the same way


def pause_before(attempt: int) -> float:
    """Seconds to wait before an attempt: twice as long each time, and by chance more or less."""
    doubled: float = FIRST_PAUSE * 2 ** min(attempt - 2, 30)
    return min(LONGEST_PAUSE, doubled) * random.uniform(0.5, 1.5)


def set_apart(annotations: Annotations) -> Annotations:
    """The annotations of a call whose worker was lost: it is isolated from now on.

    Which of the calls on a worker has killed it nobody knows. In processes of their own the others come off, and the
    one that did it is told as such. Devices cannot be shared with a worker, so what asks for some stays where it is.
    """
    return annotations if set(annotations.resources) - {"CPU"} else attrs.evolve(annotations, isolate=True)


class Retries:
    """The calls of an evaluation that wait for their next attempt.

    Args:
        emit: is given an event when a call will be tried again.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._waiting: list[tuple[float, int, Task]] = []  # a heap
        self._numbers = itertools.count()

    def takes(self, task: Task, answer: Answer) -> bool:
        """Whether the call will be tried again, so that this answer is not its last one."""
        failed = answer.failed
        if failed is None or task.attempt > allowed(task, failed, answer.transient):
            return False
        annotations = set_apart(task.annotations) if failed.kind == "lost" else task.annotations
        again = attrs.evolve(task, annotations=annotations, history=(*task.history, attempt_of(failed, answer.seconds)))
        pause = pause_before(again.attempt)
        heapq.heappush(self._waiting, (time.monotonic() + pause, next(self._numbers), again))
        self._emit(
            {
                "event": "retry",
                "call": format_digest(task.call),
                "title": task.title,
                "attempt": again.attempt,
                "kind": failed.kind,
                "reason": failed.summary,
                "seconds": pause,
            }
        )
        return True

    def pause(self, longest: float) -> float:
        """Seconds until the next attempt is due, at most the longest pause."""
        due = self._waiting[0][0] - time.monotonic() if self._waiting else longest
        return min(longest, max(0.0, due))

    def due(self) -> Iterator[Task]:
        """The calls whose time has come."""
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            yield heapq.heappop(self._waiting)[2]
