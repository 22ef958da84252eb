"""One node, once: look up, run, commit, and answer with an outcome."""

from marin_dsl.worker.worker import (
    attempt_of,
    execute,
    failure_of,
    refuse,
)

__all__ = [
    "attempt_of",
    "execute",
    "failure_of",
    "refuse",
]
