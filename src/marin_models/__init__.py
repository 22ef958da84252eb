"""Equinox transformers: their shape, optimizers, training, evaluation and generation."""

from marin_models.averaging import moving_average
from marin_models.checkpoints import CheckpointDamaged, CheckpointMismatch, Checkpoints
from marin_models.counting import active_parameter_count, flops_per_token, forward_flops_per_token, parameter_count
from marin_models.divergence import Diverged
from marin_models.evaluation import document_bits
from marin_models.generation import Continuation, generate, generate_batch
from marin_models.groups import parameter, parameter_groups
from marin_models.mesh import make_mesh, parameter_shardings
from marin_models.meters import Throughput, known_peak_flops, measured_peak_flops, throughput
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.optimizers import OptimizerConfig, OptimizerKind
from marin_models.parameters import flatten, unflatten
from marin_models.query_key_clip import clip_queries_and_keys
from marin_models.rotary_scaling import RotaryScaling
from marin_models.sizes import SIZES, Size, size
from marin_models.stopping import Stops
from marin_models.training import Curve, Evaluations, RouterCurve, Timing, Trained, TrainingConfig, train
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig
from marin_models.windows import Mixture, window_sources, windows

__all__ = [
    "SIZES",
    "CheckpointDamaged",
    "CheckpointMismatch",
    "Checkpoints",
    "Continuation",
    "Curve",
    "Diverged",
    "Evaluations",
    "Mixture",
    "MixtureOfExpertsConfig",
    "OptimizerConfig",
    "OptimizerKind",
    "RotaryScaling",
    "RouterCurve",
    "Size",
    "Stops",
    "Throughput",
    "Timing",
    "Trained",
    "TrainingConfig",
    "Transformer",
    "TransformerConfig",
    "active_parameter_count",
    "clip_queries_and_keys",
    "document_bits",
    "flatten",
    "flops_per_token",
    "forward_flops_per_token",
    "generate",
    "generate_batch",
    "known_peak_flops",
    "make_mesh",
    "measured_peak_flops",
    "moving_average",
    "parameter",
    "parameter_count",
    "parameter_groups",
    "parameter_shardings",
    "size",
    "throughput",
    "train",
    "unflatten",
    "window_sources",
    "windows",
]
