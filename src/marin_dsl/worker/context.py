"""What an operator can ask for that is not identity: scratch space, log, progress, observations, random numbers."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import importlib
import math
import shutil
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from marin_dsl.evaluation.durations import spelled
from marin_dsl.worker.bounds import MESSAGE, cut
from marin_dsl.worker.kept import kept_folder

if TYPE_CHECKING:
    import numpy as np

KEPT_LINES = 50
"""Log lines that are kept beside a result or a failure."""


class Cancelled(BaseException):
    """The run was cancelled while the operator was at work; not an error of the operator's."""


class TimedOut(BaseException):
    """The operator did not return in time; a `BaseException`, so that an operator does not catch it by chance."""


@attrs.frozen
class Gang:
    """The processes that run one call together (`hosts=N`), as one of them sees them.

    Attributes:
        rank: the number of this one, from 0; what rank 0 returns is the value.
        size: how many there are; 1 for an ordinary call.
        coordinator: `host:port` where they may meet, free for rank 0 to listen at; None when nobody is to be met.
    """

    rank: int = 0
    size: int = 1
    coordinator: str | None = None
    _shared: Path | None = None

    @property
    def scratch(self) -> Path:
        """The folder of all members that is kept for the next attempt: `context().kept`."""
        return context().kept if self._shared is None else self._shared

    def initialize(self, **settings: Any) -> None:
        """Connect the members by `jax.distributed.initialize`; before anything else is done with jax.

        Args:
            settings: further ones of that function, such as `local_device_ids`.
        """
        if self.size > 1:
            # The language stands without jax: only whoever calls this has it loaded.
            jax = importlib.import_module("jax")
            meeting = {"coordinator_address": self.coordinator, "coordinator_bind_address": self.coordinator}
            jax.distributed.initialize(**{**meeting, "num_processes": self.size, "process_id": self.rank, **settings})


_ALONE = Gang()


class Context:
    """One execution of an operator, seen from inside.

    Attributes:
        source: where the external data lies that the operator is to read.
        gang: the processes that run this call together; one for an ordinary call.
        observations: what the operator measured, by name; recorded beside the result, no part of it.
        lines: the last lines that it logged.
    """

    def __init__(
        self,
        call: bytes,
        *,
        scratch_root: Path | str | None = None,
        report: Callable[[str, Any], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        redact: Callable[[str], str] | None = None,
        limit: float | None = None,
        source: str | None = None,
        gang: Gang | None = None,
    ) -> None:
        self._call = call
        self.source = source
        self.gang = gang or _ALONE
        self._scratch_root = scratch_root
        self._report = report or (lambda kind, content: None)
        self._cancelled = cancelled or (lambda: False)
        self._redact = redact or (lambda text: text)
        self._limit = limit
        self._deadline = math.inf if limit is None else time.monotonic() + limit
        self._closed = False
        self._held = contextlib.ExitStack()
        self.observations: dict[str, Any] = {}
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    @functools.cached_property
    def scratch(self) -> Path:
        """A private folder, empty at first and removed when the operator has returned."""
        if self._closed:
            raise TimedOut("the worker has let go of this call, so there is no scratch folder for it any more")
        if self._scratch_root is not None:
            root = Path(self._scratch_root)
            for place in (root.parent, root):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="marin-", dir=self._scratch_root))
        # Outside of an evaluation nobody closes the context: then it is removed when the process ends.
        self._remove = weakref.finalize(context, shutil.rmtree, folder, ignore_errors=True)
        return folder

    @functools.cached_property
    def kept(self) -> Path:
        """A folder in which the next attempt at the call, in this run or a later one, finds what this one left.

        For checkpoints. It is removed when there is a result, and shared by the members of a gang. It lies on the disk
        of the store; with a store in a bucket it is among the temporary files, and lasts one attempt only.
        """
        if self._closed:
            raise TimedOut("the worker has let go of this call, so there is no kept folder for it any more")
        if self.gang._shared is not None:
            return self.gang._shared
        if self._scratch_root is None:
            return self.scratch
        return self._held.enter_context(kept_folder(Path(self._scratch_root)))

    def log(self, text: str) -> None:
        """Say something: it is shown while running, and the last lines are kept with the result or the failure."""
        # Broken characters (lone surrogates) could not be sent to another process.
        text = self._redact(str(text)).encode("utf-8", "backslashreplace").decode()
        self.lines.extend(text.splitlines())
        self._report("log", cut(text, MESSAGE))

    def progress(self, done: float, total: float, **facts: float | int | str) -> None:
        """Say how far the work is, in any unit, with facts worth watching (`loss=2.31`)."""
        shown = {name: _plain(fact) for name, fact in facts.items()}
        self._report("progress", {"done": _plain(done), "total": _plain(total), "facts": shown})

    def observe(self, name: str, value: Any) -> None:
        """Record something measured (seconds, FLOPs, a rate) beside the result.

        Observations differ from run to run; they are evidence about the execution and no part of the value.
        """
        self.observations[name] = value

    def rng(self) -> np.random.Generator:
        """Random numbers seeded from the call itself: equal calls draw equal numbers, wherever and whenever."""
        import numpy as np

        return np.random.Generator(np.random.Philox(int.from_bytes(hashlib.sha256(self._call).digest()[:16], "big")))

    def check(self) -> None:
        """Stop here if the run was cancelled or the time is up; cheap enough for every step of a loop.

        Raises:
            Cancelled: the run was cancelled.
            TimedOut: the timeout of the call has passed.
        """
        if time.monotonic() >= self._deadline:
            raise self.timed_out()
        if self.cancelled:
            raise Cancelled("the run was cancelled")

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled."""
        return self._cancelled()

    def timed_out(self) -> TimedOut:
        """What says that the timeout has passed."""
        return TimedOut(f"no result within {spelled(self._limit or 0)}, the timeout of the call")

    def close(self) -> None:
        """Remove the scratch folder, if it was used, let go of the kept one, and report nothing any more."""
        self._closed = True
        self._report = lambda kind, content: None
        self._held.close()
        if "scratch" in self.__dict__:
            self._remove()


def _plain(fact: Any) -> Any:
    """A fact as a plain number or text, which can be sent to another process; array scalars are numbers."""
    fact = fact.item() if hasattr(fact, "item") and getattr(fact, "size", 1) == 1 else fact
    return fact if isinstance(fact, int | float | str) else str(fact)


_CURRENT: contextvars.ContextVar[Context | None] = contextvars.ContextVar("marin_context", default=None)


def context() -> Context:
    """The context of the operator that is running here; outside of an evaluation a stand-in that reports nothing."""
    return _CURRENT.get() or Context(b"outside of an evaluation")


class entered:  # noqa: N801 - it stands after `with`, for each call: a generator would take longer than many of them
    """Make a context the current one, and clean up after it."""

    __slots__ = ("_current", "_token")

    def __init__(self, current: Context) -> None:
        self._current = current

    def __enter__(self) -> Context:
        self._token = _CURRENT.set(self._current)
        return self._current

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._token)
        self._current.close()
