"""Models, runs and data small enough for tests; equal configs share compiled programs between tests."""

import functools

import attrs
import jax
import numpy as np

from marin_models import (
    Mixture,
    MixtureOfExpertsConfig,
    OptimizerConfig,
    TrainingConfig,
    TransformerConfig,
    parameter_groups,
)
from marin_models.parameters import abstract_model
from marin_models.training import initial_model

TINY = TransformerConfig(vocabulary=17, width=8, layers=2, heads=4, key_value_heads=2, feed_forward=12, head_size=4)
ROUTED = attrs.evolve(
    TINY,
    layers=3,
    dense_layers=1,
    rotary_fraction=0.5,
    mixture=MixtureOfExpertsConfig(experts=4, top_k=2, inner=6, shared_inner=10, scale=2.5, router_z_loss=0.1),
)
ADAMW = OptimizerConfig("adamw", 0.02)
MUON = OptimizerConfig("muon", 0.02, adam_learning_rate=0.01)
SHORT = TrainingConfig(steps=13, batch=4, length=6, seed=3)


@functools.cache
def tiny_model(seed=0, config=TINY):
    return initial_model(seed, config=config)


def perturbed(model, seed=5):
    """Every parameter away from its initial value, so that no term hides behind a one or a zero."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + 0.3 * random.standard_normal(leaf.shape, np.float32), model)


@functools.cache
def random_model(config, seed=5):
    """Every parameter drawn anew, so that no term hides behind a one or a zero; quicker than to compile a beginning."""
    random, shapes = np.random.default_rng(seed), abstract_model(config)

    def draw(group, leaf):
        return jax.numpy.float32((group == "norm") + 0.4 * random.standard_normal(leaf.shape))

    return jax.tree.map(draw, parameter_groups(shapes), shapes)


def counting_stream(size=200, vocabulary=17):
    return (np.arange(size) % vocabulary).astype(np.uint16)


def tiny_mixture():
    return Mixture({"up": counting_stream(), "down": counting_stream()[::-1]}, {"up": 3, "down": 1})
