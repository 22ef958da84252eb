"""Labels: names and versions that people give, what they stand for, and what is said when a recipe is another one."""

from marin_dsl.labels.adoption import CannotAdopt, adopt
from marin_dsl.labels.drift import CodeDrift, Drift, DriftRefused, Policy, check_policy, drifts, standing
from marin_dsl.labels.equivalence import CannotStandFor, Equivalence, equivalence, same, undo
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
from marin_dsl.labels.recalling import LabelMissing, recall, recalled, recorded

__all__ = [
    "CannotAdopt",
    "CannotStandFor",
    "CodeDrift",
    "Drift",
    "DriftRefused",
    "Entry",
    "Equivalence",
    "Happening",
    "LabelConflict",
    "LabelFixed",
    "LabelMissing",
    "LabelMoved",
    "Policy",
    "adopt",
    "check_label",
    "check_policy",
    "check_unique",
    "current",
    "drifts",
    "entries",
    "equivalence",
    "known",
    "last_run",
    "log",
    "move",
    "read_label",
    "recall",
    "recalled",
    "recorded",
    "remember",
    "same",
    "standing",
    "undo",
]
