"""A run: what is missing is computed somewhere, and what happens is recorded and told."""

from marin_dsl.evaluate.evaluate import (
    Interrupted,
    Plan,
    evaluate,
    plan,
)

__all__ = [
    "Interrupted",
    "Plan",
    "evaluate",
    "plan",
]
