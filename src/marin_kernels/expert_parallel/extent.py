"""The sizes of one expert-parallel call: all that is known before a token is routed, in exact integers."""

from fractions import Fraction

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Int


@attrs.frozen
class Extent:
    """What the shards of one expert axis hold.

    Attributes:
        tokens: tokens on one shard.
        top_k: experts of a token.
        experts: experts over all shards.
        shards: size of the expert axis.
        capacity_factor: room at a receiver, in units of an even share of the assignments; None: room for all.
        tile: the rows of each expert begin at a multiple of it.
    """

    tokens: int
    top_k: int
    experts: int
    shards: int = 1
    capacity_factor: Fraction | None = None
    tile: int = 1

    @property
    def assignments(self) -> int:
        """Assignments of one shard's tokens."""
        return self.tokens * self.top_k

    @property
    def local_experts(self) -> int:
        """Experts of one shard."""
        return self.experts // self.shards

    @property
    def most_received(self) -> int:
        """Assignments that can meet at one shard: all tokens of all shards, with as many experts as it has."""
        return self.shards * self.tokens * min(self.top_k, self.local_experts)

    @property
    def room(self) -> int:
        """Assignments that a shard has room for."""
        if self.capacity_factor is None:
            return self.most_received
        return min(self.most_received, max(1, ceiling(self.capacity_factor * self.assignments)))

    @property
    def rows(self) -> int:
        """Rows of the buffer of one shard: room, and what aligning each expert to a tile may leave empty."""
        if self.tile == 1:
            return self.room
        aligned = self.room + self.local_experts * (self.tile - 1)
        return -(-aligned // self.tile) * self.tile


def ceiling(value: Fraction) -> int:
    """The smallest integer that is not below a fraction."""
    return -(-value.numerator // value.denominator)


def share(count: Int[Array, ""], factor: Fraction) -> Int[Array, ""]:
    """``ceil(count * factor)`` in exact int32 arithmetic, where floating point could be a row off.

    Raises:
        ValueError: the factor has so long a fraction that a product could overflow.
    """
    top, bottom = factor.numerator, factor.denominator
    if top * bottom >= 2**31:
        raise ValueError(
            f"capacity_factor: {float(factor)} is too fine a fraction over this mesh ({top}/{bottom}); "
            "round it to two or three decimals"
        )
    whole, rest = jnp.divmod(count, bottom)
    return whole * top + (rest * top + bottom - 1) // bottom
