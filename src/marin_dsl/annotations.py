"""What is said of an expression and is never part of what it is: how to evaluate it, and what people call it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Annotations:
    """How an expression is to be evaluated; never part of what it is.

    Attributes:
        resources: what a worker must have free, such as `{"CPU": 2}`.
        priority: larger runs earlier among what is ready.
        title: what people call this expression, instead of the operator with its arguments.
        source: where external data lies.
    """

    resources: Mapping[str, float] = attrs.field(factory=dict)
    priority: int = 0
    title: str | None = None
    source: str | None = None


@attrs.frozen
class Label:
    """A name and a version that a person gave to an expression."""

    name: str
    version: str

    @property
    def moves(self) -> bool:
        """Whether it follows its expression: a version ending in `dev` does, any other one is fixed."""
        return self.version.endswith("dev")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"
