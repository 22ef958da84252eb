"""Checkpoints: a tree of arrays on the disk, complete or absent, and back onto whatever mesh."""

from marin_models.checkpoints.folder import Checkpoints, Restored, Written
from marin_models.checkpoints.manifest import CheckpointDamaged, CheckpointMismatch

__all__ = ["CheckpointDamaged", "CheckpointMismatch", "Checkpoints", "Restored", "Written"]
