"""The sizes of one expert-parallel call: all that is known before a token is routed, in exact integers."""

import math
from fractions import Fraction

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Int

INT32 = 2**31 - 1


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
        lanes: shards of the expert axis that share a host.
    """

    tokens: int
    top_k: int
    experts: int
    shards: int = 1
    capacity_factor: Fraction | None = None
    tile: int = 1
    lanes: int = 1

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
        return self._limited(self.most_received, self.assignments)

    @property
    def rows(self) -> int:
        """Rows of the buffer of one shard."""
        return self.aligned(self.room)

    @property
    def cell(self) -> int:
        """Assignments that one source sends to one expert at most, when each such pair has its own room."""
        return self._limited(self.tokens, Fraction(self.assignments, self.experts))

    @property
    def pool(self) -> int:
        """Assignments that one source sends to one shard at most, when each such pair has its own room."""
        most = self.tokens * min(self.top_k, self.local_experts)
        return self._limited(most, Fraction(self.assignments, self.shards))

    def copies(self, destinations: int) -> int:
        """Tokens that one source sends to one of so many destinations at most, each token once."""
        return self._limited(self.tokens, self.tokens * self.hit(destinations))

    def hit(self, destinations: int) -> Fraction:
        """How probable it is that a token needs one of so many destinations, experts being equally popular.

        Rounded up to thousandths: it is multiplied with counts in int32.
        """
        elsewhere = self.experts - self.experts // destinations
        missed = Fraction(math.comb(elsewhere, self.top_k), math.comb(self.experts, self.top_k))
        return Fraction(ceiling(1000 * (1 - missed)), 1000)

    def aligned(self, room: int) -> int:
        """Rows for so many assignments: what aligning each expert to a tile may leave empty is added."""
        if self.tile == 1:
            return room
        return -(-(room + self.local_experts * (self.tile - 1)) // self.tile) * self.tile

    def _limited(self, most: int, even: int | Fraction) -> int:
        """What there is room for when an even share is ``even`` and there cannot be more than ``most``."""
        if self.capacity_factor is None:
            return most
        return min(most, max(1, ceiling(self.capacity_factor * even)))


def ceiling(value: Fraction | int) -> int:
    """The smallest integer that is not below a fraction."""
    return -(-value.numerator // value.denominator)


def share(count: Int[Array, "*shape"], factor: Fraction) -> Int[Array, "*shape"]:
    """``ceil(count * factor)`` in exact int32 arithmetic, where floating point could be a row off.

    What is beyond int32 is its largest number: there is room for all then, and never for less.

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
    exact = whole * top + (rest * top + bottom - 1) // bottom
    return jnp.where(whole < INT32 // top, exact, INT32)
