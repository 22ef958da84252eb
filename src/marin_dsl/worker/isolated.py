"""The inside of a process that runs one call: wait for it, run it, answer, end."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs

from marin_dsl.store import StoreUnavailable
from marin_dsl.worker.agreement import differs, other_code
from marin_dsl.worker.context import Cancelled, Context, Gang, entered
from marin_dsl.worker.performance import Performance, context_of, described, perform, performed
from marin_dsl.worker.redaction import Redaction
from marin_dsl.worker.task import Task

PATIENCE = 120.0
"""Seconds after which a process that nobody has needed ends."""
TAKEN = "taken"
"""What a process says first, when it has been handed a call."""
BEGINS = "begins"
"""What it says when the code of the operator is loaded: its time runs from now on."""


@attrs.frozen
class Surroundings:
    """What an operator may see of the worker that runs it, and that a process that was started earlier must be told.

    Attributes:
        path: where modules are looked for.
        environment: the environment variables.
        folder: the working directory; None where it is gone.
        temporary: where temporary files go.
        scratch_root: where the scratch folder goes; None for among the temporary files.
        gang: the processes that run the call together with this one.
    """

    path: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str | None
    temporary: str
    scratch_root: Path | None
    gang: Gang

    def enter(self) -> None:
        """Make them those of this process."""
        sys.path[:] = self.path
        os.environ.clear()
        os.environ.update({**self.environment, "TMPDIR": self.temporary})
        tempfile.tempdir = self.temporary
        if self.folder is not None:
            os.chdir(self.folder)


def serve(descriptor: int) -> None:
    """Run the one call that comes over a connection, and tell over it what came of it."""
    _prepare()
    line = _Line(Connection(descriptor))
    try:
        if not line.connection.poll(PATIENCE):
            return
        surroundings: Surroundings = line.connection.recv()
        pickled = line.connection.recv_bytes()
        line.tell(TAKEN)
    except (EOFError, OSError):  # whoever started this process has ended
        return
    surroundings.enter()
    threading.Thread(target=line.watch, daemon=True).start()
    answer = _answer(pickled, surroundings, line.tell)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the operator may have closed it
            stream.flush()
    line.answered = True
    line.tell(("answer", _pickled(answer)))


class _Line:
    """The connection to whoever started this process."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.answered, self._lock = connection, False, threading.Lock()

    def tell(self, what: Any) -> None:
        """Send something; from any thread."""
        with self._lock:
            self.connection.send(what)

    def watch(self) -> None:
        """End this process, and those it has started, when nobody waits for its answer any more."""
        try:
            self.connection.recv_bytes()
        except (EOFError, OSError):
            if not self.answered:
                os.killpg(0, signal.SIGKILL)


def _prepare() -> None:
    for module in ("cloudpickle", "marin_dsl.store.local"):  # every call needs them: loaded before one is waited for
        importlib.import_module(module)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    faulthandler.enable()  # a crash, and the end of the time, say where the operator was
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A core file would be left where nobody looks, with all secrets in it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _pickled(answer: Any) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception:  # operators that no module holds, in an expression to go on with
        import cloudpickle

        return bytes(cloudpickle.dumps(answer))


def _answer(pickled: bytes, surroundings: Surroundings, tell: Callable[[Any], None]) -> tuple[str, Any]:
    try:
        task: Task = pickle.loads(pickled)
    except BaseException as error:
        failure = described("lost", error, _answer)
        return "performed", performed(Context(b""), failure=failure)
    if differs(task):
        failure = described("lost", other_code(task), task.operator.function)
        return "performed", performed(Context(task.call), failure=failure)
    tell((BEGINS, None))
    redaction = Redaction(learned=lambda texts: tell(("secrets", texts)))
    current = context_of(
        task,
        lambda event: tell(("event", event)),
        redaction,
        scratch_root=surroundings.scratch_root,
        gang=surroundings.gang,
    )
    try:
        with entered(current):
            found: Performance = perform(task, current, redaction)
            return "performed", found
    except Cancelled:
        return "cancelled", None
    except StoreUnavailable as error:
        return "unavailable", str(error)
