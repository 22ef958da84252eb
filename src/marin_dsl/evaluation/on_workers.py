"""What the workers of a Dask cluster do: run batches of calls, and tell of them."""

from __future__ import annotations

import functools
import math
import pickle
import time
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from marin_dsl.worker import execute
from marin_dsl.worker.context import Cancelled
from marin_dsl.worker.task import Answer, Task

_TELL_SECONDS = 0.1
"""How long events of short calls wait for others."""


@attrs.define(eq=False)
class Inside:
    """A batch that threads of this process run: Dask is given its name only, for it would copy the tasks twice.

    Attributes:
        tasks: the calls.
        tell: is given events of them, several at a time.
        answers: what they came to, so far.
    """

    tasks: tuple[Task, ...]
    tell: Callable[[list[dict[str, Any]]], object]
    answers: list[Answer | BaseException] = attrs.field(factory=list)


INSIDE: dict[str, Inside] = {}
"""What threads of this process are asked to run, by the key that Dask knows it by."""


def execute_batch(given: tuple[bytes, ...], topic: str) -> list[Answer | BaseException]:
    """Run tasks that came pickled; events of them go to a topic of the cluster."""
    from distributed import get_worker

    telling = Telling(functools.partial(get_worker().log_event, topic), patient=len(given) > 1)
    found: list[Answer | BaseException] = []
    _execute_all(map(pickle.loads, given), telling, found)
    return found


def execute_inside(key: str) -> None:
    """Run a batch of this process."""
    inside = INSIDE.get(key)
    if inside is None:
        return  # the evaluation has ended meanwhile
    _execute_all(inside.tasks, Telling(inside.tell, patient=len(inside.tasks) > 1), inside.answers)


def _execute_all(tasks: Iterable[Task], telling: Telling, found: list[Answer | BaseException]) -> None:
    for task in tasks:
        try:
            found.append(execute(task, telling))
        except (Exception, Cancelled) as error:
            found.append(error)  # raised here, it would be that of the whole batch, and Dask would log it as well
    telling.flush()


class Telling:
    """Sends events to whoever watches: at once, or, of calls that are short, several together."""

    def __init__(self, send: Callable[[list[dict[str, Any]]], object], *, patient: bool) -> None:
        self._send, self._patient = send, patient
        self._waiting: list[dict[str, Any]] = []
        self._sent = -math.inf

    def __call__(self, event: dict[str, Any]) -> None:
        """Take an event."""
        self._waiting.append(event)
        if not self._patient or time.monotonic() - self._sent > _TELL_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if self._waiting:
            self._send(self._waiting)
            self._waiting, self._sent = [], time.monotonic()
