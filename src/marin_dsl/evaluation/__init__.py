"""A run: what is missing is computed somewhere, and what happens is recorded and told."""

from marin_dsl.evaluation.evaluate import (
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
