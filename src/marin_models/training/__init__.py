"""Training: one state, a pure step, and the loop that feeds it."""

from marin_models.packing import PADDING
from marin_models.training.config import TrainingConfig
from marin_models.training.loop import train
from marin_models.training.record import Curve, Evaluations, RouterCurve, Timing, Trained
from marin_models.training.state import TrainingState, initial_model, initial_state
from marin_models.training.step import (
    Batch,
    Program,
    Run,
    StepMetrics,
    batch_gradients,
    prediction_weights,
    train_chunk,
    train_step,
)

__all__ = [
    "PADDING",
    "Batch",
    "Curve",
    "Evaluations",
    "Program",
    "RouterCurve",
    "Run",
    "StepMetrics",
    "Timing",
    "Trained",
    "TrainingConfig",
    "TrainingState",
    "batch_gradients",
    "initial_model",
    "initial_state",
    "prediction_weights",
    "train",
    "train_chunk",
    "train_step",
]
