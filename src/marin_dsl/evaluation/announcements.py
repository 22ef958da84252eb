"""What an evaluation tells of its nodes: events as plain dicts, which `events` gives their types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from marin_dsl.encoding import format_digest
from marin_dsl.evaluation.event_log import durations
from marin_dsl.labels.drift import CodeDrift, Drift, Policy, shown
from marin_dsl.outcome import Failed, Skipped
from marin_dsl.planning import plan_of
from marin_dsl.planning.node import Node
from marin_dsl.planning.resolution import Resolution
from marin_dsl.worker.task import Answer


def planned(run: str, resolution: Resolution, reasons: Mapping[bytes, str]) -> dict[str, Any]:
    """The first descent has ended.

    Args:
        run: id of the run.
        resolution: what it found.
        reasons: why each expression has to run.
    """
    known, store = _numbers(resolution.nodes.values()), resolution.store
    return {
        "event": "planned",
        "run": run,
        "plan": plan_of(resolution, reasons),
        "store": store.url,
        **known,
        "durations": durations(store, known["operators"]) if resolution.ready else {},
    }


def found(nodes: Iterable[Node]) -> dict[str, Any]:
    """These nodes were demanded on the way."""
    return {"event": "found", **_numbers(nodes)}


def _numbers(nodes: Iterable[Node]) -> dict[str, Any]:
    """How many nodes there are, how many of them are served, and what is to run, by operator."""
    known = [node for node in nodes if not node.inline]
    operators = Counter(node.expression.operator.name for node in known if node.how in ("run", None))
    return {"nodes": len(known), "hits": sum(node.how == "hit" for node in known), "operators": dict(operators)}


def _event(kind: str, node: Node, **facts: Any) -> dict[str, Any]:
    call = format_digest(node.call) if node.call else None
    return {"event": kind, "call": call, "recipe": format_digest(node.expression.key), "title": node.title, **facts}


def continued(node: Node) -> dict[str, Any]:
    """The operator of a node has returned an expression."""
    return _event("continued", node)


def conflict(node: Node, found: str) -> dict[str, Any]:
    """A call came to something else than the value that is kept of it."""
    return _event("conflict", node, kept=format_digest(node.digest) if node.digest else None, found=found)


def elsewhere(node: Node, by: str) -> dict[str, Any]:
    """Somebody else is working on the call of a node."""
    return _event("elsewhere", node, by=by)


def settled(node: Node, answer: Answer | None) -> dict[str, Any]:
    """A node has its outcome.

    Args:
        node: the node.
        answer: what its worker said; None for one that did not run.
    """
    outcome = node.outcome()
    kind = "ok" if outcome is None else "failed" if isinstance(outcome, Failed) else "skipped"
    operator, seconds = node.expression.operator.name, answer.seconds if answer is not None else None
    event = _event(kind, node, operator=operator, how=node.how, seconds=seconds)
    if outcome is not None:
        event["reason"] = _reason(node, outcome)
    return event


def drifted(drift: Drift, policy: Policy) -> dict[str, Any]:
    """A label stands for another recipe than the one that is wanted."""
    entry = drift.entry
    return {
        "event": "drift",
        "label": str(drift.label),
        "since": entry.since,
        "lines": list(drift.lines),
        "code": list(shown(drift.code)),
        "adopted": entry.adopted,
        "headline": drift.headline,
        "policy": policy,
    }


def code_drifted(drift: CodeDrift) -> dict[str, Any]:
    """The code of an operator changed though its version did not, and values that it made are served."""
    return {
        "event": "code drift",
        "operator": drift.operator,
        "version": drift.version,
        "title": drift.title,
        "headline": drift.headline,
        "code": list(shown([drift.diff])),
    }


def stand_ins(resolution: Resolution) -> Iterator[dict[str, Any]]:
    """Values that are served since somebody said that they stand for them."""
    for node in resolution.nodes.values():
        if node.stands_for is not None:
            yield {"event": "same", "title": node.title, **node.stands_for}


def _reason(node: Node, outcome: Failed | Skipped) -> str:
    """Why there is no value: the failure in short, or which nodes failed (what befell them was told when it did)."""
    if isinstance(outcome, Failed):
        return outcome.summary
    titles = [culprit.title for culprit in node.culprits] or [found.operator for found in outcome.because]
    return ", ".join(titles[:2]) + (f" and {len(titles) - 2} more" if len(titles) > 2 else "") + " failed"
