"""Each token once per destination, however many of its experts live there."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from marin_kernels.expert_parallel.movement import NOWHERE, inverse


class Copies(NamedTuple):
    """Which tokens a source sends to which destinations.

    Attributes:
        places: at a token's first assignment to a destination, its row ``destination * room + rank``; else `NOWHERE`.
        origin: for each row the flat assignment that it was sent for, or `NOWHERE`.
        counted: False where a destination has no room for the token.
    """

    places: Int[Array, "tokens top_k"]
    origin: Int[Array, " rows"]
    counted: Bool[Array, "tokens top_k"]


def copy_once(
    destination: Int[Array, "tokens top_k"],
    real: Bool[Array, "tokens top_k"],
    destinations: int,
    room: Int[Array, ""],
    most: int,
) -> Copies:
    """Rank the tokens of each destination; those of lowest rank are sent.

    Args:
        destination: where the expert of each assignment lives.
        real: False where there is no assignment.
        destinations: how many there are.
        room: tokens that each destination takes.
        most: rows of the buffer of each destination, at least ``room``.
    """
    top_k = destination.shape[1]
    wanted = (destination[..., None] == jnp.arange(destinations)) & real[..., None]
    member = jnp.any(wanted, axis=1)
    rank_of = jnp.cumsum(member, axis=0, dtype=jnp.int32) - member
    at = jnp.minimum(destination, destinations - 1)
    rank = jnp.take_along_axis(rank_of, at, axis=1)
    same = (destination[:, :, None] == destination[:, None, :]) & real[:, None, :]
    earlier = jnp.tril(jnp.ones((top_k, top_k), bool), -1)
    first = real & ~jnp.any(same & earlier, axis=2)
    counted = real & (rank < room)
    places = jnp.where(first & counted, at * most + rank, NOWHERE)
    return Copies(places, inverse(places, destinations * most), counted)
