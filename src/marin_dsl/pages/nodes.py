"""Nodes as a page speaks of them: a word and a look for what became of each, a place to link to, a tooltip."""

from __future__ import annotations

import re
from collections import Counter

import attrs

from marin_dsl import quantities
from marin_dsl.pages.clusters import topological
from marin_dsl.pages.evidence import ErrorEvidence, Evidence, NodeEvidence

LOOKS = {
    "ok": ("ran", "ran this time"),
    "served": ("stored", "served from the store, did not have to run"),
    "failed": ("failed", "raised, or was stopped"),
    "skipped": ("skipped", "something it needs failed"),
    "inline": ("inline", "computed by whoever needs it"),
    "untaken": ("not taken", "a branch that was not decided for; nothing waited for it"),
}


@attrs.frozen
class NodeView:
    """A node, ready to be written into a page; fields not described here are those of `NodeEvidence`.

    Attributes:
        anchor: id of its row in the table of nodes.
        look: ok, served, failed, skipped, inline or untaken; icon and colour go by it.
        word: what the look means, in a word.
        under: status and duration, for the second line of a cell in the graph.
        tooltip: everything about it in a few lines of text.
        blamed: the failed nodes because of which it was skipped.
        blames: the nodes that were skipped because of it.
    """

    key: str
    anchor: str
    title: str
    operator: str
    look: str
    word: str
    under: str
    tooltip: str
    reason: str
    seconds: float | None
    peak_memory: int | None
    flops: float | None
    error: ErrorEvidence | None
    blamed: tuple[Reference, ...]
    blames: tuple[Reference, ...]


@attrs.frozen
class Reference:
    """A link to the row of a node."""

    anchor: str
    title: str


@attrs.frozen
class Count:
    """How many nodes have one look."""

    look: str
    word: str
    meaning: str
    count: int


def look(node: NodeEvidence) -> str:
    """How a node is to be drawn: its status, and whether it came from the store."""
    return "served" if node.status == "ok" and node.served else node.status


def anchors(nodes: tuple[NodeEvidence, ...]) -> dict[str, str]:
    """A place to link to for each key: its first letters, or all of it where these are not enough."""
    plain = {node.key: re.sub(r"[^0-9A-Za-z]+", "-", node.key.removeprefix("sha256:")) for node in nodes}
    short = Counter(text[:12] for text in plain.values())
    return {key: "node-" + (text[:12] if short[text[:12]] == 1 else text) for key, text in plain.items()}


def _under(node: NodeEvidence) -> str:
    took = quantities.duration(node.seconds) if node.seconds is not None else ""
    words = {"served": [took, "stored"], "failed": ["failed", took], "skipped": ["skipped"], "inline": ["inline"]}
    words["untaken"] = ["not taken"]
    return ", ".join(word for word in words.get(look(node), [took or "ran"]) if word)


def _tooltip(node: NodeEvidence) -> str:
    took = f", {quantities.duration(node.seconds)}" if node.seconds is not None else ""
    lines = [node.title, node.operator, f"{LOOKS[look(node)][0]}{took}", node.reason]
    if node.error is not None:
        lines.append(f"{node.error.exception}: {node.error.message}")
    lines += [f"{name} = {text}" for name, text in node.arguments]
    return "\n".join(line for line in lines if line)


def views(evidence: Evidence) -> dict[str, NodeView]:
    """All nodes by key, in the order of computation."""
    places = anchors(evidence.nodes)
    reference = {node.key: Reference(places[node.key], node.title) for node in evidence.nodes}
    blames: dict[str, list[Reference]] = {node.key: [] for node in evidence.nodes}
    for node in evidence.nodes:
        for key in node.blamed:
            blames.setdefault(key, []).append(reference[node.key])
    found = {}
    for node in topological(evidence.nodes):
        found[node.key] = NodeView(
            key=node.key,
            anchor=places[node.key],
            title=node.title,
            operator=node.operator,
            look=look(node),
            word=LOOKS[look(node)][0],
            under=_under(node),
            tooltip=_tooltip(node),
            reason=node.reason,
            seconds=node.seconds,
            peak_memory=node.peak_memory,
            flops=node.flops,
            error=node.error,
            blamed=tuple(reference[key] for key in node.blamed if key in reference),
            blames=tuple(blames[node.key]),
        )
    return found


def counts(nodes: tuple[NodeEvidence, ...]) -> tuple[Count, ...]:
    """How many nodes there are of each look, looks without any left out."""
    found = Counter(look(node) for node in nodes)
    return tuple(Count(name, word, meaning, found[name]) for name, (word, meaning) in LOOKS.items() if found[name])
