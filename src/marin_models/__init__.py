"""Equinox transformers: their shape, optimizers, training, evaluation and generation."""

from marin_models.counting import (
    active_parameter_count,
    flops_per_token,
    forward_flops_per_token,
    parameter_count,
)
from marin_models.divergence import Diverged
from marin_models.evaluation import document_bits
from marin_models.generation import generate
from marin_models.groups import parameter, parameter_groups
from marin_models.mesh import make_mesh, parameter_shardings
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.optimizers import OptimizerConfig, OptimizerKind
from marin_models.parameters import flatten, unflatten
from marin_models.sizes import SIZES, Size, size
from marin_models.training import Curve, Timing, Trained, TrainingConfig, train
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig
from marin_models.windows import Mixture, window_sources, windows

__all__ = [
    "SIZES",
    "Curve",
    "Diverged",
    "Mixture",
    "MixtureOfExpertsConfig",
    "OptimizerConfig",
    "OptimizerKind",
    "Size",
    "Timing",
    "Trained",
    "TrainingConfig",
    "Transformer",
    "TransformerConfig",
    "active_parameter_count",
    "document_bits",
    "flatten",
    "flops_per_token",
    "forward_flops_per_token",
    "generate",
    "make_mesh",
    "parameter",
    "parameter_count",
    "parameter_groups",
    "parameter_shardings",
    "size",
    "train",
    "unflatten",
    "window_sources",
    "windows",
]
