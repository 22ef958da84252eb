"""Members of a gang on other workers: what they say is heard once, however badly question and reply travel."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time

import pytest

from marin_dsl import Store, context, op
from marin_dsl.encoding import format_digest
from marin_dsl.store import StoreUnavailable
from marin_dsl.worker import execute, remote
from marin_dsl.worker.context import Cancelled
from marin_dsl.worker.remote import Assembly, perform_elsewhere
from marin_dsl.worker.task import Task


@op(version="1", hosts=2)
def together(way: str) -> list[int]:
    mine = context().gang
    for number in range(20):
        context().log(f"line {number}")
    if way == "second raises" and mine.rank == 1:
        raise ValueError("no")
    if way == "second hangs" and mine.rank == 1:
        time.sleep(600)
    if way == "second dies" and mine.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [mine.rank, mine.size]


class Title(str):
    """Not to be read where members of other workers are at work."""

    __slots__ = ()

    def __reduce__(self):
        return titled, (str(self),)


def titled(text: str) -> str:
    if threading.current_thread() is not threading.main_thread():
        raise ModuleNotFoundError("No module named 'mine'")
    return text


def task(folder, way: str, title: str = "together") -> Task:
    call, code = together(way), format_digest(together.code.digest)
    return Task(
        Store(folder), together, call.payload, (), call.key, title, "run", "", code, False,
        annotations=call.annotations,
    )  # fmt: skip


class Meeting:
    """Rank 0 in this thread, rank 1 in another one, and what lies between them."""

    def __init__(self, folder, way: str, ask=None, wanted=lambda: True) -> None:
        self.events = []
        self.told = []
        self.assembly = Assembly("127.0.0.1", 2, wanted=wanted, told=lambda: self.told.append(True))
        exchange = lambda news: self.assembly.exchange(1, news)  # noqa: E731
        self.wanted_by_member = True
        self.member = threading.Thread(
            target=perform_elsewhere, args=(exchange if ask is None else ask(exchange), lambda: self.wanted_by_member)
        )
        self.task = task(folder, way)

    def held(self):
        self.member.start()
        try:
            return execute(self.task, self.events.append, self.assembly)
        finally:
            self.wanted_by_member = False
            self.member.join(30)
            assert not self.member.is_alive()


def losing(every: int, *, replies: bool):
    """Each so-manieth question is not heard, or the reply to it is not."""

    def ask(exchange):
        numbers = itertools.count(1)

        def question(news: bytes) -> bytes:
            lost = next(numbers) % every == 0
            if lost and not replies:
                raise TimeoutError
            reply = exchange(news)
            if lost:
                raise TimeoutError
            return reply

        return question

    return ask


@pytest.mark.parametrize("ask", [None, losing(2, replies=False), losing(2, replies=True), losing(3, replies=True)])
def test_what_a_member_says_is_heard_once_and_it_begins_once(tmp_path, ask):
    meeting = Meeting(tmp_path, "well", ask)
    answer = meeting.held()
    assert meeting.task.store.get(answer.stored) == [0, 2]
    assert meeting.told == [True]
    logged = [event["content"] for event in meeting.events if event["event"] == "log"]
    assert [text for text in logged if "rank 1" in text] == [f"[rank 1] line {number}" for number in range(20)]


@pytest.mark.parametrize(("way", "kind"), [("second raises", "raised"), ("second dies", "killed")])
def test_a_failure_of_another_worker_comes_with_its_last_lines(tmp_path, way, kind):
    answer = Meeting(tmp_path, way, losing(2, replies=True)).held()
    assert answer.failed.kind == kind
    assert answer.failed.message.startswith("rank 1 of 2: ")
    assert "[rank 1] line 19" in answer.failed.output


def test_a_member_that_is_silent_for_long_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "SILENCE", 0.6)
    reached = threading.Event()

    def ask(exchange):
        def question(news: bytes) -> bytes:
            if b"line 19" in news:
                reached.set()
            if reached.is_set():
                raise ConnectionResetError
            return exchange(news)

        return question

    answer = Meeting(tmp_path, "second hangs", ask).held()
    assert (answer.failed.kind, answer.failed.exception) == ("lost", "marin_dsl.worker.remote.MemberLost")
    assert answer.failed.message == "rank 1 of 2: its worker has not been heard for 0.6 s"


def test_a_member_whose_worker_is_known_to_be_gone_is_not_waited_for(tmp_path):
    meeting = Meeting(tmp_path, "second hangs")
    gone = threading.Thread(target=lambda: (until(lambda: "line 19" in str(meeting.events)), meeting.assembly.lost(1)))
    gone.start()
    answer = meeting.held()
    assert answer.failed.message == "rank 1 of 2: its worker is gone"


def until(happens) -> None:
    deadline = time.monotonic() + 30
    while not happens() and time.monotonic() < deadline:
        time.sleep(0.02)


def test_who_waits_for_members_stops_when_nobody_wants_the_gang_any_more(tmp_path):
    begun = time.monotonic()
    meeting = Meeting(tmp_path, "well", wanted=lambda: time.monotonic() - begun < 0.3)
    with pytest.raises(Cancelled):
        execute(meeting.task, meeting.events.append, meeting.assembly)
    assert meeting.told == []


def test_a_member_goes_when_nobody_answers_and_nobody_wants_it(tmp_path):
    def ask(news: bytes) -> bytes:
        raise ConnectionRefusedError

    begun = time.monotonic()
    perform_elsewhere(ask, lambda: time.monotonic() - begun < 0.3)
    assert time.monotonic() - begun < remote.SILENCE


def test_trouble_of_the_store_at_another_worker_is_that_of_the_gang(tmp_path, monkeypatch):
    def unavailable(conversations):
        if [each for each in conversations if each.task is not mine]:
            raise StoreUnavailable("store s: full")
        yield from looks(conversations)

    looks = remote.answers
    monkeypatch.setattr(remote, "answers", unavailable)
    meeting = Meeting(tmp_path, "second hangs")
    mine = meeting.task
    with pytest.raises(StoreUnavailable, match="store s: full"):
        meeting.held()


def test_a_worker_that_does_not_have_the_code_says_so(tmp_path):
    meeting = Meeting(tmp_path, "second hangs")
    meeting.task = task(tmp_path, "second hangs", Title("together"))
    answer = meeting.held()
    assert (answer.failed.kind, answer.failed.exception) == ("lost", "ModuleNotFoundError")
    assert answer.failed.message == "rank 1 of 2: No module named 'mine'"
