"""Gangs on the workers of a cluster: each member has a worker of its own, and all begin together.

Gangs that took workers one by one could each hold what the other one waits for. So one gang at a time, of all that are
handed out to the cluster by anybody, takes its workers: it waits for calls that come to an end by themselves, and for
gangs that have all that they need.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from marin_dsl.evaluation.dispatch import name_of
from marin_dsl.evaluation.gangs_on_workers import expect_members, join_gang, lead_gang, lose_member
from marin_dsl.worker.task import Answer, CannotRun, Task

_TURN = "marin-gangs"
"""What Dask calls the lock of who takes workers for a gang."""
_ASK_SECONDS = 0.2
"""How often to ask whose turn it is."""


class GangMisplaced(CannotRun):
    """More processes are to run a call together than the cluster has workers for."""


@attrs.define(eq=False)
class _Gang:
    """A call that several workers run together.

    Attributes:
        task: the call.
        packed: the same on its way to rank 0.
        resources: what each of the workers must have free.
        priority: larger runs earlier.
        workers: the addresses of those that run it, by rank.
        futures: what Dask says of each.
        missing: ranks whose workers are known to be gone.
    """

    task: Task
    packed: bytes
    resources: Mapping[str, float]
    priority: int
    workers: list[str] = attrs.field(factory=list)
    futures: list[Any] = attrs.field(factory=list)
    missing: set[int] = attrs.field(factory=set)
    _unanswered: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(1))

    def answers(self) -> bool:
        """Whether there was no answer before this one."""
        return self._unanswered.acquire(blocking=False)

    @property
    def name(self) -> str:
        """What Dask, and the workers among themselves, call it."""
        return name_of(self.task)


class Gangs:
    """The gangs that wait for workers of a cluster, and those at work.

    Args:
        client: the connection to the cluster.
        topic: where workers send events.
        settle: given a call and what came of it, or what its worker raised; called from any thread.
        lost: what it is to be told when the worker of rank 0 is gone.
    """

    def __init__(
        self,
        client: Any,
        topic: str,
        settle: Callable[[Task, Answer | BaseException], object],
        lost: Callable[[str], BaseException],
    ) -> None:
        self._client, self._topic, self._settle, self._lost = client, topic, settle, lost
        self._waiting: list[tuple[int, int, _Gang]] = []  # a heap
        self._numbers = itertools.count()
        self._at_work: dict[str, _Gang] = {}
        self._assembling: str | None = None
        self._turn: Any = None
        self._next_ask = 0.0

    def add(self, task: Task, packed: bytes, resources: Mapping[str, float], priority: int) -> None:
        """Take a call.

        Raises:
            GangMisplaced: the cluster has too few workers for it.
        """
        size, there = task.annotations.hosts, len(self._suitable(resources))
        if there < size:
            having = "".join(f" with {name}={least:g}" for name, least in resources.items())
            raise GangMisplaced(
                f"{task.title} asks for hosts={size}, and the cluster has {there} worker{'s' * (there != 1)}{having}, "
                f"where each member needs one of its own; start more, or say expr.with_(hosts={max(1, there)})"
            )
        gang = _Gang(task, packed, resources, priority)
        heapq.heappush(self._waiting, (-priority, next(self._numbers), gang))

    def hand_out(self) -> None:
        """Give the next gang its workers, if it is the turn of this run."""
        if not self._waiting or self._assembling is not None or time.monotonic() < self._next_ask:
            return
        self._next_ask = time.monotonic() + _ASK_SECONDS
        gang = self._waiting[0][2]
        workers = self._chosen(gang)
        if workers and self._has_turn():
            heapq.heappop(self._waiting)
            self._assembling = gang.name
            self._start(gang, workers)

    def _has_turn(self) -> bool:
        from distributed import Lock

        if self._turn is None:
            self._turn = Lock(_TURN, scheduler_rpc=self._client.scheduler, loop=self._client.loop)
        return bool(self._turn.acquire(timeout=0))

    def _suitable(self, resources: Mapping[str, float]) -> dict[str, dict[str, Any]]:
        """The workers that could run a member, if they had nothing else to do; by address."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        return {
            address: worker
            for address, worker in workers.items()
            if all(worker["resources"].get(name, 0) >= wanted for name, wanted in resources.items())
        }

    def _chosen(self, gang: _Gang) -> list[str]:
        """The workers for a gang: on as many machines as can be, with the least to do; none if there are too few."""
        found = self._suitable(gang.resources)
        todo = self._client.processing()
        by_host: dict[str, list[str]] = defaultdict(list)
        for address in sorted(found, key=lambda each: len(todo.get(each, ()))):
            by_host[found[address]["host"]].append(address)
        rounds = itertools.zip_longest(*by_host.values())
        chosen = [address for one_each in rounds for address in one_each if address is not None]
        size = gang.task.annotations.hosts
        return chosen[:size] if len(chosen) >= size else []

    def _start(self, gang: _Gang, workers: list[str]) -> None:
        self._client.run(expect_members, workers=workers[:1])
        gang.workers = workers
        self._at_work[gang.name] = gang
        for rank, worker in enumerate(workers):
            what: tuple[Any, ...] = (
                (join_gang, gang.name, rank, workers[0]) if rank else (lead_gang, gang.packed, self._topic, gang.name)
            )
            gang.futures.append(
                self._client.submit(
                    *what,
                    key=f"{gang.name}-rank-{rank}",
                    workers=[worker],
                    resources=dict(gang.resources) or None,
                    priority=gang.priority,
                    pure=False,
                )
            )
        gang.futures[0].add_done_callback(lambda done: self._answered(gang, _answer(done)))

    def _answered(self, gang: _Gang, answer: Answer | BaseException) -> None:
        if gang.answers():
            self._settle(gang.task, answer)

    def assembled(self, name: str) -> None:
        """All members of a gang are at work: it is the turn of the next one."""
        if name == self._assembling:
            self._assembling = None
            with contextlib.suppress(Exception):  # it ends by itself when nobody holds on to it
                self._turn.release()

    def over(self, task: Task) -> None:
        """A call has come to an end; who waits for it to begin waits no longer."""
        gang = next((found for found in self._at_work.values() if found.task is task), None)
        if gang is not None:
            del self._at_work[gang.name]
            self.assembled(gang.name)
            self._client.cancel(gang.futures, force=True)

    def look(self, workers: Collection[str]) -> None:
        """See which workers are gone, given the addresses of those that are not; Dask would wait for them to return."""
        for gang in list(self._at_work.values()):
            for rank, worker in enumerate(gang.workers):
                if worker in workers or rank in gang.missing:
                    continue
                gang.missing.add(rank)
                if rank == 0:
                    self._answered(gang, self._lost(worker))
                elif gang.workers[0] in workers:
                    with contextlib.suppress(Exception):  # then it has ended meanwhile
                        self._client.run(lose_member, gang.name, rank, workers=gang.workers[:1])

    def close(self) -> None:
        """Forget what waits, and let go of what is at work."""
        self._waiting.clear()
        with contextlib.suppress(Exception):
            self._client.cancel([each for gang in self._at_work.values() for each in gang.futures], force=True)
        if self._assembling is not None:
            self.assembled(self._assembling)


def _answer(future: Any) -> Answer | BaseException:
    try:
        found: Answer | BaseException = future.result()
        return found
    except BaseException as error:
        return error
