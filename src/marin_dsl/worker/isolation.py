"""Running a call in a fresh process: whatever it does there, this process gets an answer.

Nothing is forked: each process is a new interpreter. Some are always kept ready, so that a call does not wait
for one to start.
"""

from __future__ import annotations

import contextlib
import functools
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any

import attrs

from marin_dsl.store import StoreUnavailable
from marin_dsl.worker.context import KEPT_LINES, Cancelled, Context, Gang
from marin_dsl.worker.isolated import BEGINS, TAKEN, Surroundings
from marin_dsl.worker.kept import kept_folder
from marin_dsl.worker.member import answers
from marin_dsl.worker.performance import Performance, described, peak_memory, performed
from marin_dsl.worker.redaction import Redaction
from marin_dsl.worker.task import CannotRun, Emit, Task, packed

KEPT_OUTPUT = 1 << 17
"""Bytes of output that are kept, before its last lines are chosen."""
WAITING = 2
"""Processes that are kept ready: while one starts on one core, the other does on another."""
LOADING = 60.0
"""Seconds that the code of an operator may take to load, besides its timeout."""
_LAST_WORDS = 0.5  # seconds for a process to say where it was when its time was up
_FAREWELL = 5.0  # seconds for a process to end by itself when it has answered


class Killed(RuntimeError):
    """The process of an operator ended before the operator returned."""


class StoreNotShared(CannotRun):
    """The store is one that other processes do not see."""


def perform_isolated(task: Task, emit: Emit, redaction: Redaction, *, scratch_root: Path | None) -> Performance:
    """Run the operator of a task in a fresh process.

    Args:
        task: the call; its timeout is enforced by killing the process.
        emit: is given the events of the operator.
        redaction: is told the secrets among the arguments.
        scratch_root: where scratch folders of this call lie; None for among the temporary files.

    Raises:
        StoreUnavailable: the store cannot be read or written.
        Cancelled: the run was cancelled meanwhile; the process is gone.
    """
    try:
        pickled = packed_for_processes(task, "isolate=True", "a process of its own")
    except CannotRun as error:
        return performed(Context(task.call), failure=described("lost", error, perform_isolated))
    conversation = Conversation(task, ready().take(), emit, redaction, own_scratch(scratch_root))
    with kept_folder(scratch_root) as kept:
        try:
            conversation.begin(pickled, Gang(shared=kept))
            with contextlib.closing(answers([conversation])) as looks:
                return next(filter(None, looks))[0][1]
        finally:
            conversation.leave()


def packed_for_processes(task: Task, asked: str, what: str) -> bytes:
    """A task on its way to processes that see the store, too.

    Raises:
        CannotRun: they do not, or the task holds something that stays here.
    """
    if not task.store.shared:
        raise StoreNotShared(
            f"{asked} runs {task.operator.short_name} in {what}, and {task.store.url} is in the memory of this one; "
            "choose a store on a disk or in a bucket (--store or MARIN_STORE)"
        )
    return packed(task)


def own_scratch(scratch_root: Path | None) -> Path | None:
    """A name for the place of one process's scratch folder among those of the call."""
    return scratch_root / uuid.uuid4().hex if scratch_root is not None else None


class Process:
    """A fresh interpreter, with a connection to it and the end of what it prints."""

    def __init__(self, *, spare: bool) -> None:
        self.spare = spare
        self.temporary: Path | None = None
        self.connection, theirs = multiprocessing.Pipe()
        self.output, written = os.pipe()
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", _program(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,  # it is killed with all that it starts, and no Ctrl-C reaches it
            )
        finally:
            theirs.close()
            os.close(written)
        os.set_blocking(self.output, False)

    def told(self, pickled: bytes, scratch_root: Path | None, gang: Gang) -> bool:
        """Hand a call over; whether the process has taken it."""
        self.temporary = Path(tempfile.mkdtemp(prefix="marin-"))
        surroundings = Surroundings(
            tuple(sys.path), dict(os.environ), _working_folder(), str(self.temporary), scratch_root, gang
        )
        try:
            self.connection.send(surroundings)
            self.connection.send_bytes(pickled)
            return bool(self.connection.recv() == TAKEN)
        except (OSError, EOFError):
            return False

    def signal(self, number: int) -> None:
        """Send a signal to the process, or SIGKILL to all that it has started as well."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.killpg if number == signal.SIGKILL else os.kill)(self.popen.pid, number)

    def leave(self) -> None:
        """Let it end by itself for a while if it has nothing more to do, without waiting for that."""
        self.connection.close()
        os.close(self.output)
        threading.Thread(target=self._end, name="marin-farewell").start()

    def _end(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(_FAREWELL)
        self.signal(signal.SIGKILL)
        self.popen.wait()
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return None


def _program(descriptor: int) -> str:
    return f"import sys; sys.path[:] = {sys.path!r}; from marin_dsl.worker.isolated import serve; serve({descriptor})"


class Ready:
    """Processes that wait for a call."""

    def __init__(self) -> None:
        self._waiting: deque[Process] = deque()
        self._lock = threading.Lock()

    def take(self) -> Process:
        """A process that waits (or a new one), while others are started for the next calls."""
        with self._lock:
            process = self._waiting.popleft() if self._waiting else Process(spare=False)
            while len(self._waiting) < WAITING:
                self._waiting.append(Process(spare=True))
        return process


@functools.cache
def ready() -> Ready:
    """The processes that wait in this one."""
    return Ready()


@attrs.define(eq=False)
class Conversation:
    """What is heard from a process until it has answered, or is no more.

    Attributes:
        task: the call.
        process: the one that runs it.
        emit: is given the events of the operator.
        redaction: is told the secrets among the arguments.
        scratch_root: where its scratch folder lies; None for among the temporary files.
        deadline: when its time is up, on the monotonic clock.
        peak: bytes of memory that the process was seen to have.
        printed: the end of what it has printed and logged.
        prints: whether more may follow.
    """

    task: Task
    process: Process
    emit: Emit
    redaction: Redaction
    scratch_root: Path | None
    deadline: float = math.inf
    peak: int = 0
    printed: bytearray = attrs.field(factory=bytearray)
    prints: bool = True

    def begin(self, pickled: bytes, gang: Gang) -> None:
        """Hand the call over (or to a new process that ended at once, which its end will tell of)."""
        self.measure()  # it may have died before anybody looks again
        while not self.process.told(pickled, self.scratch_root, gang) and self.process.spare:
            self.process.leave()  # it has waited too long, and has ended
            self.process = ready().take()
            self.measure()
        self._allow(LOADING)

    def stop(self) -> None:
        """Let the process do nothing more, and stay."""
        self.process.signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End the process, and all that it has started."""
        self.process.signal(signal.SIGKILL)

    def wait(self, seconds: float) -> None:
        """Wait until the process is gone, for so long at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.popen.wait(seconds)

    def leave(self) -> None:
        """Let the process end by itself for a while, and remove what it had for itself."""
        self.process.leave()
        if self.scratch_root is not None:
            shutil.rmtree(self.scratch_root, ignore_errors=True)

    def measure(self) -> None:
        """See how much memory the process has had so far: when it has died, nobody knows."""
        self.peak = max(self.peak, peak_memory(self.process.popen.pid))

    def sources(self) -> list[Any]:
        """Where something may be heard."""
        return [self.process.connection, *([self.process.output] if self.prints else [])]

    def heard(self, source: Any) -> Performance | None:
        """Take what came from one of the sources; what came of the call when that is known now."""
        if source is not self.process.connection:
            self.prints = self._read()
            return None
        try:
            found = self.process.connection.recv()
        except (EOFError, OSError):
            return self._killed()
        return self._taken(*found)

    def _allow(self, more: float) -> None:
        limit = self.task.annotations.limit
        self.deadline = math.inf if limit is None else time.monotonic() + limit + more

    def _read(self) -> bool:
        """Take what was printed; whether there can be more."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):  # one that never stops printing must not keep anybody here
                chunk = os.read(self.process.output, 1 << 16)
                if not chunk:
                    return False
                self.printed += chunk
                if len(self.printed) > 2 * KEPT_OUTPUT:
                    del self.printed[:-KEPT_OUTPUT]
        return True

    def _taken(self, kind: str, content: Any) -> Performance | None:
        if kind == "answer":
            return self._taken(*pickle.loads(content))
        if kind == BEGINS:
            self._allow(0.0)
        elif kind == "secrets":
            self.redaction.add(content)
        elif kind == "event":
            if content["event"] == "log":
                self._read()
                self.printed += f"{content['content']}\n".encode()
            self.emit(content)
        elif kind == "cancelled":
            raise Cancelled("the run was cancelled")
        elif kind == "unavailable":
            raise StoreUnavailable(content, self.task.store.url)
        else:
            found: Performance = attrs.evolve(content, lines=self.lines())
            return found
        return None

    def lines(self) -> tuple[str, ...]:
        """The last lines of what was printed and logged so far."""
        self._read()
        text = self.redaction.text(bytes(self.printed).decode("utf-8", "backslashreplace"))
        # Where the beginning was cut off, a secret may have been cut in two.
        return tuple(text[-KEPT_OUTPUT // 2 :].splitlines()[-KEPT_LINES:])

    def _failed(self, kind: Any, error: BaseException) -> Performance:
        failure = self.redaction.plain(described(kind, error, perform_isolated))
        found = performed(Context(self.task.call), failure={**failure, "traceback": ""})
        pid = self.process.popen.pid
        return attrs.evolve(found, lines=self.lines(), peak_memory=self.peak, pid=pid, thread="MainThread")

    def timed_out(self) -> Performance:
        """End the process, which has a moment to say where it was."""
        self.process.signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.popen.wait(_LAST_WORDS)
        self.process.signal(signal.SIGKILL)
        return self._failed("timeout", Context(self.task.call, limit=self.task.annotations.limit).timed_out())

    def _killed(self) -> Performance:
        try:
            status = self.process.popen.wait(_FAREWELL)
        except subprocess.TimeoutExpired:  # it has closed the connection, and goes on
            self.process.signal(signal.SIGKILL)
            status = self.process.popen.wait()
        return self._failed("killed", _death(status))


def _death(status: int) -> Killed:
    """What the exit status of a process says."""
    if status >= 0:
        return Killed(f"its process ended with exit status {status} before the operator returned (os._exit, perhaps)")
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "a signal"
    error = Killed(f"its process was killed by signal {-status} ({name})")
    if -status == signal.SIGKILL:
        error.add_note(
            "out of memory? That is how the kernel ends processes then (`dmesg` says so): run it where more memory is "
            "free, ask for more with resources=, or let it need less"
        )
    return error
