"""What can be said to `evaluate` besides the roots, as types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from marin_dsl.labels.drift import Policy
from marin_dsl.store import Store

Watch = Callable[[dict[str, Any]], None]
"""Is told what happens during an evaluation: events, each a dict with its kind under `event`."""


class EvaluationSettings(TypedDict, total=False):
    """The named arguments of `evaluate`, which describes them."""

    store: Store | str | None
    workers: int | None
    scheduler: str | None
    debug: bool
    keep_failures: bool
    verify_sample: float
    drift: Policy
    watch: Watch | None
    target: str
    note: str
