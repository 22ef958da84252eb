"""What a run does about drift: looked for before anything runs, told or refused, and labels moved at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import attrs

from marin_dsl import labels
from marin_dsl.evaluation import announcements
from marin_dsl.expression import Expression
from marin_dsl.labels.drift import Drift, DriftRefused, Policy
from marin_dsl.planning.code_drift import Found, accept, code_drift
from marin_dsl.planning.resolution import Resolution
from marin_dsl.store import Store, StoredValue, StoreUnavailable


class Drifting:
    """The labels of a run's roots, and the policy that they are treated by.

    Args:
        store: where the labels are.
        roots: what is wanted.
        policy: what is done about drift.

    Attributes:
        wanted: what is evaluated: the roots, or what their labels stand for.
    """

    def __init__(self, store: Store, roots: tuple[Expression[Any], ...], policy: Policy) -> None:
        self.store, self.policy = store, policy
        self.standing = labels.standing(store, roots)
        self.drifts = labels.drifts(store, roots, self.standing)
        self.wanted = labels.recorded(roots, self.drifts) if policy == "use-recorded" else roots
        self.code = Found()

    def look(self, resolution: Resolution) -> None:
        """Look for drift of code below what is served, and decide whether the run may go on.

        Raises:
            DriftRefused: there is drift, and the policy is strict.
        """
        self.code = code_drift(resolution)
        if self.policy == "strict" and (self.drifts or self.code.changed):
            raise DriftRefused(self.drifts, self.code.changed)
        # Where no operator was found to have changed, its change was accepted for another root.
        if self.policy == "accept" or (self.code.whole and not self.code.changed):
            with contextlib.suppress(StoreUnavailable):  # it is said again the next time
                accept(resolution, self.code)

    def look_again(self, resolution: Resolution) -> Iterator[dict[str, Any]]:
        """Look at what was served while the run went on, below what it made; what is told of it."""
        found, told = code_drift(resolution), {each.operator for each in self.code.changed}
        fresh = tuple(each for each in found.changed if each.operator not in told)
        self.code = attrs.evolve(found, changed=(*self.code.changed, *fresh))
        if self.policy == "accept" or (found.whole and not found.changed):
            with contextlib.suppress(StoreUnavailable):
                accept(resolution, found)
        if self.policy != "accept":
            yield from map(announcements.code_drifted, fresh)

    def events(self) -> Iterator[dict[str, Any]]:
        """What is told before the run begins."""
        if self.policy != "accept":
            yield from (announcements.drifted(found, self.policy) for found in self.drifts)
            yield from map(announcements.code_drifted, self.code.changed)

    @property
    def found(self) -> bool:
        """Whether there is drift, of recipes or of code."""
        return bool(self.drifts or self.code.changed)

    def moves(self, root: Expression[Any], value: bytes) -> bool:
        """Whether the label of a root is to stand for the value that the root came to."""
        assert root.label is not None
        entry = self.standing[root.label]
        if entry is None:
            return True
        follows = self.policy == "accept" or root.label.moves
        return follows and (entry.recipe, entry.value.digest) != (root.key, value)

    def move(self, root: Expression[Any], value: StoredValue, run: str) -> Drift | None:
        """Let the label of a root stand for the value that it came to; drift, if somebody else came first.

        Whoever said that the label is to move, or gave it a version that does, has it moved after all.
        """
        label = root.label
        assert label is not None
        entry, follows = self.standing[label], self.policy == "accept" or label.moves
        try:
            after = None if follows else 0 if entry is None else entry.number
            self.standing[label] = labels.move(self.store, label, root.key, value, run, after=after)
        except labels.LabelMoved:
            self.standing[label] = labels.current(self.store, label)
            return next(iter(labels.drifts(self.store, (root,), self.standing)), None)
        return None
