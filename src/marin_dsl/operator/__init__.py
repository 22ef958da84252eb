"""Operators: functions whose calls build expressions, and what they accept."""

from marin_dsl.encoding.functions import tell_functions_by
from marin_dsl.operator.functions import meaning_of
from marin_dsl.operator.operator import (
    Operator,
    installed_version,
    op,
)

tell_functions_by(meaning_of)

__all__ = [
    "Operator",
    "installed_version",
    "op",
]
