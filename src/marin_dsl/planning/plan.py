"""What an evaluation would do, as data: the resolution as far as it goes without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import attrs

from marin_dsl.expression import Expression
from marin_dsl.expression.inline import Choice
from marin_dsl.expression.recipe import title
from marin_dsl.labels.drift import CodeDrift, Drift
from marin_dsl.planning.node import How
from marin_dsl.planning.resolution import Resolution


class Titles(Sequence[str]):
    """Titles of expressions, spelled when they are looked at; of what is served mostly the number is."""

    def __init__(self, expressions: Sequence[Expression[Any]]) -> None:
        self._expressions = tuple(expressions)

    def __len__(self) -> int:
        return len(self._expressions)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Titles: ...
    def __getitem__(self, place: int | slice) -> str | Titles:
        found = self._expressions[place]
        return Titles(found) if isinstance(found, tuple) else title(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Titles | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@attrs.frozen
class Plan:
    """What an evaluation of some roots would do now, as data; printing it tells a person.

    Attributes:
        hits: titles of expressions whose values are there.
        runs: expressions that would run, inputs first: recipe key, title, and whether a cut-off may still spare them.
        kept: titles of those whose recorded failure would be served.
        skipped: titles of those that would be skipped.
        deciding: titles of those of which it is not known yet what they go on with, so that more may follow.
        reasons: why each of the `runs` would run.
        drifts: labels of roots that stand for other recipes.
        code: operators whose code changed though their version did not, and whose values are served.
    """

    hits: Sequence[str]
    runs: tuple[tuple[bytes, str, bool], ...]
    kept: tuple[str, ...]
    skipped: tuple[str, ...]
    deciding: tuple[str, ...]
    reasons: Mapping[bytes, str]
    drifts: tuple[Drift, ...] = ()
    code: tuple[CodeDrift, ...] = ()

    def __str__(self) -> str:
        then = [f"  then what {title} goes on with" for title in self.deciding]
        drift = map(str, (*self.drifts, *self.code))
        return "\n".join([self.counts, *(self._line(*run) for run in self.runs), *then, *drift])

    @property
    def counts(self) -> str:
        """How many nodes would run, be served, keep their failures and be skipped, in words."""
        parts = [f"{len(self.runs)} to run", f"{len(self.hits)} served"]
        others = {"failures kept": len(self.kept), "skipped": len(self.skipped)}
        counted = ", ".join(parts + [f"{number} {what}" for what, number in others.items() if number])
        return f"{counted}; more may follow" if self.deciding else counted

    def _line(self, key: bytes, name: str, undecided: bool) -> str:
        spared = "; spared if its inputs come out equal" if undecided and key in self.reasons else ""
        return f"  run {name}  ({self.reasons.get(key, 'not evaluated before')}{spared})"


def plan_of(resolution: Resolution, reasons: Mapping[bytes, str]) -> Plan:
    """The plan that a resolution stands for before anything has run."""
    known = list(resolution.in_order())
    nodes = [node for node in known if not node.inline]
    deciding = [node for node in known if isinstance(node.expression.operator, Choice) and node.how is None]

    def titles(*hows: How) -> tuple[str, ...]:
        return tuple(node.title for node in nodes if node.how in hows)

    runs = tuple((node.expression.key, node.title, node.how is None) for node in nodes if node.how in ("run", None))
    return Plan(
        Titles([node.expression for node in nodes if node.how in ("hit", "cutoff")]),
        runs,
        titles("kept"),
        titles("skipped"),
        tuple(node.title for node in deciding),
        reasons,
    )
