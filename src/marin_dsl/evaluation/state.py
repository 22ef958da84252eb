"""What is known of a run from its events: its live view and the replay of its log are the same reduction of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from marin_dsl.evaluation.events import (
    Conflicted,
    Continued,
    Drifted,
    Event,
    Finished,
    Found,
    Interrupted,
    Planned,
    Progress,
    Retried,
    Running,
    Settled,
    Started,
    event_of,
)


@attrs.define
class Active:
    """A call that is running.

    Attributes:
        title: what people call it.
        since: when it began, in seconds since the epoch.
        progress: what it said last about how far it is.
    """

    title: str
    since: float
    progress: Mapping[str, Any] | None = None


@attrs.define
class State:
    """What is known of a run after some of its events.

    Attributes:
        planned: what was known when the run began.
        nodes: how many expressions (inline ones aside) were looked up so far.
        hits: how many of them were served by their recipes.
        operators: how many were to run, by operator.
        started: where the run takes place.
        running: calls that are running, by call key.
        settled: nodes that have their outcomes, by recipe key.
        tally: how many of these there are by `how`.
        drifted: labels that stand for other recipes.
        conflicts: calls that came to something else than what is kept of them.
        ending: how the run ended, if it did.
        last: when the last event happened.
    """

    planned: Planned = attrs.field(factory=Planned)
    nodes: int = 0
    hits: int = 0
    operators: Counter[str] = attrs.field(factory=Counter)
    started: Started | None = None
    running: dict[str, Active] = attrs.field(factory=dict)
    settled: dict[str, Settled] = attrs.field(factory=dict)
    tally: Counter[str] = attrs.field(factory=Counter)
    drifted: list[Drifted] = attrs.field(factory=list)
    conflicts: list[Conflicted] = attrs.field(factory=list)
    ending: Finished | Interrupted | None = None
    last: float = 0.0
    _ended: dict[str, float] = attrs.field(factory=dict)

    def after(self, event: Event) -> State:
        """The state after one more event: this one, moved on, so that a long run costs the same at every step."""
        self.last = max(self.last, event.at)
        match event:
            case Found():
                self._demand(event)
            case Started():
                self.started = event
            case Running() if event.at >= self._ended.get(event.call, 0.0):  # its news may come after the outcome's
                self.running[event.call] = Active(event.title, event.at)
            case Progress() if event.call in self.running:
                self.running[event.call].progress = event.content
            case Continued() | Retried():
                self._end(event.call, event.at)
            case Settled():
                self._settle(event)
            case Conflicted():
                self.conflicts.append(event)
            case Drifted():
                self.drifted.append(event)
            case Finished() | Interrupted():
                self.ending, self.running = event, {}
        return self

    def _demand(self, event: Found) -> None:
        if isinstance(event, Planned):
            self.planned = event
        self.nodes, self.hits = self.nodes + event.nodes, self.hits + event.hits
        self.operators.update(event.operators)

    def _settle(self, event: Settled) -> None:
        earlier = self.settled.get(event.recipe)
        if earlier is not None:
            self.tally[earlier.how] -= 1
        self.settled[event.recipe] = event
        self.tally[event.how] += 1
        if event.call is not None:
            self._end(event.call, event.at)

    def _end(self, call: str, at: float) -> None:
        self._ended[call] = at
        self.running.pop(call, None)

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes (inline ones aside) are where: served, run, kept failures, skipped, open."""
        found = {
            "served": self.hits + self.tally["cutoff"],
            "run": self.tally["run"],
            "kept": self.tally["kept"],
            "skipped": self.tally["skipped"],
        }
        return {**found, "open": max(0, self.nodes - sum(found.values()))}

    @property
    def failed(self) -> list[Settled]:
        """The nodes that failed in this run."""
        return [found for found in self.settled.values() if found.event == "failed" and found.how == "run"]


def replay(lines: Iterable[str | bytes]) -> State:
    """The state that a log leads to; a torn or damaged line is passed over, and so is what is not known here."""
    state = State()
    for line in lines:
        event = _parsed(line)
        if event is not None:
            state = state.after(event)
    return state


def _parsed(line: str | bytes) -> Event | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event_of(record) if isinstance(record, dict) else None
