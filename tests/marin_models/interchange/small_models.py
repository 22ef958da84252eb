"""One small config of every family, with all that the family can express away from its default, and random models."""

import functools

import attrs
import jax
import numpy as np

from marin_models import RotaryScaling, TransformerConfig
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.parameters import abstract_model, parameter_name

DENSE = TransformerConfig(
    vocabulary=33, width=16, layers=3, heads=4, key_value_heads=2, feed_forward=24, head_size=6, rope_theta=5000.0
)

SOFTMAX = MixtureOfExpertsConfig(experts=4, top_k=2, inner=12, scoring="softmax", balancing="none")
SIGMOID = MixtureOfExpertsConfig(experts=4, top_k=2, inner=12, shared_inner=24, scale=2.5)

CONFIGS = {
    "qwen3": attrs.evolve(DENSE, window=4, local_to_global=(2, 1), tied_head=True, norm_epsilon=1e-5),
    "llama": attrs.evolve(DENSE, qk_norm="none", head_size=4),
    "qwen3_moe": attrs.evolve(DENSE, mixture=attrs.evolve(SOFTMAX, renormalize=False), dense_layers=1),
    "mixtral": attrs.evolve(DENSE, mixture=SOFTMAX, qk_norm="none", window=4, local_to_global=(1, 0)),
    "olmoe": attrs.evolve(DENSE, mixture=attrs.evolve(SOFTMAX, renormalize=False), qk_norm="projection", head_size=4),
    "glm4_moe": attrs.evolve(
        DENSE, mixture=SIGMOID, dense_layers=1, rotary_fraction=0.5, head_size=8, attention_bias=True
    ),
}

LONG = attrs.evolve(CONFIGS["llama"], head_size=16, rope_theta=500.0)
LONGER = {
    "llama-linear": attrs.evolve(LONG, rotary_scaling=RotaryScaling("linear", 4.0)),
    "llama-llama3": attrs.evolve(LONG, rotary_scaling=RotaryScaling("llama3", 4.0, original_length=32)),
    "llama-yarn": attrs.evolve(LONG, rotary_scaling=RotaryScaling("yarn", 4.0, original_length=32, fast_turns=4.0)),
    "llama-yarn-parts": attrs.evolve(
        LONG,
        rotary_scaling=RotaryScaling(
            "yarn", 4.0, original_length=32, fast_turns=4.0, attention_factor=1.25, whole_pairs=False
        ),
    ),
    "glm4_moe-yarn": attrs.evolve(
        CONFIGS["glm4_moe"], head_size=16, rotary_scaling=RotaryScaling("yarn", 4.0, original_length=32, fast_turns=4.0)
    ),
}
"""Models whose context was extended from 32 tokens."""

ALL = {**CONFIGS, **LONGER}


@functools.cache
def parameters(case):
    """Random numbers everywhere, of the size that initial ones have."""
    random = np.random.default_rng(3)
    leaves, _ = jax.tree_util.tree_flatten_with_path(abstract_model(ALL[case]))
    shapes = {parameter_name(path): leaf.shape for path, leaf in leaves}
    return {name: _numbers(random, name, shape) for name, shape in shapes.items()}


def _numbers(random, name, shape):
    numbers = random.standard_normal(shape, np.float32)
    return 1 + 0.3 * numbers if name.endswith("scale") else numbers / np.float32(max(shape[-2:]) ** 0.5)


def bias(case):
    mixture = ALL[case].mixture
    if mixture is None or mixture.scoring == "softmax":
        return None
    return 0.3 * np.random.default_rng(4).standard_normal((ALL[case].routed_layers, mixture.experts), np.float32)
