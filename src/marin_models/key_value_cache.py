"""Keys and values of tokens already read, so that the next token costs one step and not the whole text."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marin_kernels.precision import exact_product
from marin_models.mesh import BATCH, looked_up, per_shard, put, spec
from marin_models.rotary import RotaryTable, rotary_table
from marin_models.stack import through_layers
from marin_models.transformer import Transformer


class KeyValueCache(NamedTuple):
    """Keys and values of a stack of layers by position; slot ``i`` of a row belongs to its ``i``-th token.

    Slots that no token was written to hold zeros or what padding left there; no query looks at them, because a token
    sees only slots up to its own, and those have been written.

    Attributes:
        keys: normalized and rotated keys.
        values: values.
    """

    keys: Float[Array, "*layers batch capacity key_value_heads head_size"]
    values: Float[Array, "*layers batch capacity key_value_heads head_size"]


Caches = tuple[KeyValueCache, ...]
"""One cache for each of `Transformer.stacks`."""


def empty_caches(model: Transformer, batch: int, capacity: int) -> Caches:
    """Room for ``capacity`` tokens in each of ``batch`` rows, in the dtype of activations, split as a mesh says."""
    config = model.config
    shape = (batch, capacity, config.key_value_heads, config.head_size)
    zeros = (jnp.zeros((len(windows), *shape), config.dtype) for _, windows in model.stacks)
    split = (put(one, None, BATCH, None, "model", None) for one in zeros)
    return tuple(KeyValueCache(one, one) for one in split)


def capacity_of(caches: Caches) -> int:
    """Tokens that a row can hold."""
    return caches[0].keys.shape[-3]


def enlarged(caches: Caches, capacity: int) -> Caches:
    """The same contents with room for ``capacity`` tokens in a row."""
    more = ((0, 0), (0, 0), (0, capacity - capacity_of(caches)), (0, 0), (0, 0))
    return jax.tree.map(lambda slots: jnp.pad(slots, more), caches)


def extend(
    model: Transformer,
    caches: Caches,
    tokens: Int[Array, "batch length"],
    start: Int[Array, " batch"],
    *,
    bias: Float[Array, "routed_layers experts"] | None = None,
    valid: Bool[Array, "batch length"] | None = None,
) -> tuple[Float[Array, "batch length width"], Caches]:
    """Read tokens that follow those in the caches.

    Args:
        model: the model.
        caches: what was read before; row ``b`` holds at least ``start[b]`` tokens and has room for ``length`` more.
        tokens: the next tokens of each row.
        start: position of each row's first token.
        bias: the balancing bias in force, fp32; None: zeros.
        valid: tokens that are more than padding, which is not routed to experts; None: all.

    Returns:
        Final normalized hidden states, equal to those that `Transformer.hidden` gives at these positions of the whole
        text, and the caches with the tokens in them.
    """
    config, heads = model.config, spec(BATCH, None, "model", None)
    start = put(start, BATCH)
    positions = start[:, None] + jnp.arange(tokens.shape[1])
    valid = None if valid is None else put(valid, BATCH, None)
    table = rotary_table(capacity_of(caches), config.rotated_size, config.rope_theta, config.rotary_scaling)
    table = RotaryTable(*(looked_up(part, positions) for part in table))
    write = per_shard(_written, (heads, heads, spec(BATCH)), heads)

    def layer(x: Array, stacked: tuple, window: int | None) -> tuple[Array, KeyValueCache]:
        block, cache, bias = stacked
        entering = block.attention_norm(x)
        query, key, value = block.attention.project(entering, table)
        cache = KeyValueCache(write(cache.keys, key, start), write(cache.values, value, start))
        attend = functools.partial(cached_attention, window=window)
        arguments = (heads, KeyValueCache(heads, heads), spec(BATCH, None))
        attended = per_shard(attend, arguments, heads)(query, cache, positions)
        return block.feed(x + block.attention.combine(entering, attended), bias, valid)[0], cache

    x = model.embedded(tokens)
    written = []
    for (blocks, windows), cache in zip(model.stacks, caches, strict=True):
        stacked = blocks, cache, bias if blocks is model.blocks else None
        x, cache = through_layers(layer, x, stacked, windows)
        written.append(cache)
    return model.final_norm(x), tuple(written)


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
    scores = exact_product("btkgd,bskd->bkgts", grouped, cache.keys)
    scores = jnp.where(
        _visible(positions, cache.keys.shape[1], window)[:, None, None], scores / math.sqrt(head_size), -jnp.inf
    )
    probabilities = jax.nn.softmax(scores, axis=-1).astype(query.dtype)
    attended = exact_product("bkgts,bskd->btkgd", probabilities, cache.values)
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
