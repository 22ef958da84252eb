"""What is handed to a cluster next: no more than keeps it busy, and short calls several at a time.

A scheduler takes about a millisecond for each thing that it is asked to do. Calls whose operator has been quick in this
run therefore travel in batches; a batch takes about as long as one look at what is urgent may wait.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping

import attrs

from marin_dsl.worker.task import Task

BATCH_SECONDS = 0.1
"""How long a batch is expected to take."""
LARGEST_BATCH = 64
"""Calls in a batch at most."""
FEWEST_UNDER_WAY = 16
"""Batches that are handed out at least, so that a cluster that grows on demand sees the demand."""


@attrs.frozen(eq=False)
class Batch:
    """Calls that are handed out together.

    Attributes:
        tasks: the calls.
        resources: what the worker must have free.
        priority: larger runs earlier.
    """

    tasks: tuple[Task, ...]
    resources: Mapping[str, float]
    priority: int


@attrs.define(eq=False)
class _Queue:
    """Calls that need the same resources, the most urgent first."""

    resources: Mapping[str, float]
    waiting: list[tuple[int, int, Task]] = attrs.field(factory=list)
    under_way: int = 0


class Dispatch:
    """The calls that wait to be handed out, and how quick their operators are."""

    def __init__(self) -> None:
        self._queues: dict[tuple[tuple[str, float], ...], _Queue] = {}
        self._numbers = itertools.count()
        self._seconds: dict[str, float] = {}

    def add(self, task: Task, resources: Mapping[str, float], priority: int) -> None:
        """Take a call."""
        queue = self._queues.setdefault(tuple(sorted(resources.items())), _Queue(resources))
        heapq.heappush(queue.waiting, (-priority, next(self._numbers), task))

    def due(self, threads: int) -> Iterator[Batch]:
        """What is to be handed out now, given how many calls the cluster can run at a time.

        Calls that wait for a resource which is taken do not keep others from being handed out.
        """
        most = max(2 * threads, FEWEST_UNDER_WAY)
        for queue in self._queues.values():
            while queue.waiting and queue.under_way < most:
                queue.under_way += 1
                yield self._next(queue, max(1, threads))

    def _next(self, queue: _Queue, threads: int) -> Batch:
        priority, _, first = heapq.heappop(queue.waiting)
        size = min(self._batch_size(first), math.ceil(len(queue.waiting) / threads))
        tasks = [first]
        while len(tasks) < size and queue.waiting and self._belongs(queue.waiting[0], priority, first):
            tasks.append(heapq.heappop(queue.waiting)[2])
        return Batch(tuple(tasks), queue.resources, -priority)

    def _batch_size(self, task: Task) -> int:
        seconds = self._seconds.get(task.operator.name)
        if seconds is None or _alone(task):
            return 1
        return max(1, min(LARGEST_BATCH, int(BATCH_SECONDS / max(seconds, 1e-6))))

    def _belongs(self, entry: tuple[int, int, Task], priority: int, first: Task) -> bool:
        return entry[0] == priority and entry[2].operator.name == first.operator.name and not _alone(entry[2])

    def done(self, batch: Batch) -> None:
        """A batch came back, with whatever answers."""
        self._queues[tuple(sorted(batch.resources.items()))].under_way -= 1

    def took(self, task: Task, seconds: float) -> None:
        """A call ran that long; one that was slow counts at once, quick ones by and by."""
        name = task.operator.name
        before = self._seconds.get(name, seconds)
        self._seconds[name] = max(seconds, (3 * before + seconds) / 4)

    def clear(self) -> None:
        """Forget what waits."""
        for queue in self._queues.values():
            queue.waiting.clear()


def name_of(task: Task) -> str:
    """What a cluster calls an attempt at a call: another name each time that it is handed out."""
    return f"{task.operator.short_name}-{task.call.hex()}-{task.run}-{task.attempt}-{task.asked}"


def _alone(task: Task) -> bool:
    """Whether a call is handed out by itself: one that has processes or a time of its own, or that failed before."""
    annotations = task.annotations
    return annotations.isolate or annotations.hosts > 1 or annotations.limit is not None or bool(task.history)
