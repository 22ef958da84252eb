"""Whole documents side by side in rows of one length."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Integer

PADDING = -1  # the segment of what is no token


class PackedRows(NamedTuple):
    """Rows of tokens and, for each token, which piece of its row it belongs to; `PADDING` where there is none."""

    tokens: Int[np.ndarray, "*steps rows length_and_one"]
    segment_ids: Int[np.ndarray, "*steps rows length_and_one"]


class Packing(NamedTuple):
    """Which pieces of a stream each row holds.

    Attributes:
        length: predictions that fit in a row; it holds one token more.
        begins: where each piece begins in the stream; pieces of one row are neighbours.
        ends: where it ends.
        rows: the first piece of each row, and the number of pieces.
    """

    length: int
    begins: Int[np.ndarray, " pieces"]
    ends: Int[np.ndarray, " pieces"]
    rows: Int[np.ndarray, " rows_and_one"]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows) - 1

    def predictions(self) -> Int[np.ndarray, " rows"]:
        """Tokens that each row predicts: all of each piece but its first."""
        return np.add.reduceat(self.ends - self.begins - 1, self.rows[:-1])


def pack(offsets: Integer[np.ndarray, " documents_and_one"], length: int, *, separated: bool = False) -> Packing:
    """Put documents into as few rows as a simple rule finds; every prediction inside a document is made once.

    A document that does not fit in a row is cut into pieces that overlap by one token, the last of one piece being
    the first of the next one. Pieces are placed by falling size, each in the fullest row where it fits (best fit
    decreasing); equal documents give equal rows. Documents of one token predict nothing and are left out.

    Args:
        offsets: where each document begins in the stream, and the end of the last one.
        length: predictions that fit in a row.
        separated: the stream has a separator after each document, so that the first token of the next one can be
            predicted from it: it is read with both.

    Raises:
        ValueError: no document has two tokens.

    Source: Ding et al. 2024, "Fewer truncations improve language modeling" (arXiv 2404.10830).
    """
    begins, ends = _pieces(np.asarray(offsets, np.int64), length, int(separated))
    if not len(begins):
        raise ValueError("pack: no document has two tokens, so nothing can be predicted; leave this stream out")
    order = np.argsort(begins - ends, kind="stable")
    row_of_piece = np.empty(len(begins), np.int64)
    row_of_piece[order] = _best_fit((ends - begins)[order].tolist(), length + 1)
    by_row = np.argsort(row_of_piece, kind="stable")
    rows = np.searchsorted(row_of_piece[by_row], np.arange(row_of_piece.max() + 2))
    return Packing(length, begins[by_row], ends[by_row], rows)


def packed_rows(
    packing: Packing, stream: Integer[np.ndarray, " tokens"], rows: Int[np.ndarray, " count"]
) -> PackedRows:
    """The tokens of some rows.

    Args:
        packing: of the stream.
        stream: tokens of all documents, one after the other.
        rows: which ones; any row is reached at once.
    """
    found = PackedRows(
        np.zeros((len(rows), packing.length + 1), np.int32),
        np.full((len(rows), packing.length + 1), PADDING, np.int32),
    )
    for tokens, segments, row in zip(*found, rows.tolist(), strict=True):
        at = 0
        for segment, piece in enumerate(range(packing.rows[row], packing.rows[row + 1])):
            begin, end = packing.begins[piece], packing.ends[piece]
            tokens[at : at + end - begin] = stream[begin:end]
            segments[at : at + end - begin] = segment
            at += end - begin
    return found


def _pieces(offsets: np.ndarray, length: int, lead: int) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of every piece, in the order of the stream."""
    starts, stops = offsets[:-1], offsets[1:]
    starts = np.where(stops > starts, np.maximum(starts - lead, 0), starts)
    counts = -(-np.maximum(stops - starts - 1, 0) // length)
    number_in_document = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.repeat(starts, counts) + number_in_document * length
    return begins, np.minimum(begins + length + 1, np.repeat(stops, counts))


def _best_fit(sizes: list[int], room: int) -> list[int]:
    """The row of each piece; sizes fall."""
    rows: list[int] = []
    open_rows: list[list[int]] = [[] for _ in range(room + 1)]  # by the room that they have left
    there = 0  # bit n: a row has room for n more
    count = 0
    for size in sizes:
        fitting = there >> size
        if fitting:
            left = size + (fitting & -fitting).bit_length() - 1
            row = open_rows[left].pop()
            there &= ~(0 if open_rows[left] else 1 << left)
        else:
            left, row, count = room, count, count + 1
        rows.append(row)
        open_rows[left - size].append(row)
        there |= 1 << (left - size)
    return rows
