"""One small config of every family, with all that the family can express away from its default, and random models."""

import functools

import attrs
import jax
import numpy as np

from marin_models import TransformerConfig, flatten
from marin_models.training import initial_model

DENSE = TransformerConfig(
    vocabulary=33, width=16, layers=3, heads=4, key_value_heads=2, feed_forward=24, head_size=6, rope_theta=5000.0
)

CONFIGS = {
    "qwen3": attrs.evolve(DENSE, window=4, local_to_global=(2, 1), tied_head=True, norm_epsilon=1e-5),
    "llama": attrs.evolve(DENSE, qk_norm="none", head_size=4),
}


@functools.cache
def parameters(family):
    """Every parameter away from its initial value, so that nothing hides behind a one or a zero."""
    random = np.random.default_rng(3)
    model = initial_model(0, config=CONFIGS[family])
    return flatten(jax.tree.map(lambda leaf: leaf + 0.3 * random.standard_normal(leaf.shape, np.float32), model))


def bias(family):
    mixture = CONFIGS[family].mixture
    if mixture is None or mixture.scoring == "softmax":
        return None
    return 0.3 * np.random.default_rng(4).standard_normal((CONFIGS[family].routed_layers, mixture.experts), np.float32)
