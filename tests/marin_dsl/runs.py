"""Evaluations in this thread, what ran in them, and what they told."""

from __future__ import annotations

from marin_dsl import evaluate


class Ran(list):
    """Titles of what ran, in order."""

    def __call__(self, event: dict) -> None:
        if event["event"] == "running":
            self.append(event["title"])


class Watcher(list):
    """All events of an evaluation, in order."""

    __call__ = list.append

    def of(self, *kinds: str) -> list[dict]:
        return [event for event in self if event["event"] in kinds]

    def titles(self, *kinds: str) -> list[str]:
        return [event["title"] for event in self.of(*kinds)]

    @property
    def ran(self) -> int:
        return self.of("finished")[0]["ran"]


def run(expression, store, **settings):
    return evaluate(expression, store=store, debug=True, **settings)
