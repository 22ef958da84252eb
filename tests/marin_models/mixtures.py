"""Routers to test: configs, logits with popular experts, and what a router is, written out in numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from marin_models.balancing import measured_bias
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.router import route

SIX = MixtureOfExpertsConfig(6, 2, 8)


def popular_logits(tokens, experts, seed=0):
    """Standard normal logits, and a standard normal popularity of each expert."""
    random = np.random.default_rng(seed)
    return jnp.asarray(random.standard_normal((tokens, experts)) + random.standard_normal(experts), jnp.float32)


def loads(experts, valid, count):
    """How often each expert was chosen by valid tokens."""
    chosen = (experts[:, :, None] == jnp.arange(count)) & valid[:, None, None]
    return jnp.sum(chosen, axis=(0, 1), dtype=jnp.int32)


@functools.partial(jax.jit, static_argnames="config")
def routed(logits, bias, valid, *, config):
    """What a router does with a batch, its load, and the bias that the batch asks for."""
    found = route(logits, bias, valid, config=config)
    load = loads(found.experts, valid, config.experts)
    return found, load, measured_bias(found, load, bias, valid, config=config)


def plain_scores(logits, config):
    logits = np.asarray(logits, np.float64)
    if config.scoring == "sigmoid":
        return 1 / (1 + np.exp(-logits))
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def plain_weights(logits, experts, config):
    """Combine weights of chosen experts, as the models of other frameworks compute them, in double precision."""
    weights = np.take_along_axis(plain_scores(logits, config), np.asarray(experts), axis=-1)
    return config.scale * (weights / weights.sum(-1, keepdims=True) if config.renormalize else weights)
