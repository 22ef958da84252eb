"""Labels: names and versions that people give, what they stand for, and what is said when a recipe is another one."""

from marin_dsl.labels.log import (
    Entry,
    Happening,
    LabelFixed,
    LabelMoved,
    current,
    entries,
    known,
    last_run,
    log,
    move,
    remember,
)
from marin_dsl.labels.naming import LabelConflict, check_label, check_unique, read_label
from marin_dsl.labels.recalling import LabelMissing, recall, recalled

__all__ = [
    "Entry",
    "Happening",
    "LabelConflict",
    "LabelFixed",
    "LabelMissing",
    "LabelMoved",
    "check_label",
    "check_unique",
    "current",
    "entries",
    "known",
    "last_run",
    "log",
    "move",
    "read_label",
    "recall",
    "recalled",
    "remember",
]
