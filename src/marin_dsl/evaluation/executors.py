"""Where tasks run: here and now, or on a Dask cluster in this process, in processes, or elsewhere."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import os
import queue
import re
import time
from collections import deque
from typing import Any, Protocol

import attrs

from marin_dsl.evaluation.dispatch import Batch, Dispatch, name_of
from marin_dsl.evaluation.gangs import Gangs
from marin_dsl.evaluation.gangs_on_workers import ASSEMBLED
from marin_dsl.evaluation.on_workers import INSIDE, Inside, execute_batch, execute_inside
from marin_dsl.worker import execute
from marin_dsl.worker.context import Cancelled
from marin_dsl.worker.task import Answer, CannotRun, Emit, Task, packed

Settled = tuple[Task, Answer | BaseException]

_COUNT_SECONDS = 2.0
"""How long the number of a cluster's threads is believed."""


@attrs.frozen(eq=False)
class _Returned:
    """A batch with its answers."""

    batch: Batch
    answers: list[Answer | BaseException]


class Executor(Protocol):
    """Takes tasks, and gives their answers in the order in which they come."""

    def submit(self, task: Task, *, resources: dict[str, float], priority: int) -> None:
        """Take a task.

        Raises:
            CannotRun: no worker could ever run it.
        """
        ...

    def next(self, timeout: float) -> Settled | None:
        """The next answer (or what the worker raised), or None when none comes within the timeout in seconds."""
        ...

    def close(self, *, grace: float) -> None:
        """Stop: tasks that have begun get `grace` seconds to notice."""
        ...

    @property
    def place(self) -> str:
        """Where tasks run, for people."""
        ...


class Here:
    """Runs each task when its answer is asked for, in this thread: a debugger stops inside operators."""

    place = "in this thread"

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._tasks: list[tuple[int, int, Task]] = []  # a heap
        self._numbers = itertools.count()

    def submit(self, task: Task, *, resources: dict[str, float], priority: int) -> None:
        heapq.heappush(self._tasks, (-priority, next(self._numbers), task))

    def next(self, timeout: float) -> Settled | None:
        if not self._tasks:
            time.sleep(timeout)  # what is left waits for its next attempt, or for somebody else who is at work on it
            return None
        task = heapq.heappop(self._tasks)[2]
        try:
            return task, execute(task, self._emit)
        except (Exception, Cancelled) as error:
            return task, error

    def close(self, *, grace: float) -> None:
        self._tasks.clear()


class Cluster:
    """Runs tasks on Dask: threads of this process by default, processes, or a scheduler that exists.

    Args:
        emit: is given the events of running tasks.
        run: id of the run; names the topic of its events.
        workers: processes to start, or None for threads of this process.
        scheduler: address of an existing scheduler.

    Raises:
        SchedulerMissing: no scheduler answers there.
    """

    def __init__(self, emit: Emit, run: str, *, workers: int | None = None, scheduler: str | None = None) -> None:
        import dask

        # Retries and lost workers are ours to decide on; a paused worker would only slow a small machine down.
        dask.config.set(
            {
                "distributed.admin.log-length": 0,
                "distributed.deploy.lost-worker-timeout": "1 hour",  # a worker that died starts anew, if slowly
                "distributed.scheduler.allowed-failures": 0,
                "distributed.worker.memory.pause": False,
            }
        )
        self._emit = emit
        self._topic = f"marin-{run}"
        self._arrived: queue.Queue[_Returned | list[dict[str, Any]]] = queue.Queue()
        self._settled: deque[Settled] = deque()
        self._futures: dict[str, Any] = {}
        self._dispatch = Dispatch()
        self._threads, self._counted = 0, -math.inf
        self._elsewhere = scheduler is not None or workers is not None
        self._packed: dict[bytes, bytes] = {}
        self._cluster: Any = None if scheduler else _local_cluster(workers)
        try:
            self._client = client(scheduler or self._cluster)
        except BaseException:
            if self._cluster is not None:
                self._cluster.close(timeout=5.0)
            raise
        if self._elsewhere:
            self._client.subscribe_topic(self._topic, lambda events: self._arrived.put(events[1]))
        # On this machine one worker runs a whole gang.
        self._gangs = Gangs(self._client, self._topic, self._gang_settled, _worker_lost) if scheduler else None
        self.place = f"on {scheduler}" if scheduler else _described(workers)
        self.dashboard = _dashboard(self._client, scheduler)

    def submit(self, task: Task, *, resources: dict[str, float], priority: int) -> None:
        self._check_resources(resources, task.title)
        if task.annotations.hosts > 1 and self._gangs is not None:
            self._gangs.add(task, packed(task), resources, priority)
            return
        if self._elsewhere:
            self._packed[task.call] = packed(task)
        self._dispatch.add(task, resources, priority)

    def _hand_out(self) -> None:
        if time.monotonic() - self._counted > _COUNT_SECONDS:
            threads = self._client.nthreads()
            self._threads, self._counted = sum(threads.values()), time.monotonic()
            if self._gangs is not None:
                self._gangs.look(threads)
        if self._gangs is not None:
            self._gangs.hand_out()
        for batch in self._dispatch.due(self._threads):
            self._start(batch)

    def _start(self, batch: Batch) -> None:
        key = name_of(batch.tasks[0])
        if not self._elsewhere:
            INSIDE[key] = Inside(batch.tasks, self._arrived.put)
        future = self._client.submit(
            execute_batch if self._elsewhere else execute_inside,
            *((tuple(self._packed.pop(task.call) for task in batch.tasks), self._topic) if self._elsewhere else (key,)),
            key=key,
            resources=dict(batch.resources) or None,
            priority=batch.priority,
            pure=False,
        )
        self._futures[key] = future
        future.add_done_callback(lambda done: self._arrived.put(_Returned(batch, self._answers(batch, key, done))))

    def _answers(self, batch: Batch, key: str, future: Any) -> list[Answer | BaseException]:
        self._futures.pop(key, None)
        inside = INSIDE.pop(key, None)
        try:
            if inside is not None and future.status == "finished":
                return inside.answers
            found: list[Answer | BaseException] = future.result()
            return found
        except BaseException as error:
            return [_lost(error) or error] * len(batch.tasks)

    def _check_resources(self, resources: dict[str, float], title: str) -> None:
        """A task that no worker can ever take would wait for ever."""
        if not resources:
            return
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        for name, wanted in resources.items():
            most = max((worker["resources"].get(name, 0) for worker in workers), default=0)
            if wanted > most:
                raise ResourceMissing(
                    f"{title} needs {name}={wanted:g}, and no worker has more than {most:g}; "
                    "lower it with expr.with_(resources=...), or run on a cluster that has it (--scheduler)"
                )

    def next(self, timeout: float) -> Settled | None:
        # Events are told on the way, so that whoever watches is called from the thread of the evaluation only.
        deadline = time.monotonic() + timeout
        with contextlib.suppress(queue.Empty):
            while not self._settled:
                self._hand_out()
                found = self._arrived.get(timeout=max(0.0, deadline - time.monotonic()))
                if isinstance(found, _Returned):
                    self._take(found)
                else:
                    self._tell(found)
        return self._settled.popleft() if self._settled else None

    def _tell(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            if event["event"] != ASSEMBLED:
                self._emit(event)
            elif self._gangs is not None:
                self._gangs.assembled(event["gang"])

    def _gang_settled(self, task: Task, answer: Answer | BaseException) -> None:
        error = _lost(answer) if isinstance(answer, BaseException) else None
        self._arrived.put(_Returned(Batch((task,), {}, 0), [error or answer]))

    def _take(self, returned: _Returned) -> None:
        if self._gangs is not None and returned.batch.tasks[0].annotations.hosts > 1:
            self._gangs.over(returned.batch.tasks[0])
        else:
            self._dispatch.done(returned.batch)
        for task, answer in zip(returned.batch.tasks, returned.answers, strict=True):
            if isinstance(answer, Answer) and answer.ran:
                self._dispatch.took(task, answer.seconds)
            self._settled.append((task, answer))

    def close(self, *, grace: float) -> None:
        hush()
        self._dispatch.clear()
        if self._gangs is not None:
            self._gangs.close()
        busy = bool(self._futures)
        for key in list(self._futures):
            INSIDE.pop(key, None)
        with contextlib.suppress(Exception):
            self._client.cancel(list(self._futures.values()), force=True)
        with contextlib.suppress(Exception):
            self._client.close(timeout=grace)
        if self._cluster is not None:
            with contextlib.suppress(Exception):
                if busy:
                    self._abandon(grace)
            with contextlib.suppress(Exception):
                self._cluster.close(timeout=grace)

    def _abandon(self, grace: float) -> None:
        """Stop processes, and let go of threads that are still at work then: nothing can stop them, Dask would wait."""
        from distributed import Worker

        workers = list(self._cluster.workers.values())
        threads = [worker for worker in workers if isinstance(worker, Worker)]
        deadline = time.monotonic() + grace
        while any(worker.active_threads for worker in threads) and time.monotonic() < deadline:
            time.sleep(0.02)
        endings = [
            (worker.close, {"executor_wait": False, "nanny": False})
            if isinstance(worker, Worker)
            else (worker.kill, {"timeout": grace})
            for worker in workers
        ]

        async def end() -> None:
            import asyncio

            await asyncio.gather(*(how(**settings) for how, settings in endings), return_exceptions=True)

        self._cluster.sync(end, callback_timeout=grace + 5)


def _lost(error: BaseException) -> WorkerLost | None:
    """What Dask says when the worker is gone, without the names that it gives to things."""
    from distributed import KilledWorker

    return _worker_lost(error.last_worker.address) if isinstance(error, KilledWorker) else None


def _worker_lost(address: str) -> WorkerLost:
    found = WorkerLost("its worker died before it had answered, by this operator or by another one")
    found.add_note(f"the worker was {address}")
    found.add_note("isolate=True tells which operator it is: it keeps what one does to its process from the others")
    return found


class WorkerLost(RuntimeError):
    """The worker that ran a task is gone, and with it whatever it was doing."""


class ResourceMissing(CannotRun):
    """An operator asks for a resource that no worker of the cluster has."""


class SchedulerMissing(RuntimeError):
    """No Dask scheduler answers at the address that was given."""


def client(place: Any, timeout: float | None = None) -> Any:
    """A connection to a scheduler.

    Args:
        place: its address, or a cluster.
        timeout: seconds to wait for an answer; None for what Dask is configured to.

    Raises:
        SchedulerMissing: none answers there.
    """
    import distributed

    try:
        if isinstance(place, str):
            _check_address(place)  # a client of none would hold the end of this process back for a minute
        limit = {} if timeout is None else {"timeout": timeout}
        return distributed.Client(place, set_as_default=False, **limit)
    except (OSError, ValueError, TimeoutError) as error:
        raise SchedulerMissing(
            f"no Dask scheduler answers at {place} ({error}); start one with `dask scheduler`, or leave the address out"
        ) from None


def _check_address(address: str) -> None:
    """Make sure that a text can be the address of a scheduler.

    Raises:
        ValueError: it has no port, or a protocol that Dask does not know.
    """
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    protocol, place = parse_address(address)
    get_backend(protocol)
    if protocol != "inproc":
        parse_host_port(place)


_PRELOAD = """
import signal
from marin_dsl.evaluation.executors import hush

signal.signal(signal.SIGINT, signal.SIG_IGN)
hush()
"""
"""A terminal sends Ctrl-C to worker processes too; what they are to do about it, this process tells them."""


def hush() -> None:
    """Let Dask be silent: what it says of lost connections and abandoned tasks, the outcomes say better."""
    import logging

    for handler in logging.getLogger("distributed").handlers:
        handler.setLevel(logging.CRITICAL + 1)


def _local_cluster(workers: int | None) -> Any:
    import logging

    import distributed

    cores = os.cpu_count() or 1
    shared: dict[str, Any] = {
        "dashboard_address": "127.0.0.1:0",
        "silence_logs": logging.ERROR,
        "memory_limit": 0,
    }
    if workers is None:
        return distributed.LocalCluster(
            n_workers=1, threads_per_worker=cores, processes=False, resources={"CPU": cores}, **shared
        )
    threads = max(1, cores // workers)
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=True,
        resources={"CPU": threads},
        preload=_PRELOAD,
        **shared,
    )


def _dashboard(client: Any, scheduler: str | None) -> str:
    """The dashboard's address; a local one listens on the loopback interface whatever the scheduler's host is."""
    link = client.dashboard_link or ""
    return link if scheduler else re.sub(r"//[^:/]+", "//127.0.0.1", link)


def _described(workers: int | None) -> str:
    if workers is None:
        return f"in {os.cpu_count() or 1} threads of this process"
    return f"in {workers} worker process{'es' if workers != 1 else ''}"
