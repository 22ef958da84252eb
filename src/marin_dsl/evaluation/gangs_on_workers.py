"""What the workers of a Dask cluster do for a gang: one runs rank 0, and each of the others a member that asks it."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any

from marin_dsl.evaluation.on_workers import Telling
from marin_dsl.store import StoreUnavailable
from marin_dsl.worker import execute
from marin_dsl.worker.context import Cancelled
from marin_dsl.worker.remote import REPLYING, WAIT, Assembly, perform_elsewhere
from marin_dsl.worker.task import Answer


def lead_gang(given: bytes, topic: str, gang: str) -> Answer | BaseException:
    """Run a call as rank 0 of its gang, with the members that `join_gang` runs on other workers.

    Args:
        given: the call, pickled.
        topic: where events go.
        gang: what this gang is called.
    """
    from distributed import get_worker
    from distributed.comm import get_address_host

    worker, task = get_worker(), pickle.loads(given)
    tell = functools.partial(worker.log_event, topic)
    GANGS[gang] = assembly = Assembly(
        get_address_host(worker.address),
        task.annotations.hosts,
        wanted=_wanted(),
        told=lambda: tell([{"event": ASSEMBLED, "gang": gang}]),
    )
    try:
        return execute(task, Telling(tell, patient=False), assembly)
    except (StoreUnavailable, Cancelled) as error:
        return error
    finally:
        del GANGS[gang]


def join_gang(gang: str, rank: int, leader: str) -> None:
    """Run a member of a gang whose rank 0 another worker runs, at an address."""
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()

    def ask(news: bytes) -> bytes:
        """Over the connections of Dask, which are open between workers, and encrypted where they are to be."""
        question = getattr(worker.rpc(leader), _ASKING)
        reply: bytes = sync(worker.loop, question, gang=gang, rank=rank, news=news, callback_timeout=REPLYING)
        return reply

    perform_elsewhere(ask, _wanted())


def expect_members(dask_worker: Any) -> None:
    """Let a worker answer the members of gangs; it would not hear them otherwise."""
    dask_worker.handlers[_ASKING] = _reply


_ASKING = "marin_gang"
"""What Dask calls the question of a member."""
ASSEMBLED = "assembled"
"""The event that the workers of a gang are all at work on it; for who hands gangs out, and for nobody else."""
GANGS: dict[str, Assembly] = {}
"""The gangs whose rank 0 this process runs, by what they are called."""


def _reply(gang: str, rank: int, news: bytes) -> bytes:
    assembly = GANGS.get(gang)
    return pickle.dumps(WAIT) if assembly is None else assembly.exchange(rank, news)


def lose_member(gang: str, rank: int) -> None:
    """Let who runs rank 0 know that the worker of another member is gone."""
    if gang in GANGS:
        GANGS[gang].lost(rank)


def _wanted() -> Callable[[], bool]:
    """Asks whether anybody still waits for the task that the calling thread runs."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def asked() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    return asked
