"""Equinox transformers: their shape, optimizers, training, evaluation and generation."""

from marin_models.averaging import moving_average
from marin_models.counting import flops_per_token, forward_flops_per_token, parameter_count
from marin_models.divergence import Diverged
from marin_models.evaluation import document_bits
from marin_models.generation import generate
from marin_models.groups import parameter, parameter_groups
from marin_models.optimizers import OptimizerConfig, OptimizerKind
from marin_models.parameters import flatten, unflatten
from marin_models.query_key_clip import clip_queries_and_keys
from marin_models.training import Curve, Timing, Trained, TrainingConfig, train
from marin_models.transformer import Transformer, TransformerConfig
from marin_models.windows import Mixture, window_sources, windows

__all__ = [
    "Curve",
    "Diverged",
    "Mixture",
    "OptimizerConfig",
    "OptimizerKind",
    "Timing",
    "Trained",
    "TrainingConfig",
    "Transformer",
    "TransformerConfig",
    "clip_queries_and_keys",
    "document_bits",
    "flatten",
    "flops_per_token",
    "forward_flops_per_token",
    "generate",
    "moving_average",
    "parameter",
    "parameter_count",
    "parameter_groups",
    "train",
    "unflatten",
    "window_sources",
    "windows",
]
