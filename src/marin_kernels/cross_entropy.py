"""Cross-entropy of a linear head that never holds the logits of all tokens at once."""

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels.cross_entropy_blocked import HELD, blocked_cross_entropy, cap_slope, capped
from marin_kernels.implementations import Obstacle, choose
from marin_kernels.manual_axes import equally_varying, zeros_like_varying
from marin_kernels.precision import exact_product

CrossEntropyImplementation = Literal["default", "reference", "chunked", "blocked"]

CHUNK = 1024  # tokens whose logits are held at once; at a vocabulary of 2,048 they just fit a core's second-level cache

_OBSTACLES: dict[str, Obstacle] = dict.fromkeys(("reference", "chunked", "blocked"), lambda hidden, head: None)


class LinearCrossEntropy(NamedTuple):
    """Two weighted means over tokens, both in nats.

    Attributes:
        loss: cross-entropy plus z-loss; this is what gradients flow through.
        cross_entropy: cross-entropy alone, for reporting; its gradient is zero.
    """

    loss: Float[Array, ""]
    cross_entropy: Float[Array, ""]


def linear_cross_entropy(
    hidden: Float[Array, "tokens width"],
    head: Float[Array, "width vocabulary"],
    targets: Int[Array, " tokens"],
    weights: Float[Array, " tokens"] | None = None,
    z_loss: float | Float[Array, ""] = 0.0,
    *,
    soft_cap: float | None = None,
    implementation: CrossEntropyImplementation = "default",
) -> LinearCrossEntropy:
    """Mean over tokens of ``-log softmax(hidden @ head)[target] + z_loss * log_normalizer**2``.

    Args:
        hidden: final hidden states.
        head: output projection.
        targets: the next token of each position, in ``[0, vocabulary)``.
        weights: how much each token counts (0 leaves it out); None counts each as 1. No gradient flows to it.
        z_loss: coefficient of the squared log-normalizer (PaLM, arXiv 2204.02311, section 5). No gradient.
        soft_cap: logits are bent to ``soft_cap * tanh(logits / soft_cap)`` first (Gemma 2, arXiv 2408.00118).
        implementation: ``"reference"`` holds all logits; ``"chunked"`` holds those of `CHUNK` tokens; ``"blocked"``
            those of fewer tokens, in blocks of the vocabulary. The last two compute the gradients in the same pass, so
            nothing is computed twice. ``"default"`` is ``"chunked"`` for vocabularies up to
            ``HELD // CHUNK = 16,384`` words, else ``"blocked"``.

    Returns:
        The two means; 0 when all weights are 0. Logits and reductions are fp32.

    Raises:
        ValueError: the soft cap is not positive, or the implementation is unknown.
    """
    if soft_cap is not None and not soft_cap > 0:
        raise ValueError(
            f"linear_cross_entropy: a soft cap of {soft_cap} leaves no logits; give a positive number, or None"
        )
    usual = "chunked" if head.shape[1] * CHUNK <= HELD else "blocked"
    name = choose("linear_cross_entropy", implementation, _OBSTACLES, {"cpu": (usual,)}, hidden, head)
    tokens = hidden.shape[0]
    weights = jnp.ones(tokens, jnp.float32) if weights is None else jax.lax.stop_gradient(weights)
    weights = weights / jnp.maximum(jnp.sum(weights), jnp.finfo(jnp.float32).tiny)
    z_loss = jax.lax.stop_gradient(jnp.asarray(z_loss, jnp.float32))
    compute = {"reference": _reference, "chunked": _chunked, "blocked": blocked_cross_entropy}[name]
    loss, cross_entropy = compute(*equally_varying(hidden, head, targets, weights, z_loss), soft_cap)
    return LinearCrossEntropy(loss, jax.lax.stop_gradient(cross_entropy))


def token_cross_entropy(
    hidden: Float[Array, "tokens width"],
    head: Float[Array, "width vocabulary"],
    targets: Int[Array, " tokens"],
    *,
    soft_cap: float | None = None,
) -> Float[Array, " tokens"]:
    """``-log softmax(hidden @ head)[target]`` of each token, in nats, holding the logits of `CHUNK` tokens at once."""
    chunks = _chunks((hidden, targets))
    losses = jax.lax.map(lambda chunk: _losses(capped(_logits(chunk[0], head), soft_cap), chunk[1])[0], chunks)
    return losses.reshape(-1)[: hidden.shape[0]]


def _logits(hidden: Array, head: Array) -> Array:
    return exact_product("td,dv->tv", hidden, head)


def _losses(logits: Array, targets: Array) -> tuple[Array, Array]:
    """Cross-entropy and log-normalizer of each row."""
    log_normalizer = jax.nn.logsumexp(logits, axis=-1)
    return log_normalizer - jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0], log_normalizer


def _reference(hidden, head, targets, weights, z_loss, soft_cap):
    cross_entropy, log_normalizer = _losses(capped(_logits(hidden, head), soft_cap), targets)
    mean = jnp.sum(weights * cross_entropy)
    return mean + z_loss * jnp.sum(weights * log_normalizer**2), mean


def _chunks(arrays):
    """Pad the token axis with zeros to a multiple of the chunk and split it: [tokens, ...] -> [n, chunk, ...]."""
    tokens = arrays[0].shape[0]
    count = max(1, -(-tokens // CHUNK))
    chunk = -(-tokens // count)
    pad = count * chunk - tokens
    return jax.tree.map(
        lambda x: jnp.pad(x, ((0, pad), *((0, 0),) * (x.ndim - 1))).reshape(count, chunk, *x.shape[1:]), arrays
    )


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def _chunked(hidden, head, targets, weights, z_loss, soft_cap):
    def add_chunk(totals, chunk):
        hidden, targets, weights = chunk
        loss, mean = _reference(hidden, head, targets, weights, z_loss, soft_cap)
        return (totals[0] + loss, totals[1] + mean), None

    zero = zeros_like_varying((), jnp.float32, hidden)
    return jax.lax.scan(add_chunk, (zero, zero), _chunks((hidden, targets, weights)))[0]


def _chunk_gradients(hidden, head, targets, weights, z_loss, soft_cap):
    """Loss, cross-entropy, and the loss's gradients for one chunk."""
    logits = capped(_logits(hidden, head), soft_cap)
    peak = jnp.max(logits, axis=-1, keepdims=True)
    exponentials = jnp.exp(logits - peak)
    normalizer = jnp.sum(exponentials, axis=-1, keepdims=True)
    log_normalizer = (peak + jnp.log(normalizer))[:, 0]
    cross_entropy = log_normalizer - jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    mean = jnp.sum(weights * cross_entropy)
    loss = mean + z_loss * jnp.sum(weights * log_normalizer**2)
    scale = (weights * (1 + 2 * z_loss * log_normalizer))[:, None] / normalizer
    is_target = jnp.arange(logits.shape[1])[None] == targets[:, None]
    d_logits = exponentials * scale - jnp.where(is_target, weights[:, None], 0)
    if soft_cap is not None:
        d_logits *= cap_slope(logits, soft_cap)
    d_logits = d_logits.astype(hidden.dtype)
    d_hidden = exact_product("tv,dv->td", d_logits, head)
    return loss, mean, d_hidden, exact_product("td,tv->dv", hidden, d_logits)


def _chunked_forward(hidden, head, targets, weights, z_loss, soft_cap):
    def add_chunk(totals, chunk):
        loss, mean, d_head = totals
        gradients = _chunk_gradients(chunk[0], head, *chunk[1:], z_loss, soft_cap)
        chunk_loss, chunk_mean, d_hidden, chunk_d_head = gradients
        return (loss + chunk_loss, mean + chunk_mean, d_head + chunk_d_head), d_hidden.astype(hidden.dtype)

    zero = zeros_like_varying((), jnp.float32, hidden)
    start = (zero, zero, zeros_like_varying(head.shape, jnp.float32, hidden))
    (loss, mean, d_head), d_hidden = jax.lax.scan(add_chunk, start, _chunks((hidden, targets, weights)))
    d_hidden = d_hidden.reshape(-1, hidden.shape[1])[: hidden.shape[0]]
    return (loss, mean), (d_hidden, d_head.astype(head.dtype))


def _chunked_backward(soft_cap, gradients, cotangents):
    d_hidden, d_head = gradients
    scale = cotangents[0]
    return (d_hidden * scale).astype(d_hidden.dtype), (d_head * scale).astype(d_head.dtype), None, None, None


_chunked.defvjp(_chunked_forward, _chunked_backward)
