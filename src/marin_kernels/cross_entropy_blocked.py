"""Cross-entropy of a linear head in blocks of tokens and vocabulary, with its gradients in the same pass.

Logits are computed once: those of a block of tokens are held from the pass that finds their normalizer to the pass that
turns them into gradients, `HELD` numbers at most. The other arrays are as large as a block of logits, or as the head.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels.manual_axes import zeros_like_varying
from marin_kernels.precision import exact_product

HELD = 2**24
"""Logits held at once: 64 MiB. More of them mean fewer sums over the whole head's gradient."""

BLOCK = 4096
"""Words of the vocabulary whose logits are computed at once."""


class Tokens(NamedTuple):
    """What is known of the tokens of a block; the weights sum to 1 over all tokens."""

    hidden: Float[Array, "tokens width"]
    targets: Int[Array, " tokens"]
    weights: Float[Array, " tokens"]


class Normalizer(NamedTuple):
    """The sum of exponentials of each token's logits, as ``exp(peak) * total``."""

    peak: Float[Array, " tokens"]
    total: Float[Array, " tokens"]

    @property
    def logarithm(self) -> Float[Array, " tokens"]:
        """The log-normalizer."""
        return self.peak + jnp.log(self.total)


class Words(NamedTuple):
    """A block of the vocabulary: where it begins in the head, and which of its words are its own."""

    first: Int[Array, " blocks"]
    own_from: Int[Array, " blocks"]


def capped(logits: Float[Array, "*shape"], soft_cap: float | None) -> Float[Array, "*shape"]:
    """Logits bent so that none exceeds the cap (Gemma 2, arXiv 2408.00118, section 2)."""
    return logits if soft_cap is None else soft_cap * jnp.tanh(logits / soft_cap)


def cap_slope(logits: Float[Array, "*shape"], soft_cap: float | None) -> Float[Array, "*shape"] | float:
    """How steep the bend is where it gave these capped logits."""
    return 1.0 if soft_cap is None else 1 - (logits / soft_cap) ** 2


def tokens_at_once(tokens: int, vocabulary: int) -> int:
    """How many tokens a block has."""
    return max(1, -(-tokens // max(1, -(-tokens * vocabulary // HELD))))


def in_blocks(tokens: Tokens, size: int) -> Tokens:
    """The tokens in blocks of a size, filled up with tokens of weight zero: [tokens, ...] -> [blocks, size, ...]."""
    missing = -len(tokens.targets) % size

    def split(x):
        filled = jnp.pad(x, ((0, missing), *((0, 0),) * (x.ndim - 1)))
        return filled.reshape(-1, size, *x.shape[1:])

    return Tokens(*map(split, tokens))


def words_in_blocks(vocabulary: int) -> tuple[Words, int]:
    """The vocabulary's blocks and their size; the last one begins early, and holds words that are not its own."""
    size = min(BLOCK, vocabulary)
    own_from = jnp.arange(0, vocabulary, size)
    return Words(jnp.minimum(own_from, vocabulary - size), own_from), size


def _head(head, words, size):
    return jax.lax.dynamic_slice_in_dim(head, words.first, size, axis=1)


def _logits(tokens, head, soft_cap):
    """Normalizer and target's logit of each token, and all logits: [blocks, tokens, size], -inf where not own."""
    blocks, size = words_in_blocks(head.shape[1])

    def block(state, words):
        peak, total, target = state
        raw = exact_product("td,dv->tv", tokens.hidden, _head(head, words, size))
        position = words.first + jnp.arange(size)
        logits = jnp.where(position >= words.own_from, capped(raw, soft_cap), -jnp.inf)
        higher = jnp.maximum(peak, jnp.max(logits, axis=1))
        total = total * jnp.exp(peak - higher) + jnp.sum(jnp.exp(logits - higher[:, None]), axis=1)
        place = tokens.targets - words.first
        found = jnp.take_along_axis(logits, jnp.clip(place, 0, size - 1)[:, None], axis=1)[:, 0]
        own = (tokens.targets >= words.own_from) & (place < size)
        return (higher, total, jnp.where(own, found, target)), logits

    zeros = zeros_like_varying(tokens.targets.shape, jnp.float32, tokens.hidden)
    (peak, total, target), logits = jax.lax.scan(block, (zeros - jnp.inf, zeros, zeros), blocks)
    return Normalizer(peak, total), target, logits


def _gradients(tokens, head, d_head, normalizer, logits, z_loss, soft_cap):
    """Gradient of hidden states, and the head's gradient with these tokens' share added."""
    blocks, size = words_in_blocks(head.shape[1])
    # Not from the log-normalizer: at 10,000 its rounding alone would be a part in a thousand of every share.
    scale = tokens.weights * (1 + 2 * z_loss * normalizer.logarithm) / normalizer.total

    def block(state, inputs):
        d_hidden, d_head = state
        words, logits = inputs
        is_target = (words.first + jnp.arange(size))[None] == tokens.targets[:, None]
        # Where a word is another block's its logit is -inf: its share is zero, and so must the target's be.
        finite = logits > -jnp.inf
        share = jnp.exp(logits - normalizer.peak[:, None]) * scale[:, None]
        d_logits = share - jnp.where(is_target & finite, tokens.weights[:, None], 0)
        d_logits = d_logits * cap_slope(jnp.where(finite, logits, 0), soft_cap)
        d_logits = d_logits.astype(tokens.hidden.dtype)
        d_hidden += exact_product("tv,dv->td", d_logits, _head(head, words, size))
        d_words = exact_product("td,tv->dv", tokens.hidden, d_logits)
        d_words += _head(d_head, words, size)
        return (d_hidden, jax.lax.dynamic_update_slice_in_dim(d_head, d_words, words.first, axis=1)), None

    start = zeros_like_varying(tokens.hidden.shape, jnp.float32, tokens.hidden)
    return jax.lax.scan(block, (start, d_head), (blocks, logits))[0]


def _sums(tokens, normalizer, target, z_loss):
    logarithm = normalizer.logarithm
    cross_entropy = jnp.sum(tokens.weights * (logarithm - target))
    return cross_entropy + z_loss * jnp.sum(tokens.weights * logarithm**2), cross_entropy


@partial(jax.custom_vjp, nondiff_argnums=(5,))
def blocked_cross_entropy(
    hidden: Float[Array, "tokens width"],
    head: Float[Array, "width vocabulary"],
    targets: Int[Array, " tokens"],
    weights: Float[Array, " tokens"],
    z_loss: Float[Array, ""],
    soft_cap: float | None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sum of weighted cross-entropies with z-loss, and without; see `marin_kernels.linear_cross_entropy`."""

    def add(totals, block):
        normalizer, target, _ = _logits(block, head, soft_cap)
        return jax.tree.map(jnp.add, totals, _sums(block, normalizer, target, z_loss)), None

    zero = zeros_like_varying((), jnp.float32, hidden)
    size = tokens_at_once(len(targets), head.shape[1])
    return jax.lax.scan(add, (zero, zero), in_blocks(Tokens(hidden, targets, weights), size))[0]


def _forward(hidden, head, targets, weights, z_loss, soft_cap):
    def add(totals, block):
        loss, cross_entropy, d_head = totals
        normalizer, target, logits = _logits(block, head, soft_cap)
        more, more_cross_entropy = _sums(block, normalizer, target, z_loss)
        d_hidden, d_head = _gradients(block, head, d_head, normalizer, logits, z_loss, soft_cap)
        return (loss + more, cross_entropy + more_cross_entropy, d_head), d_hidden.astype(hidden.dtype)

    zero = zeros_like_varying((), jnp.float32, hidden)
    start = (zero, zero, zeros_like_varying(head.shape, jnp.float32, hidden))
    blocks = in_blocks(Tokens(hidden, targets, weights), tokens_at_once(len(targets), head.shape[1]))
    (loss, cross_entropy, d_head), d_hidden = jax.lax.scan(add, start, blocks)
    d_hidden = d_hidden.reshape(-1, hidden.shape[1])[: len(targets)]
    return (loss, cross_entropy), (d_hidden, d_head.astype(head.dtype))


def _backward(soft_cap, gradients, cotangents):
    d_hidden, d_head = ((gradient * cotangents[0]).astype(gradient.dtype) for gradient in gradients)
    return d_hidden, d_head, None, None, None


blocked_cross_entropy.defvjp(_forward, _backward)
