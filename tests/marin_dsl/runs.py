"""Evaluations in this thread, and what ran in them."""

from __future__ import annotations

from marin_dsl import evaluate


class Ran(list):
    """Titles of what ran, in order."""

    def __call__(self, event: dict) -> None:
        if event["event"] == "running":
            self.append(event["title"])


def run(expression, store, **settings):
    return evaluate(expression, store=store, debug=True, **settings)
