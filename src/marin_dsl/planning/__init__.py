"""What is there, what will run, and why; nothing is run."""

from marin_dsl.planning.plan import (
    Plan,
    plan_of,
)

__all__ = [
    "Plan",
    "plan_of",
]
