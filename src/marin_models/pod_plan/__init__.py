"""What a training step costs on devices that are not here: compiled by their own compiler, read from its program."""

from marin_models.pod_plan.chips import CHIPS, Chip, chip
from marin_models.pod_plan.collectives import Collective, collectives
from marin_models.pod_plan.plan import Plan, Request, plan

__all__ = ["CHIPS", "Chip", "Collective", "Plan", "Request", "chip", "collectives", "plan"]
