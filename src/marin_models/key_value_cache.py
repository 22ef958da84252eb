"""Keys and values of tokens already read, so that the next token costs one step and not the whole text."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marin_models.rotary import RotaryTable, rotary_table
from marin_models.stack import through_layers
from marin_models.transformer import Block, Transformer
from marin_models.transformer_config import TransformerConfig


class KeyValueCache(NamedTuple):
    """Keys and values by layer and position; slot ``i`` of a row belongs to its ``i``-th token.

    Slots that no token was written to hold zeros or what padding left there; no query looks at them, because a token
    sees only slots up to its own, and those have been written.

    Attributes:
        keys: normalized and rotated keys.
        values: values.
    """

    keys: Float[Array, "*layers batch capacity key_value_heads head_size"]
    values: Float[Array, "*layers batch capacity key_value_heads head_size"]

    @property
    def capacity(self) -> int:
        """Tokens that a row can hold."""
        return self.keys.shape[-3]


def empty_cache(config: TransformerConfig, batch: int, capacity: int) -> KeyValueCache:
    """Room for ``capacity`` tokens in each of ``batch`` rows, in the dtype of activations."""
    zeros = jnp.zeros((config.layers, batch, capacity, config.key_value_heads, config.head_size), config.dtype)
    return KeyValueCache(zeros, zeros)


def enlarged(cache: KeyValueCache, capacity: int) -> KeyValueCache:
    """The same contents with room for ``capacity`` tokens in a row."""
    more = ((0, 0), (0, 0), (0, capacity - cache.capacity), (0, 0), (0, 0))
    return KeyValueCache(jnp.pad(cache.keys, more), jnp.pad(cache.values, more))


def extend(
    model: Transformer, cache: KeyValueCache, tokens: Int[Array, "batch length"], start: Int[Array, " batch"]
) -> tuple[Float[Array, "batch length width"], KeyValueCache]:
    """Read tokens that follow those in the cache.

    Args:
        model: the model.
        cache: what was read before; row ``b`` holds at least ``start[b]`` tokens and has room for ``length`` more.
        tokens: the next tokens of each row.
        start: position of each row's first token.

    Returns:
        Final normalized hidden states, equal to those that `Transformer.hidden` gives at these positions of the whole
        text, and the cache with the tokens in it.
    """
    config = model.config
    positions = start[:, None] + jnp.arange(tokens.shape[1])
    table = rotary_table(cache.capacity, config.rotated_size, config.rope_theta)
    table = RotaryTable(table.cosine[positions], table.sine[positions])
    x = jnp.take(model.embedding, tokens, axis=0).astype(config.dtype)

    def layer(
        x: Array, block_and_cache: tuple[Block, KeyValueCache], window: int | None
    ) -> tuple[Array, KeyValueCache]:
        block, cache = block_and_cache
        normalized = block.attention_norm(x)
        query, key, value = block.attention.project(normalized, table)
        cache = KeyValueCache(_written(cache.keys, key, start), _written(cache.values, value, start))
        x = x + block.attention.combine(normalized, cached_attention(query, cache, positions, window=window))
        return x + block.feed_forward(block.feed_forward_norm(x)), cache

    x, cache = through_layers(layer, x, (model.blocks, cache), config.windows)
    return model.final_norm(x), cache


def cached_attention(
    query: Float[Array, "batch length heads head_size"],
    cache: KeyValueCache,
    positions: Int[Array, "batch length"],
    *,
    window: int | None = None,
) -> Float[Array, "batch length heads head_size"]:
    """Each query attends to one layer's slots up to its own position; scores and softmax are fp32.

    Args:
        query: normalized and rotated queries.
        cache: one layer of the cache, in which the queries' own tokens have been written.
        positions: of the queries.
        window: how many slots a query sees, its own included; None: all up to its own.
    """
    batch, length, heads, head_size = query.shape
    grouped = query.reshape(batch, length, cache.keys.shape[2], -1, head_size)
    scores = jnp.einsum("btkgd,bskd->bkgts", grouped, cache.keys, preferred_element_type=jnp.float32)
    scores = jnp.where(
        _visible(positions, cache.capacity, window)[:, None, None], scores / math.sqrt(head_size), -jnp.inf
    )
    probabilities = jax.nn.softmax(scores, axis=-1).astype(query.dtype)
    attended = jnp.einsum("bkgts,bskd->btkgd", probabilities, cache.values, preferred_element_type=jnp.float32)
    return attended.reshape(batch, length, heads, head_size).astype(query.dtype)


def _visible(
    positions: Int[Array, "batch length"], capacity: int, window: int | None
) -> Bool[Array, "batch length capacity"]:
    distance = positions[..., None] - jnp.arange(capacity)
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)


def _written(
    slots: Float[Array, "batch capacity heads size"],
    new: Float[Array, "batch length heads size"],
    start: Int[Array, " batch"],
) -> Float[Array, "batch capacity heads size"]:
    return jax.vmap(lambda row, piece, first: jax.lax.dynamic_update_slice(row, piece, (first, 0, 0)))(
        slots, new, start
    )
