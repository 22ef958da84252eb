"""Cross-entropy of a linear head that never holds the logits of all tokens at once."""

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

CrossEntropyImplementation = Literal["reference", "chunked"]

CHUNK = 1024  # tokens whose logits are held at once; at a vocabulary of 2,048 they just fit a core's second-level cache


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
    implementation: CrossEntropyImplementation = "chunked",
) -> LinearCrossEntropy:
    """Mean over tokens of ``-log softmax(hidden @ head)[target] + z_loss * log_normalizer**2``.

    Args:
        hidden: final hidden states.
        head: output projection.
        targets: the next token of each position, in ``[0, vocabulary)``.
        weights: how much each token counts (0 leaves it out); None counts each as 1. No gradient flows to it.
        z_loss: coefficient of the squared log-normalizer (PaLM, arXiv 2204.02311, section 5). No gradient.
        implementation: ``"reference"`` holds all logits; ``"chunked"`` holds those of `CHUNK` tokens and computes
            the gradients in the same pass, so nothing is computed twice.

    Returns:
        The two means; 0 when all weights are 0. Logits and reductions are fp32.

    Raises:
        ValueError: the implementation is unknown.
    """
    tokens = hidden.shape[0]
    weights = jnp.ones(tokens, jnp.float32) if weights is None else jax.lax.stop_gradient(weights)
    weights = weights / jnp.maximum(jnp.sum(weights), jnp.finfo(jnp.float32).tiny)
    z_loss = jax.lax.stop_gradient(jnp.asarray(z_loss, jnp.float32))
    if implementation == "reference":
        loss, cross_entropy = _reference(hidden, head, targets, weights, z_loss)
    elif implementation == "chunked":
        loss, cross_entropy = _chunked(hidden, head, targets, weights, z_loss)
    else:
        raise ValueError(
            f"linear_cross_entropy: unknown implementation {implementation!r}; "
            f"choose one of {', '.join(map(repr, get_args(CrossEntropyImplementation)))}"
        )
    return LinearCrossEntropy(loss, jax.lax.stop_gradient(cross_entropy))


def token_cross_entropy(
    hidden: Float[Array, "tokens width"],
    head: Float[Array, "width vocabulary"],
    targets: Int[Array, " tokens"],
) -> Float[Array, " tokens"]:
    """``-log softmax(hidden @ head)[target]`` of each token, in nats, holding the logits of `CHUNK` tokens at once."""
    chunks = _chunks((hidden, targets))
    losses = jax.lax.map(lambda chunk: _losses(_logits(chunk[0], head), chunk[1])[0], chunks)
    return losses.reshape(-1)[: hidden.shape[0]]


def _logits(hidden: Array, head: Array) -> Array:
    return jnp.dot(hidden, head, preferred_element_type=jnp.float32)


def _losses(logits: Array, targets: Array) -> tuple[Array, Array]:
    """Cross-entropy and log-normalizer of each row."""
    log_normalizer = jax.nn.logsumexp(logits, axis=-1)
    return log_normalizer - jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0], log_normalizer


def _reference(hidden, head, targets, weights, z_loss):
    cross_entropy, log_normalizer = _losses(_logits(hidden, head), targets)
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


@jax.custom_vjp
def _chunked(hidden, head, targets, weights, z_loss):
    def add_chunk(totals, chunk):
        hidden, targets, weights = chunk
        loss, mean = _reference(hidden, head, targets, weights, z_loss)
        return (totals[0] + loss, totals[1] + mean), None

    zero = jnp.zeros((), jnp.float32)
    return jax.lax.scan(add_chunk, (zero, zero), _chunks((hidden, targets, weights)))[0]


def _chunk_gradients(hidden, head, targets, weights, z_loss):
    """Loss, cross-entropy, and the loss's gradients for one chunk."""
    logits = _logits(hidden, head)
    peak = jnp.max(logits, axis=-1, keepdims=True)
    exponentials = jnp.exp(logits - peak)
    normalizer = jnp.sum(exponentials, axis=-1, keepdims=True)
    log_normalizer = (peak + jnp.log(normalizer))[:, 0]
    cross_entropy = log_normalizer - jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
    mean = jnp.sum(weights * cross_entropy)
    loss = mean + z_loss * jnp.sum(weights * log_normalizer**2)
    scale = (weights * (1 + 2 * z_loss * log_normalizer))[:, None] / normalizer
    is_target = jnp.arange(logits.shape[1])[None] == targets[:, None]
    d_logits = (exponentials * scale - jnp.where(is_target, weights[:, None], 0)).astype(hidden.dtype)
    d_hidden = jnp.dot(d_logits, head.T, preferred_element_type=jnp.float32)
    return loss, mean, d_hidden, jnp.dot(hidden.T, d_logits, preferred_element_type=jnp.float32)


def _chunked_forward(hidden, head, targets, weights, z_loss):
    def add_chunk(totals, chunk):
        loss, mean, d_head = totals
        chunk_loss, chunk_mean, d_hidden, chunk_d_head = _chunk_gradients(chunk[0], head, *chunk[1:], z_loss)
        return (loss + chunk_loss, mean + chunk_mean, d_head + chunk_d_head), d_hidden.astype(hidden.dtype)

    zero = jnp.zeros((), jnp.float32)
    start = (zero, zero, jnp.zeros(head.shape, jnp.float32))
    (loss, mean, d_head), d_hidden = jax.lax.scan(add_chunk, start, _chunks((hidden, targets, weights)))
    d_hidden = d_hidden.reshape(-1, hidden.shape[1])[: hidden.shape[0]]
    return (loss, mean), (d_hidden, d_head.astype(head.dtype))


def _chunked_backward(gradients, cotangents):
    d_hidden, d_head = gradients
    scale = cotangents[0]
    return (d_hidden * scale).astype(d_hidden.dtype), (d_head * scale).astype(d_head.dtype), None, None, None


_chunked.defvjp(_chunked_forward, _chunked_backward)
