"""The planner's own count of what collectives carry: static, for each transport, before anything is compiled."""

from collections import Counter
from typing import Literal

import jax.numpy as jnp
from jax.typing import DTypeLike

from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.pooled import WAVES, pool_room

Collective = Literal["all-gather", "all-to-all", "reduce-scatter", "ragged-all-to-all"]
"""Names of collectives in HLO."""

NUMBER = 4
"""Bytes of an id, a count, a combine weight, and of a number that is summed."""


def collective_bytes(
    implementation: str, extent: Extent, *, width: int, dtype: DTypeLike, gradient: bool = False
) -> dict[Collective, int]:
    """Bytes that the collectives of one call carry, on one device, by kind.

    A collective counts with the larger one of its operand and its result, so with what one shard holds of all: an
    all-gather with its result, a reduce-scatter with its operand. Ragged ones count with their buffers; what travels of
    those depends on the routing. Sums of statistics and of gradients over the data axis are not among them.

    Args:
        implementation: a transport's name.
        extent: the sizes of the call.
        width: of what travels: of the tokens, or of the latent space that experts work in.
        dtype: of the tokens.
        gradient: count the reverse pass too, with gradients of tokens, combine weights and matrices.

    Raises:
        ValueError: nothing is known of the implementation.
    """
    if implementation not in _FORWARD:
        raise ValueError(
            f"collective_bytes: nothing is known of {implementation!r}; "
            f"choose one of {', '.join(map(repr, sorted(_FORWARD)))}"
        )
    row = width * jnp.dtype(dtype).itemsize
    total = _FORWARD[implementation](extent, row, width * NUMBER)
    if gradient:
        total += _REVERSE[implementation](extent, row, width * NUMBER)
    return {kind: count for kind, count in total.items() if count and extent.shards > 1}


def _counts(extent: Extent) -> int:
    return extent.shards * extent.experts * NUMBER


def _ring(extent: Extent, row: int, summed: int) -> Counter:
    tokens = extent.shards * extent.tokens
    metadata = 2 * extent.top_k * NUMBER
    return Counter({"all-gather": tokens * (row + metadata) + _counts(extent), "reduce-scatter": tokens * summed})


def _ring_reverse(extent: Extent, row: int, summed: int) -> Counter:
    tokens = extent.shards * extent.tokens
    weights = extent.top_k * NUMBER
    return Counter({"all-gather": tokens * row, "reduce-scatter": tokens * (summed + weights)})


def _once(extent: Extent, row: int, hosts: int) -> Counter:
    copies = hosts * extent.copies(hosts)
    return Counter({"all-to-all": copies * (2 * row + 2 * extent.top_k * NUMBER) if hosts > 1 else 0})


def _once_reverse(extent: Extent, row: int, hosts: int) -> Counter:
    copies = hosts * extent.copies(hosts)
    return Counter({"all-to-all": copies * (2 * row + extent.top_k * NUMBER) if hosts > 1 else 0})


def _ring_dedup(extent: Extent, row: int, summed: int) -> Counter:
    return _once(extent, row, extent.shards) + Counter({"all-gather": _counts(extent)})


def _ring_dedup_reverse(extent: Extent, row: int, summed: int) -> Counter:
    return _once_reverse(extent, row, extent.shards)


def _hierarchical(extent: Extent, row: int, summed: int) -> Counter:
    hosts = extent.shards // extent.lanes
    met = extent.shards * extent.copies(hosts) if extent.lanes > 1 else 0
    gathered = met * (row + 2 * extent.top_k * NUMBER)
    inside = Counter({"all-gather": gathered + _counts(extent), "reduce-scatter": met * summed})
    return _once(extent, row, hosts) + inside


def _hierarchical_reverse(extent: Extent, row: int, summed: int) -> Counter:
    hosts = extent.shards // extent.lanes
    met = extent.shards * extent.copies(hosts) if extent.lanes > 1 else 0
    scattered = met * (summed + extent.top_k * NUMBER)
    return _once_reverse(extent, row, hosts) + Counter({"all-gather": met * row, "reduce-scatter": scattered})


def _fixed(extent: Extent, row: int, summed: int) -> Counter:
    return Counter({"all-to-all": 2 * extent.experts * extent.cell * row})


def _pooled(extent: Extent, row: int, summed: int) -> Counter:
    sent = WAVES * extent.shards * pool_room(extent)
    return Counter({"all-gather": _counts(extent), "all-to-all": sent * (2 * row + NUMBER)})


def _pooled_reverse(extent: Extent, row: int, summed: int) -> Counter:
    return Counter({"all-to-all": WAVES * extent.shards * pool_room(extent) * 2 * row})


def _ragged(extent: Extent, row: int, summed: int) -> Counter:
    return _ragged_reverse(extent, row, summed) + Counter({"all-gather": _counts(extent)})


def _ragged_reverse(extent: Extent, row: int, summed: int) -> Counter:
    return Counter({"ragged-all-to-all": (extent.rows + extent.assignments) * row})


_FORWARD = {
    "local": lambda extent, row, summed: Counter(),
    "ring": _ring,
    "ring_dedup": _ring_dedup,
    "hierarchical": _hierarchical,
    "fixed": _fixed,
    "pooled": _pooled,
    "ragged": _ragged,
}
_REVERSE = {
    "local": lambda extent, row, summed: Counter(),
    "ring": _ring_reverse,
    "ring_dedup": _ring_dedup_reverse,
    "hierarchical": _hierarchical_reverse,
    "fixed": _fixed,
    "pooled": _pooled_reverse,
    "ragged": _ragged_reverse,
}
