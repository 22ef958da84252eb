"""Where a value came from, what came of it, and what differs: read from records alone."""

from marin_dsl.lineage.lineage import (
    Ancestor,
    Became,
    Branch,
    NotRecorded,
    ancestors,
    at_path,
    became,
    below,
    blamed,
    dot,
    every,
    folded,
    origins,
    outcomes,
    recorded,
    uses,
)

__all__ = [
    "Ancestor",
    "Became",
    "Branch",
    "NotRecorded",
    "ancestors",
    "at_path",
    "became",
    "below",
    "blamed",
    "dot",
    "every",
    "folded",
    "origins",
    "outcomes",
    "recorded",
    "uses",
]
