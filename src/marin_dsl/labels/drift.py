"""Drift: a label stands for one recipe, and another one is evaluated under it; what differs, and what is done then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from marin_dsl.code_identity import diff
from marin_dsl.encoding import LeafMissing, format_digest
from marin_dsl.expression import Expression, walk
from marin_dsl.expression.annotations import Label
from marin_dsl.expression.recipe import structure
from marin_dsl.labels.equivalence import equivalence
from marin_dsl.labels.log import Entry, current
from marin_dsl.lineage.difference import differences, leaves
from marin_dsl.operator import Operator
from marin_dsl.store import Store, StoredValue

Policy = Literal["advise", "accept", "use-recorded", "strict"]
"""What is done about drift: say so and go on; move the label; serve what it stands for; fail before anything runs."""

POLICIES: tuple[Policy, ...] = ("advise", "accept", "use-recorded", "strict")


@attrs.frozen
class Drift:
    """A label was recorded for another recipe than the one that is wanted under it now.

    Attributes:
        label: the label.
        entry: what it stands for.
        root: recipe key of what is wanted.
        lines: what differs, field by field; at most twenty lines, then how many more.
        code: unified diffs of the operators whose code differs.
    """

    label: Label
    entry: Entry
    root: bytes
    lines: tuple[str, ...]
    code: tuple[str, ...]

    @property
    def headline(self) -> str:
        """What the label stands for, in one line."""
        if self.entry.adopted is not None:
            return f"{self.label} was adopted from {self.entry.adopted} ({self.entry.since})"
        return f"{self.label} was recorded for another recipe ({self.entry.since})"

    def __str__(self) -> str:
        code = (f"    {line}" for text in self.code for line in text.splitlines())
        return "\n".join([self.headline, *(f"  ≠ {line}" for line in self.lines), *code])


@attrs.frozen
class CodeDrift:
    """The code of an operator with a version is another one than that which made a value that is served.

    Attributes:
        operator: name of the operator.
        version: the version that both have.
        title: a call whose value is served although.
        diff: unified diff; empty where the earlier source was not recorded.
    """

    operator: str
    version: str
    title: str
    diff: str

    @property
    def headline(self) -> str:
        """What changed, in one line."""
        unknown = "" if self.diff else "; its earlier source was not recorded"
        return f"the code of {self.operator} changed and its version {self.version} did not{unknown}"

    def __str__(self) -> str:
        lines = (f"    {line}" for line in self.diff.splitlines())
        return "\n".join([f"{self.headline}; served: {self.title}", *lines])


class DriftRefused(ValueError):
    """A run that is strict about drift met some; nothing was run.

    Attributes:
        drifts: labels that stand for other recipes.
        code: operators whose code is another one.
    """

    def __init__(self, drifts: Sequence[Drift], code: Sequence[CodeDrift]) -> None:
        self.drifts, self.code = tuple(drifts), tuple(code)
        advice = []
        if drifts:
            advice.append("accept moves the label, use-recorded serves what it stands for; or give it another version")
        if code:
            advice.append("another version of the operator runs it anew, accept takes the values as made by this code")
        super().__init__("\n".join(["drift, so nothing was run:", *map(str, (*drifts, *code)), *advice]))

    def __reduce__(self) -> Any:
        return DriftRefused, (self.drifts, self.code)


def check_policy(policy: str) -> Policy:
    """A policy, if it is one.

    Raises:
        ValueError: it is none.
    """
    for known in POLICIES:
        if policy == known:
            return known
    raise ValueError(f"drift={policy!r}: expected one of {', '.join(map(repr, POLICIES))}")


def standing(store: Store, roots: Sequence[Expression[Any]]) -> dict[Label, Entry | None]:
    """What the labels of roots stand for now."""
    return {label: current(store, label) for label in dict.fromkeys(root.label for root in roots) if label is not None}


def drifts(
    store: Store, roots: Sequence[Expression[Any]], stand: Mapping[Label, Entry | None] | None = None
) -> list[Drift]:
    """The labels of roots that stand for other recipes.

    No drift is what a version does that moves by itself, nor a recipe that was said to stand for the recorded one.

    Args:
        store: where the labels are.
        roots: what is wanted.
        stand: what the labels stand for, if that is known.
    """
    stand = standing(store, roots) if stand is None else stand
    found: dict[Label, Drift] = {}
    for root in roots:
        entry = None if root.label is None or root.label.moves else stand[root.label]
        if root.label is None or entry is None or entry.recipe == root.key:
            continue
        said = equivalence(store, root.key)
        if said is None or said.value != format_digest(entry.value.digest):
            found.setdefault(root.label, _drift(store, root.label, entry, root))
    return list(found.values())


def _drift(store: Store, label: Label, entry: Entry, root: Expression[Any]) -> Drift:
    graph = {found.key: found for found in walk(root)}
    sources: list[Mapping[str, str]] = []

    def recipe(key: bytes) -> dict[str, Any] | None:
        return structure(graph[key]) if key in graph else store.recipe(key)

    def definitions(key: bytes, record: Mapping[str, Any]) -> Mapping[str, str]:
        operator = graph[key].operator if key in graph else None
        sources.append(operator.code.listing if isinstance(operator, Operator) else recorded_definitions(store, record))
        return sources[-1]

    changes = differences(entry.recipe, root.key, store.recipe, recipe, definitions)
    # Wherever the code of two operators differs, that of the earlier one is asked for, and then that of the later one.
    pairs = zip(sources[::2], sources[1::2], strict=True)
    code = dict.fromkeys(diff(before, after) for before, after in pairs if before and after)
    return Drift(label, entry, root.key, tuple(leaves(changes)), tuple(filter(None, code)))


def recorded_definitions(store: Store, record: Mapping[str, Any]) -> Mapping[str, str]:
    """The code of a recorded expression's operator; empty when it was not recorded, or is gone."""
    kept = record["operator"].get("listing")
    try:
        found: Mapping[str, str] = store.get(StoredValue.from_record(kept)) if kept else {}
    except LeafMissing:
        return {}
    return found


def shown(texts: Sequence[str], limit: int = 40) -> Iterator[str]:
    """The lines of unified diffs, at most `limit` and then how many more."""
    lines = [line for text in texts for line in text.splitlines()]
    yield from lines[:limit]
    if len(lines) > limit:
        yield f"… and {len(lines) - limit} more lines"
