"""Operators: functions whose calls build expressions, and what they accept."""

from marin_dsl.operator.operator import (
    Operator,
    installed_version,
    op,
)

__all__ = [
    "Operator",
    "installed_version",
    "op",
]
