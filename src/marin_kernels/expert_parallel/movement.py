"""Moving rows by integer maps; gathers in both directions, never a scatter-add of numbers.

Two maps describe one movement: ``origin`` says for each row where it comes from, ``places`` says for each token to
which rows it went. ``NOWHERE`` in either is a row of zeros, which passes no gradient.
"""

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from marin_kernels.expert_parallel.saved import RECEIVED

NOWHERE = -1


def take(values: Array, index: Int[Array, "*shape"]) -> Array:
    """``values[index]``, with zeros where the index is `NOWHERE`."""
    return values.at[index].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def inverse(places: Int[Array, "*shape"], rows: int) -> Int[Array, " rows"]:
    """For each row the flat position in ``places`` that names it, or `NOWHERE`; no row is named twice."""
    flat = places.reshape(-1)
    target = jnp.where(flat == NOWHERE, rows, flat)
    positions = jnp.arange(flat.size, dtype=jnp.int32)
    return jnp.full(rows, NOWHERE, jnp.int32).at[target].set(positions, mode="drop", unique_indices=False)


def token_of(origin: Int[Array, "*shape"], copies: int) -> Int[Array, "*shape"]:
    """The token of each flat copy, with so many copies of a token; `NOWHERE` stays."""
    return jnp.where(origin == NOWHERE, NOWHERE, origin // copies)


@jax.custom_vjp
def spread(
    tokens: Float[Array, "tokens width"], origin: Int[Array, " rows"], places: Int[Array, "tokens copies"]
) -> Float[Array, "rows width"]:
    """Copy tokens to rows: ``rows[p] = tokens[origin[p]]``; the gradient of a token is the sum over its copies."""
    return take(tokens, origin)


def _spread_forward(tokens, origin, places):
    return spread(tokens, origin, places), places


def _spread_backward(places, cotangent):
    return gather_sum(cotangent, places).astype(cotangent.dtype), None, None


spread.defvjp(_spread_forward, _spread_backward)


def gather_sum(
    rows: Float[Array, "rows width"],
    places: Int[Array, "tokens copies"],
    weights: Float[Array, "tokens copies"] | None = None,
) -> Float[Array, "tokens width"]:
    """Sum of each token's rows, weighted, in fp32."""
    total = jnp.zeros((places.shape[0], rows.shape[1]), jnp.float32)
    weights = None if weights is None else jnp.where(places == NOWHERE, 0, weights)  # padding may weigh NaN
    for k in range(places.shape[1]):
        row = take(rows, places[:, k]).astype(jnp.float32)
        total += row if weights is None else row * weights[:, k, None].astype(jnp.float32)
    return total


@jax.custom_vjp
def collect(
    rows: Float[Array, "rows width"],
    weights: Float[Array, "tokens copies"],
    places: Int[Array, "tokens copies"],
    origin: Int[Array, " rows"],
) -> Float[Array, "tokens width"]:
    """Weighted sum of each token's rows, in fp32: ``tokens[t] = sum_k weights[t, k] * rows[places[t, k]]``.

    Args:
        rows: what the experts computed.
        weights: combine weights.
        places: the row of each copy, or `NOWHERE`.
        origin: for each row its flat position in ``places``, or `NOWHERE`.
    """
    return gather_sum(rows, places, weights)


def _collect_forward(rows, weights, places, origin):
    rows = checkpoint_name(rows, RECEIVED)
    return gather_sum(rows, places, weights), (rows, weights, places, origin)


def _collect_backward(saved, cotangent):
    rows, weights, places, origin = saved
    scale = take(weights.reshape(-1), origin).astype(jnp.float32)
    d_rows = take(cotangent, token_of(origin, places.shape[1])) * scale[:, None]
    products = [
        jnp.sum(take(rows, places[:, k]).astype(jnp.float32) * cotangent, axis=-1) for k in range(places.shape[1])
    ]
    return d_rows.astype(rows.dtype), jnp.stack(products, axis=1).astype(weights.dtype), None, None


collect.defvjp(_collect_forward, _collect_backward)
