"""What a transport is given and what it gives back, on one shard."""

from collections.abc import Callable
from typing import NamedTuple

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from marin_kernels.expert_parallel.axis import ExpertAxis
from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.feed_forward import FeedForward
from marin_kernels.expert_parallel.planner import Plan
from marin_kernels.expert_parallel.routing import Experts, Routing


@attrs.frozen
class Shard:
    """Where a transport runs.

    Attributes:
        axis: the expert axis that it is a member of.
        extent: the sizes of the call.
        feed_forward: what experts compute of rows sorted by expert.
    """

    axis: ExpertAxis
    extent: Extent
    feed_forward: FeedForward


class Transported(NamedTuple):
    """What a transport returns.

    Attributes:
        output: weighted sums of what the experts made of this shard's tokens, in fp32; zero for padding.
        counts: this shard's assignments to each expert, before drops.
        dropped_by_sender: this shard's assignments that it did not send.
        dropped_by_receiver: this shard's assignments that the receivers had no room for.
    """

    output: Float[Array, "tokens width"]
    counts: Int[Array, " experts"]
    dropped_by_sender: Int[Array, ""]
    dropped_by_receiver: Int[Array, ""]


Transport = Callable[[Float[Array, "tokens width"], Routing, Experts, Shard], Transported]
"""One shard's tokens and their routing, and this shard's experts."""


def real_tokens(routing: Routing) -> Bool[Array, "tokens 1"] | None:
    """Which tokens are not padding, as a column; None: all."""
    return None if routing.valid is None else routing.valid[:, None]


def transported(
    output: Float[Array, "tokens width"], counts: Int[Array, " experts"], plan: Plan, source: Int[Array, ""]
) -> Transported:
    """A transport's result, with what its plan drops of one source's assignments."""
    sender = jnp.sum(counts - plan.sent[source], dtype=jnp.int32)
    receiver = jnp.sum(plan.sent[source] - plan.kept[source], dtype=jnp.int32)
    return Transported(output, counts, sender, receiver)
