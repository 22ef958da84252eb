"""The members of a gang that other workers run.

A member asks whoever runs rank 0, again and again: it says what has happened, and is told what to do. How question and
reply travel is not said here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from marin_dsl.store import StoreUnavailable
from marin_dsl.worker.context import Cancelled, Context, Gang
from marin_dsl.worker.gang import kind_of, told_by
from marin_dsl.worker.isolation import Conversation, own_scratch, ready
from marin_dsl.worker.member import Member, answers
from marin_dsl.worker.performance import Cancellation, Performance, described, performed
from marin_dsl.worker.redaction import Redaction
from marin_dsl.worker.task import Emit, Task

SILENCE = 30.0
"""Seconds without a question after which a member is given up."""
ASKING = 0.25
"""Seconds between the questions of a member to whom nothing happens."""

REPLYING = 5.0
"""Seconds that a member waits for a reply, before it asks again."""

Message = tuple[int, str, Any]
"""What a member says: the number of the news, for it may be said twice; its kind; and the news."""
Reply = tuple[str, Any]
"""What it is told: `wait` for the beginning, `begin` (with the call), `go on` or `end`."""
WAIT, GO_ON, END = ("wait", None), ("go on", None), ("end", None)


class MemberLost(RuntimeError):
    """Nothing is heard any more from the worker that runs a member of a gang."""


class Remote:
    """A member that another worker runs, seen by who runs rank 0.

    `exchange` may be called from any thread, and does not block; all else is for the thread of the gang.

    Args:
        task: the call.
        emit: is given its events.
    """

    def __init__(self, task: Task, emit: Emit) -> None:
        self.task, self.peak = task, 0
        self._emit = emit
        self._news: deque[tuple[str, Any]] = deque()
        self._next = 0
        self._reply: Reply = WAIT
        self._lines: tuple[str, ...] = ()
        self._gone = threading.Event()
        self._seen = self._missing = self._left = False
        self._lock = threading.Lock()
        self._asked = time.monotonic()
        self._waking, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def exchange(self, news: Iterable[Message]) -> Reply:
        """Take what the member says; what it is to do."""
        self._seen, self._asked = True, time.monotonic()
        for number, kind, content in news:
            if number < self._next:
                continue  # the reply to it was not heard
            self._next = number + 1
            if kind == "begun" and self._reply != END:
                self._reply = GO_ON
            elif kind == "gone":
                self._lines, self.peak = content
                self._gone.set()
            else:
                self._news.append((kind, content))
        self._awake()
        return self._reply

    def lost(self) -> None:
        """Its worker is known to be gone."""
        self._missing = True
        self._awake()

    def _awake(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # it is awake already
            if not self._left:
                os.write(self._wake, b".")

    @property
    def here(self) -> bool:
        """Whether it has asked what to do, and asks still."""
        return self._seen and not self._missing and time.monotonic() - self._asked < SILENCE

    @property
    def deadline(self) -> float:
        return 0.0 if self._missing else self._asked + SILENCE

    def begin(self, pickled: bytes, gang: Gang) -> None:
        self._reply = "begin", (pickled, gang)

    def measure(self) -> None:
        """Its own worker does that."""

    def sources(self) -> list[Any]:
        return [self._waking]

    def heard(self, source: Any) -> Performance | None:
        os.read(self._waking, 1 << 12)
        while self._news:
            kind, content = self._news.popleft()
            if kind == "event":
                self._emit(content)
            elif kind == "cancelled":
                raise Cancelled("the run was cancelled")
            elif kind == "unavailable":
                raise StoreUnavailable(content, self.task.store.url)
            elif kind == "performed":
                found: Performance = content
                self._lines, self.peak = found.lines, max(self.peak, found.peak_memory)
                return found
        return None

    def timed_out(self) -> Performance:
        since = "its worker is gone" if self._missing else f"its worker has not been heard for {SILENCE:g} s"
        self._missing = True
        return performed(Context(self.task.call), failure=described("lost", MemberLost(since), perform_elsewhere))

    def stop(self) -> None:
        """Its own worker has done that when it saw what happened."""

    def kill(self) -> None:
        self._reply = END

    def wait(self, seconds: float) -> None:
        if not self._missing:
            self._gone.wait(seconds)

    def lines(self) -> tuple[str, ...]:
        return self._lines

    def leave(self) -> None:
        self._reply = END
        with self._lock:
            if not self._left:
                os.close(self._wake)
                os.close(self._waking)
            self._left = True


class Assembly:
    """The members of one gang, as they come together; asked by their workers through `exchange`.

    Args:
        host: the address of this machine, as other workers reach it.
        size: how many members there are, with rank 0.
        wanted: whether anybody waits for the gang still.
        told: called when all are there.
    """

    def __init__(self, host: str, size: int, *, wanted: Callable[[], bool], told: Callable[[], object]) -> None:
        self.host, self.size = host, size
        self._wanted, self._told = wanted, told
        self._members: dict[int, Remote] = {}

    def gathered(self, task: Task, emit: Emit) -> Sequence[Member]:
        """The members from rank 1 on, when all are there; see `marin_dsl.worker.gang.Others`."""
        self._members = {rank: Remote(task, told_by(emit, rank)) for rank in range(1, self.size)}
        cancellation = Cancellation(task.store, task.run)
        while not all(member.here for member in self._members.values()):
            if not self._wanted() or cancellation.asked():
                for member in self._members.values():
                    member.leave()
                raise Cancelled("the run was cancelled")
            time.sleep(ASKING / 10)
        self._told()
        return list(self._members.values())

    def exchange(self, rank: int, news: bytes) -> bytes:
        """What the worker of a member says, and is told."""
        member = self._members.get(rank)
        return pickle.dumps(WAIT if member is None else member.exchange(pickle.loads(news)))

    def lost(self, rank: int) -> None:
        """The worker of a member is known to be gone."""
        if rank in self._members:
            self._members[rank].lost()


Ask = Callable[[bytes], bytes]
"""Takes news to who runs rank 0, and brings the reply; raises OSError where nobody can be reached."""


class _Line:
    """What a member has to say, and has been told."""

    def __init__(self, ask: Ask, wanted: Callable[[], bool]) -> None:
        self.wanted = wanted
        self._ask, self._news = ask, list[Message]()
        self._numbers = itertools.count()
        self._asked = -ASKING
        self._answered = time.monotonic()
        self._alone = False

    def tell(self, kind: str, content: Any = None) -> None:
        """Say something with the next question."""
        self._news.append((next(self._numbers), kind, content))

    def ask(self) -> Reply:
        """Ask what is to be done: at once when there is news, else now and then.

        When nobody replies, it is to end if nobody else wants it either, or at last.
        """
        if self._alone:
            return END
        if not self._news and time.monotonic() - self._asked < ASKING:
            return GO_ON
        self._asked = time.monotonic()
        told = list(self._news)
        try:
            reply: Reply = pickle.loads(self._ask(pickle.dumps(told)))
        except OSError:
            self._alone = not self.wanted() or time.monotonic() - self._answered > SILENCE
            return END if self._alone else GO_ON
        del self._news[: len(told)]
        self._answered = time.monotonic()
        return reply


def perform_elsewhere(ask: Ask, wanted: Callable[[], bool]) -> None:
    """Run a member of a gang for who runs rank 0 on another worker.

    Args:
        ask: takes news to there, and brings the reply.
        wanted: whether this is still to be done; asked until it begins, and when nobody is reached.
    """
    line = _Line(ask, wanted)
    begun = _begun(line)
    if begun is None:
        return
    pickled, gang = begun
    try:
        task: Task = pickle.loads(pickled)
    except BaseException as error:  # the project's code is not here, perhaps
        line.tell("performed", performed(Context(b""), failure=described("lost", error, perform_elsewhere)))
        line.tell("gone", ((), 0))
        _wait(line)
        return
    scratch = None if task.scratch_root is None else Path(task.scratch_root)
    redaction = Redaction()
    conversation = Conversation(
        task, ready().take(), lambda event: line.tell("event", event), redaction, own_scratch(scratch)
    )
    returned = False
    try:
        conversation.begin(pickled, gang)
        returned = _accompanied(conversation, line)
    except Cancelled:
        line.tell("cancelled")
    except StoreUnavailable as error:
        line.tell("unavailable", str(error))
    finally:
        if not returned:
            conversation.kill()
            conversation.wait(SILENCE)
        line.tell("gone", (conversation.lines(), conversation.peak))
        line.ask()
        conversation.leave()


def _begun(line: _Line) -> tuple[bytes, Gang] | None:
    """The call and the gang that is to run it, when all members are there; None if it is not to be."""
    while line.wanted():
        kind, content = line.ask()
        if kind == "begin":
            found: tuple[bytes, Gang] = content
            line.tell("begun")
            return found
        if kind == "end":
            return None
        time.sleep(ASKING / 10)
    return None


def _accompanied(conversation: Conversation, line: _Line) -> bool:
    """Tell what happens to a member until all are to end; one that is done waits for the others.

    Returns:
        Whether it returned, and ends by itself.
    """
    returned = False
    with contextlib.closing(answers([conversation])) as looks:
        for ended in looks:
            for _, performance in ended:
                returned = performance.failure is None
                if kind_of(performance) == "raised":
                    conversation.stop()
                line.tell("performed", performance)
            if _over(line):
                return returned
    _wait(line)
    return returned


def _wait(line: _Line) -> None:
    while not _over(line):
        time.sleep(ASKING / 10)


def _over(line: _Line) -> bool:
    # Who waits for the beginning of something else, or of nothing, has forgotten this.
    return line.ask()[0] in ("end", "wait")
