"""Balancing the load of experts: by quantiles, by sign, or by a loss; the bias is data, one step behind."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.router import Routed, mean_of_valid


class BalancingState(NamedTuple):
    """The biases of all routed layers, fp32; part of the training state and of its checkpoints.

    A batch is routed by the bias in force, and what is measured on it waits. To route a batch by what was measured on
    it would tell each token about those after it.

    Attributes:
        in_force: what routes now, in training and evaluation.
        pending: what was measured last; in force from the next step.
    """

    in_force: Float[Array, "layers experts"]
    pending: Float[Array, "layers experts"]


def initial_balancing(layers: int, experts: int) -> BalancingState:
    """No bias, in force and pending."""
    zeros = jnp.zeros((layers, experts), jnp.float32)
    return BalancingState(zeros, zeros)


def begin_step(state: BalancingState) -> BalancingState:
    """The state while a training step runs: what was pending is in force."""
    return BalancingState(state.pending, state.pending)


def end_step(state: BalancingState, next_bias: Float[Array, "layers experts"]) -> BalancingState:
    """The state after a training step: what it measured is pending; ``next_bias`` is of `RouterStatistics`."""
    return state._replace(pending=next_bias)


def measured_bias(
    routed: Routed,
    load: Int[Array, " experts"],
    bias: Float[Array, " experts"] | None,
    valid: Bool[Array, " tokens"] | None = None,
    *,
    config: MixtureOfExpertsConfig,
) -> Float[Array, " experts"]:
    """The bias that a batch asks for, to route the next one; no gradient flows through it.

    Args:
        routed: how the batch was routed.
        load: assignments of valid tokens to each expert, in the whole batch.
        bias: what routed the batch; None: zeros.
        valid: tokens that are more than padding; None: all.
        config: how to balance.

    Returns:
        A bias of mean 0 (to add a constant to all experts changes no choice); the old one if no token was valid or
        a number was not finite, or if ``balancing`` moves no bias.
    """
    bias = jnp.zeros(config.experts, jnp.float32) if bias is None else jax.lax.stop_gradient(bias)
    if config.balancing == "quantiles":
        margins = routed.preferences - routed.threshold[:, None]
        found = -upper_quantiles(margins, valid, config.top_k / config.experts, bins=config.quantile_bins)
        return jnp.where(jnp.all(jnp.isfinite(found)), found - jnp.mean(found), bias)
    return sign_bias(load, bias, config.sign_step) if config.balancing == "sign" else bias


def sign_bias(
    load: Int[Array, "*layers experts"], bias: Float[Array, "*layers experts"], step: float
) -> Float[Array, "*layers experts"]:
    """The bias after one step of fixed size against each expert's excess of load, its mean taken off.

    Without any load it stays.

    Source: Wang et al. 2024 (arXiv 2408.15664, algorithm 1).
    """
    excess = load - jnp.mean(load, axis=-1, keepdims=True, dtype=jnp.float32)
    moved = bias - step * jnp.sign(excess)
    return jnp.where(jnp.any(load > 0, axis=-1, keepdims=True), moved - jnp.mean(moved, axis=-1, keepdims=True), bias)


def upper_quantiles(
    values: Float[Array, "tokens experts"],
    valid: Bool[Array, " tokens"] | None,
    share: float | Float[Array, ""],
    *,
    bins: int | None,
) -> Float[Array, " experts"]:
    """For each expert, the number that a share of the valid tokens' values reaches or exceeds; NaN if none is valid.

    Args:
        values: one per token and expert, fp32.
        valid: tokens that count; None: all.
        share: above 0 and below 1.
        bins: of a histogram between each expert's least and largest value, interpolated inside the bin; equal bit for
            bit on any number of shards. None: the exact order statistic, by sorting.
    """
    counted = jnp.ones(values.shape[0], bool) if valid is None else valid
    target = share * jnp.sum(counted)
    if bins is None:
        ranked = -jnp.sort(jnp.where(counted[:, None], -values, jnp.inf), axis=0)
        rank = jnp.clip(jnp.ceil(target).astype(jnp.int32), 1, values.shape[0]) - 1
        return jnp.where(target > 0, ranked[rank], jnp.nan)
    return _histogram_quantiles(values, counted, target, bins)


def _histogram_quantiles(values: Array, counted: Array, target: Array, bins: int) -> Array:
    """`upper_quantiles` by a search in the cumulative counts of a histogram, which is itself never built.

    Ten sums of whole numbers find the bin among a thousand: neither a scatter, slow on a TPU, nor a table of experts
    times bins to add up between shards.
    """
    lowest = jnp.min(jnp.where(counted[:, None], values, jnp.inf), axis=0)
    extent = jnp.max(jnp.where(counted[:, None], values, -jnp.inf), axis=0) - lowest
    place = (values - lowest) / jnp.where(extent > 0, extent, 1)
    place = jnp.where(counted[:, None], jnp.clip((place * bins).astype(jnp.int32), 0, bins - 1), -1)

    def at_or_above(edge: Array) -> Array:
        return jnp.sum(place >= edge, axis=0, dtype=jnp.int32)

    def halve(_, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket  # at or above `low` there are enough, at or above `high` too few
        middle = (low + high) // 2
        enough = at_or_above(middle) >= target
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    start = jnp.zeros_like(lowest, jnp.int32), jnp.full_like(lowest, bins, jnp.int32)
    low, high = jax.lax.fori_loop(0, (bins - 1).bit_length(), halve, start)
    reached = at_or_above(low)
    inside = (reached - target) / jnp.maximum(reached - at_or_above(high), 1)
    return jnp.where(target > 0, lowest + extent * ((low + inside) / bins), jnp.nan)


def auxiliary_loss(
    routed: Routed,
    load: Int[Array, " experts"],
    valid: Bool[Array, " tokens"] | None = None,
    *,
    config: MixtureOfExpertsConfig,
) -> Float[Array, ""]:
    """``experts * sum(share of load * mean probability)``: 1 when both are even; 0 if no token is valid.

    The gradient flows to the probabilities: scores that add up to one for each token.

    Args:
        routed: how the batch was routed.
        load: assignments of valid tokens to each expert, in the whole batch.
        valid: tokens that are more than padding; None: all.
        config: how logits become scores.

    Source: Fedus et al. 2021 (arXiv 2101.03961, equation 4); over the whole batch as in Qiu et al. 2025 (arXiv
    2501.11873); sigmoid scores as in DeepSeek-V3 (arXiv 2412.19437, equation 19).
    """
    probabilities = routed.scores
    if config.scoring == "sigmoid":
        probabilities = probabilities / jnp.maximum(jnp.sum(probabilities, axis=-1, keepdims=True), 1e-20)
    return config.experts * jnp.sum(load_shares(load) * mean_of_valid(probabilities, valid))


def load_shares(load: Int[Array, "*layers experts"]) -> Float[Array, "*layers experts"]:
    """What share of all assignments each expert has; zeros if there are none."""
    return load / jnp.maximum(jnp.sum(load, axis=-1, keepdims=True), 1).astype(jnp.float32)


def max_violation(load: Int[Array, "*layers experts"]) -> Float[Array, "*layers"]:
    """By how much the busiest expert exceeds the mean load, as a share of the mean (MaxVio); 0 without any load.

    Source: Wang et al. 2024 (arXiv 2408.15664, equation 4).
    """
    return jnp.maximum(jnp.max(load_shares(load), axis=-1) * load.shape[-1] - 1, 0)


def load_entropy(load: Int[Array, "*layers experts"]) -> Float[Array, "*layers"]:
    """Entropy of the shares of load, nats: the logarithm of the number of experts when all are equal."""
    return jnp.sum(jax.scipy.special.entr(load_shares(load)), axis=-1)
