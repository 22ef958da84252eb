"""The router of a mixture of experts: which experts each token visits, and how much each counts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from marin_kernels.precision import exact_product
from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.mixture_config import MixtureOfExpertsConfig

SMALLEST_SUM = 1e-20  # as in Glm4Moe: scores that all underflow give weights of zero, not of NaN


class Routed(NamedTuple):
    """Choices of a router for a batch of tokens; all numbers are fp32.

    Attributes:
        experts: the chosen experts of each token, most wanted first.
        weights: how much each of them counts in the output; 0 for tokens that are not valid. Gradients reach the
            router through these.
        logits: of every expert.
        scores: what ``scoring`` makes of the logits.
        preferences: what the bias was added to: scores or logits, as ``balance_on`` says. No gradient.
        threshold: the largest biased preference that was not chosen; minus infinity if all were. No gradient.
    """

    experts: Int[Array, "tokens top_k"]
    weights: Float[Array, "tokens top_k"]
    logits: Float[Array, "tokens experts"]
    scores: Float[Array, "tokens experts"]
    preferences: Float[Array, "tokens experts"]
    threshold: Float[Array, " tokens"]


class Router(eqx.Module):
    """A linear map from hidden states to logits of experts, in fp32, and the choice that follows from them."""

    weight: Float[Array, "*layers width experts"] = parameter("router")
    config: MixtureOfExpertsConfig = eqx.field(static=True)

    def __init__(self, config: MixtureOfExpertsConfig, width: int, *, scale: float, key: Key[Array, ""]):
        self.weight = initial_matrix(key, width, config.experts, scale=scale)
        self.config = config

    def __call__(
        self,
        x: Float[Array, "tokens width"],
        bias: Float[Array, " experts"] | None = None,
        valid: Bool[Array, " tokens"] | None = None,
    ) -> Routed:
        """Route each token by itself; arguments as for `route`."""
        logits = exact_product("td,de->te", x.astype(jnp.float32), self.weight)
        return route(logits, bias, valid, config=self.config)


def route(
    logits: Float[Array, "tokens experts"],
    bias: Float[Array, " experts"] | None = None,
    valid: Bool[Array, " tokens"] | None = None,
    *,
    config: MixtureOfExpertsConfig,
) -> Routed:
    """Choose the ``top_k`` experts of each token by biased preference, and weigh them by their unbiased scores.

    Args:
        logits: of every expert, fp32.
        bias: added to the preferences for the choice alone; None: zeros. No gradient flows to it.
        valid: tokens that are more than padding; None: all. The others have weights of 0.
        config: scoring, number of choices, normalization of weights and what the bias is added to.

    Returns:
        Choices and weights; of equal preferences, the expert of the lower number comes first.

    Source: DeepSeek-V3 (arXiv 2412.19437, equations 13 to 16), and Glm4Moe in Hugging Face's transformers.
    """
    scores = jax.nn.softmax(logits) if config.scoring == "softmax" else jax.nn.sigmoid(logits)
    preferences = jax.lax.stop_gradient(scores if config.balance_on == "scores" else logits)
    biased = preferences if bias is None else preferences + jax.lax.stop_gradient(bias)
    experts, left = _largest(biased, config.top_k)
    weights = jnp.stack([_entry(scores, index) for index in experts], axis=-1)
    if config.renormalize:
        weights = weights / (jnp.sum(weights, axis=-1, keepdims=True) + SMALLEST_SUM)
    weights = config.scale * weights
    if valid is not None:
        weights = jnp.where(valid[:, None], weights, 0)
    return Routed(jnp.concatenate(experts, axis=-1), weights, logits, scores, preferences, jnp.max(left, axis=-1))


def router_z_loss(
    logits: Float[Array, "tokens experts"], valid: Bool[Array, " tokens"] | None = None
) -> Float[Array, ""]:
    """Mean over valid tokens of the squared log-normalizer of the logits; 0 if there is none.

    Source: Zoph et al. 2022 (arXiv 2202.08906, equation 5).
    """
    return mean_of_valid(jax.nn.logsumexp(logits, axis=-1) ** 2, valid)


def mean_of_valid(
    values: Float[Array, "tokens *rest"], valid: Bool[Array, " tokens"] | None = None
) -> Float[Array, "*rest"]:
    """Mean over valid tokens, None: over all; 0 if there is none."""
    if valid is None:
        return jnp.mean(values, axis=0)
    masked = jnp.where(jnp.expand_dims(valid, range(1, values.ndim)), values, 0)
    return jnp.sum(masked, axis=0) / jnp.maximum(jnp.sum(valid), 1)


def _largest(values: Array, count: int) -> tuple[list[Array], Array]:
    """The places [rows, 1] of the largest of each row, one after the other, and the values without them.

    `jax.lax.top_k` would do, but on CPU it is at times lowered to a sort of whole rows, ten times slower.
    """
    places, left = [], jax.lax.optimization_barrier(values)  # a value computed twice might not equal itself
    everywhere = jnp.arange(values.shape[-1])
    for _ in range(count):
        peak = jnp.max(left, axis=-1, keepdims=True)
        place = jnp.min(jnp.where(left == peak, everywhere, values.shape[-1] - 1), axis=-1, keepdims=True)
        left = jnp.where(everywhere == place, -jnp.inf, left)
        places.append(place)
    return places, left


def _entry(values: Array, place: Array) -> Array:
    """One entry of each row; its gradient is a product with a mask, where that of a gather would be a scatter."""
    return jnp.sum(jnp.where(jnp.arange(values.shape[-1]) == place, values, 0), axis=-1)
