"""What a page is made from: facts read from the records of an evaluation, never from code.

A page operator returns content (`marin_dsl.pages.content`); who renders it adds the evidence: which nodes there were,
what became of each, what they cost, where and when they ran, and the command that does it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import attrs
import numpy as np

Status: TypeAlias = Literal["ok", "failed", "skipped", "inline", "untaken"]
STATUSES: tuple[str, ...] = ("ok", "failed", "skipped", "inline", "untaken")


@attrs.frozen
class ErrorEvidence:
    """Why a node failed.

    Attributes:
        kind: raised, timeout, killed, lost, unstorable or conflict.
        exception: type of the exception ("FloatingPointError").
        message: its message.
        traceback: the traceback as text, may be empty.
        where: place in the user's code ("library/training.py:88 in train").
        attempts: how often it was tried.
    """

    kind: str
    exception: str
    message: str
    traceback: str = ""
    where: str = ""
    attempts: int = 1


@attrs.frozen
class NodeEvidence:
    """What became of one expression.

    Attributes:
        key: recipe key ("sha256:..."), the identity of the node on the page.
        operator: name of its operator ("library.training.train").
        title: what to call it on the page.
        status: ok, failed, skipped (an ancestor failed), inline (computed by whoever needs it), or untaken (a branch
            that no choice went on with, so that nothing waited for it).
        served: its result came from the store and it did not run this time.
        reason: why it ran, or why it did not have to.
        seconds: how long its operator took, whenever that was.
        peak_memory: bytes.
        flops: floating-point operations that it reports.
        arguments: names with short texts of their values.
        depends_on: keys of the nodes it reads; keys that are not on the page are left out of the graph.
        continued: key of the node whose outcome became its own, for a choice and for an operator that returned an
            expression.
        passed_over: keys of the branches that it did not go on with.
        error: why it failed.
        blamed: keys of the failed nodes because of which it was skipped.
    """

    key: str
    operator: str
    title: str
    status: Status = attrs.field(validator=attrs.validators.in_(STATUSES))
    served: bool = False
    reason: str = ""
    seconds: float | None = None
    peak_memory: int | None = None
    flops: float | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    depends_on: tuple[str, ...] = ()
    continued: str = ""
    passed_over: tuple[str, ...] = ()
    error: ErrorEvidence | None = None
    blamed: tuple[str, ...] = ()


@attrs.frozen
class Cost:
    """What a set of nodes took together.

    Attributes:
        nodes: how many nodes.
        seconds: sum over those that were measured.
        flops: sum over those that report any, None if none does.
        peak_memory: largest of them in bytes, None if none was measured.
    """

    nodes: int
    seconds: float
    flops: float | None
    peak_memory: int | None

    @classmethod
    def of(cls, nodes: tuple[NodeEvidence, ...]) -> Cost:
        """The cost of `nodes`; what was not measured counts as nothing."""
        flops = [node.flops for node in nodes if node.flops is not None]
        peaks = [node.peak_memory for node in nodes if node.peak_memory is not None]
        seconds = sum(node.seconds or 0.0 for node in nodes)
        return cls(len(nodes), seconds, sum(flops) if flops else None, max(peaks) if peaks else None)


def _nodes(nodes: Iterable[NodeEvidence]) -> tuple[NodeEvidence, ...]:
    return tuple(nodes)


def _unique(instance: object, attribute: object, nodes: tuple[NodeEvidence, ...]) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.key in seen:
            raise ValueError(f"node {node.key} ({node.title}) is given twice as evidence: give each key once")
        seen.add(node.key)


@attrs.frozen
class Evidence:
    """Everything a page shows beside what its operator returned.

    Attributes:
        target: what was evaluated ("gallery.first_model:page").
        command: the exact command that makes this page again.
        nodes: the nodes below the page, the page's own included, in any order.
        root: key of the page's own node.
        label: name@version, may be empty.
        run_id: the evaluation that rendered it.
        created: when, as text in ISO 8601.
        seconds: for each `Series.source`, seconds since the start of that node's run, (points,).
        environment: facts about the machine, in the order to show them.
        packages: distribution to version.
        commit: git commit of the project, may be empty.
        dirty: the working tree had changes that are in no commit.
        elapsed: wall-clock seconds of this run, None if not measured.
    """

    target: str
    command: str
    nodes: tuple[NodeEvidence, ...] = attrs.field(converter=_nodes, validator=_unique)
    root: str
    label: str = ""
    run_id: str = ""
    created: str = ""
    seconds: dict[tuple[str | int, ...], np.ndarray] = attrs.field(factory=dict, eq=False)
    environment: dict[str, str] = attrs.field(factory=dict)
    packages: dict[str, str] = attrs.field(factory=dict)
    commit: str = ""
    dirty: bool = False
    elapsed: float | None = None

    @property
    def whole(self) -> Cost:
        """Cost of every node on record, whenever it ran."""
        return Cost.of(self.nodes)

    @property
    def this_run(self) -> Cost:
        """Cost of the nodes that ran this time."""
        return Cost.of(tuple(node for node in self.nodes if not node.served and node.status in ("ok", "failed")))

    def with_status(self, status: Status) -> tuple[NodeEvidence, ...]:
        """The nodes that ended with `status`, in the order given."""
        return tuple(node for node in self.nodes if node.status == status)
