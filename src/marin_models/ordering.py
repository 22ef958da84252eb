"""The order in which rows of several sources are read: a pure function of seed and position, each row once per pass."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

BLOCK = 1024  # rows in which every source has its share, to within one row; of many sources, a multiple
_STREAM_OF_BLOCKS, _STREAM_OF_PASSES = 0x626C6F636B, 0x7061737365  # keep random numbers of one seed apart
_ROUNDS = 6


class Places(NamedTuple):
    """Where rows come from.

    Attributes:
        source: index of the source.
        row: of that source.
    """

    source: Int[np.ndarray, " rows"]
    row: Int[np.ndarray, " rows"]


def places(sizes: Sequence[int], weights: Sequence[float], positions: Int[np.ndarray, " rows"], *, seed: int) -> Places:
    """Where the rows at some positions of the whole order come from.

    Sources take turns in a random order, in proportion to their weights; within a source each row comes once before
    any comes again, in another random order in each pass. Any position is reached in constant time, so the order does
    not depend on how many hosts share it.

    Args:
        sizes: rows of each source, all above 0.
        weights: how much each source makes up; positive.
        positions: from 0.
        seed: of the order.
    """
    positions, weights = np.asarray(positions, np.int64), np.asarray(weights, np.float64)
    source, turn = np.empty_like(positions), np.empty_like(positions)
    rows = block_rows(weights)
    for block, here in _by_block(positions // rows):
        sources, turns = _block(weights, block, rows, seed)
        source[here], turn[here] = sources[positions[here] % rows], turns[positions[here] % rows]
    row = np.empty_like(positions)
    for number, size in enumerate(sizes):
        chosen = source == number
        row[chosen] = shuffled(turn[chosen] % size, turn[chosen] // size, size, seed=seed, stream=number)
    return Places(source, row)


def shuffled(
    index: Int[np.ndarray, " count"], shuffle: Int[np.ndarray, " count"], size: int, *, seed: int, stream: int = 0
) -> Int[np.ndarray, " count"]:
    """Where a shuffle of ``range(size)`` puts an index; computed for it alone.

    Args:
        index: from 0 to below ``size``.
        shuffle: which shuffle, from 0.
        size: how many there are.
        seed: of all shuffles.
        stream: tells shuffles of one seed apart.

    A balanced Feistel network permutes the numbers of an even count of bits; what falls outside of the range is put
    through it again (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
    """
    half = np.uint64(max(1, (int(size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    keys = np.random.Philox(key=[seed, _STREAM_OF_PASSES], counter=[0, 0, 0, stream]).random_raw(_ROUNDS)
    passes = _mixed(np.asarray(shuffle).astype(np.uint64))
    found = np.asarray(index).astype(np.uint64)
    outside = np.ones(len(found), bool)
    while outside.any():
        left, right = found[outside] >> half, found[outside] & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right ^ key ^ passes[outside]) & mask)
        found[outside] = (left << half) | right
        outside = found >= size
    return found.astype(np.int64)


def block_rows(weights: Float[np.ndarray, " sources"]) -> int:
    """Rows of a block: `BLOCK`, or so many times it that the heaviest source can give what rounding asks of it.

    Each other source may take up to a row more than its share of a block, all of them in the same one.
    """
    needed = len(weights) * weights.sum() / weights.max()
    return BLOCK * (1 << max(0, math.ceil(math.log2(needed / BLOCK))))


def _by_block(blocks: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each block that is asked for, and where."""
    order = np.argsort(blocks, kind="stable")
    borders = np.flatnonzero(np.diff(blocks[order])) + 1
    return ((int(blocks[here[0]]), here) for here in np.split(order, borders) if len(here))


def _block(weights: np.ndarray, block: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """For each row of a block its source, and how many rows of that source came before in the whole order."""
    before, after = (_rows_before(weights, b * rows) for b in (block, block + 1))
    drawn = np.random.Philox(key=[seed, _STREAM_OF_BLOCKS], counter=[0, 0, 0, block]).random_raw(rows)
    in_order = np.repeat(np.arange(len(weights)), after - before)
    by_source = np.argsort(drawn, kind="stable")
    by_source = by_source[np.lexsort((by_source, in_order))]  # of one source, in the order of their positions
    sources, turns = np.empty(rows, np.int64), np.empty(rows, np.int64)
    sources[by_source] = in_order
    turns[by_source] = np.arange(rows) - np.searchsorted(in_order, in_order) + before[in_order]
    return sources, turns


def _rows_before(weights: np.ndarray, rows: int) -> np.ndarray:
    """How many of so many first rows are of each source; the heaviest source takes what rounding leaves."""
    counts = np.floor(weights / weights.sum() * rows).astype(np.int64)
    heaviest = int(np.argmax(weights))
    counts[heaviest] += rows - counts.sum()
    return counts


def _mixed(x: np.ndarray) -> np.ndarray:
    """Bits that depend on all bits of ``x`` (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
