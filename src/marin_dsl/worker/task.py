"""What a worker is asked to do, and what it answers: digests and small things, never data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from marin_dsl.encoding import NO_FUNCTIONS, Functions
from marin_dsl.expression.annotations import Annotations
from marin_dsl.expression.pickling import Row
from marin_dsl.operator import Operator
from marin_dsl.outcome import Attempt, Failed
from marin_dsl.store import Store, StoredValue
from marin_dsl.store.leases import Sighting

Emit = Callable[[dict[str, Any]], None]


@attrs.frozen(eq=False)
class Task:
    """All that a worker needs to run one call: digests and small things, never data.

    Attributes:
        store: where values are read and written.
        operator: what to run.
        payload: encoded arguments, cut at each reference.
        inputs: the value of each reference.
        call: the call key.
        title: what people call this node.
        run: id of the run that wants it.
        environment: digest of the environment snapshot, as records write it.
        code: digest of the operator's code, as records write it.
        over_failure: whether an input was made from the outcome of something that failed.
        annotations: how to run it.
        history: the failed attempts at it in this run.
        lease: seconds without a sign of life after which others take over; 0 to tell nobody that it is being done.
        abandoned: the lease of somebody who is to be taken over from.
        asked: how often it was handed out before, and somebody else was working on it.
        verifies: run it although it has a result, to compare.
        functions: functions and classes among its arguments, by place and code.
        structure: that of its expression, to be recorded with its result; None when it is recorded already.
    """

    store: Store
    operator: Operator[Any, Any]
    payload: tuple[bytes, ...]
    inputs: tuple[StoredValue, ...]
    call: bytes
    title: str
    run: str
    environment: str
    code: str
    over_failure: bool
    annotations: Annotations = Annotations()
    history: tuple[Attempt, ...] = ()
    lease: float = 0.0
    abandoned: Sighting | None = None
    asked: int = 0
    verifies: bool = False
    functions: Functions = NO_FUNCTIONS
    structure: dict[str, Any] | None = None

    @property
    def attempt(self) -> int:
        """The number of this attempt in the run, from 1."""
        return len(self.history) + 1

    @property
    def scratch_root(self) -> str | None:
        """Where the scratch folders of the call lie; None for among the temporary files."""
        return None if self.store.scratch is None else f"{self.store.scratch}/{self.call.hex()}"


class CannotRun(RuntimeError):
    """No worker can ever run a call; the message says why and what to do."""


class CannotTravel(CannotRun):
    """A call cannot be sent to another process."""


def packed(task: Task) -> bytes:
    """A task on its way to another process.

    Raises:
        CannotTravel: its operator holds something that stays where it is.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(task))
    except Exception as error:
        raise CannotTravel(
            f"{task.operator.short_name} cannot be sent to another process ({type(error).__name__}: {error}); "
            "define it at the top of a module, or make what it holds inside of it"
        ) from None


@attrs.frozen(eq=False)
class Answer:
    """What became of a task: the stored value, or a failure.

    Attributes:
        stored: where the value is.
        failed: why there is none.
        ran: whether the operator was run here (or its result was found).
        seconds: how long that took.
        continued: the expression that the operator returned, whose value is to be the value of the call.
        record: what is known of the execution, for the result that is recorded when that value is there.
        transient: whether what it failed with may not come again.
        elsewhere: the lease of somebody else who is working on it, when nothing else is to be said.
        conflict: what came of it this time, where the store has another value.
    """

    stored: StoredValue | None
    failed: Failed | None
    ran: bool
    seconds: float
    continued: list[Row] | None = None
    record: dict[str, Any] | None = None
    transient: bool = False
    elsewhere: Sighting | None = None
    conflict: str | None = None
