import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_models.packing import PADDING, pack, packed_rows

lengths = st.lists(st.integers(0, 30), min_size=1, max_size=40).filter(lambda found: max(found) >= 2)


def offsets(sizes):
    return np.concatenate([[0], np.cumsum(sizes)])


@given(lengths, st.integers(1, 12))
def test_every_prediction_inside_a_document_is_made_exactly_once_and_none_across(sizes, length):
    borders = offsets(sizes)
    stream = np.arange(borders[-1])
    packing = pack(borders, length)
    rows = packed_rows(packing, stream, np.arange(len(packing)))
    inside = (rows.segment_ids[:, 1:] == rows.segment_ids[:, :-1]) & (rows.segment_ids[:, 1:] != PADDING)
    before, after = rows.tokens[:, :-1][inside], rows.tokens[:, 1:][inside]
    np.testing.assert_array_equal(after, before + 1)
    documents = np.searchsorted(borders, stream, side="right")
    wanted = [token for token in stream[1:] if documents[token] == documents[token - 1]]
    np.testing.assert_array_equal(np.sort(after), wanted)
    np.testing.assert_array_equal(packing.predictions(), inside.sum(axis=1))


@given(lengths, st.integers(1, 12))
def test_no_two_rows_would_fit_in_one(sizes, length):
    packing = pack(offsets(sizes), length)
    used = np.add.reduceat(packing.ends - packing.begins, packing.rows[:-1])
    assert (used <= length + 1).all()
    assert len(used) < 2 or np.sort(used)[:2].sum() > length + 1


def test_rows_are_found_one_by_one_as_together():
    packing = pack(offsets([5, 3, 9, 2, 2, 7]), 6)
    stream = np.arange(28) + 100
    together = packed_rows(packing, stream, np.arange(len(packing)))
    for row in range(len(packing)):
        alone = packed_rows(packing, stream, np.array([row]))
        np.testing.assert_array_equal(alone.tokens[0], together.tokens[row])
        np.testing.assert_array_equal(alone.segment_ids[0], together.segment_ids[row])


def test_a_row_holds_its_documents_side_by_side_and_padding_at_the_end():
    packing = pack(offsets([3, 2, 4]), 7)
    rows = packed_rows(packing, np.arange(10, 19), np.arange(len(packing)))
    assert rows.tokens.tolist() == [[10, 11, 12, 15, 16, 17, 18, 0], [13, 14, 0, 0, 0, 0, 0, 0]]
    assert rows.segment_ids.tolist() == [[0, 0, 0, 1, 1, 1, 1, -1], [0, 0, -1, -1, -1, -1, -1, -1]]


def test_after_a_separator_the_first_token_of_a_document_is_predicted_too():
    stream = np.array([1, 2, 0, 3, 0, 0, 4, 5, 0])  # 0 ends a document; the third one is empty
    packing = pack(np.array([0, 3, 5, 6, 9]), 8, separated=True)
    rows = packed_rows(packing, stream, np.arange(len(packing)))
    pieces = [
        row[segments == piece].tolist()
        for row, segments in zip(*rows, strict=True)
        for piece in range(segments.max() + 1)
    ]
    assert sorted(pieces) == [[0, 0], [0, 3, 0], [0, 4, 5, 0], [1, 2, 0]]
    assert packing.predictions().sum() == 2 + 2 + 1 + 3


def test_documents_that_predict_nothing_are_refused():
    with pytest.raises(ValueError, match="no document has two tokens, so nothing can be predicted; leave this stream"):
        pack(offsets([1, 0, 1]), 8)
