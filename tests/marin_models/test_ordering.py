import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from marin_models.ordering import BLOCK, block_rows, places, shuffled

seeds = st.integers(0, 2**40)


@given(st.integers(1, 300), st.integers(0, 1000), seeds)
def test_a_shuffle_puts_every_index_somewhere_else_once(size, number, seed):
    index = np.arange(size)
    found = shuffled(index, np.full(size, number), size, seed=seed)
    np.testing.assert_array_equal(np.sort(found), index)
    one = shuffled(index[-1:], np.array([number]), size, seed=seed)
    assert one[0] == found[-1]


def test_shuffles_differ_by_number_seed_and_stream_and_leave_little_in_place():
    index, first = np.arange(1000), np.zeros(1000, int)
    one = shuffled(index, first, 1000, seed=1)
    for other in (
        index,
        shuffled(index, first + 1, 1000, seed=1),
        shuffled(index, first, 1000, seed=2),
        shuffled(index, first, 1000, seed=1, stream=1),
    ):
        assert (one == other).sum() < 10
    assert abs(np.corrcoef(index, one)[0, 1]) < 0.1


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0.01, 10)), min_size=1, max_size=6), seeds, st.integers(0, 50))
def test_each_row_of_a_source_comes_once_before_any_comes_again(sources, seed, block):
    sizes, weights = zip(*sources, strict=True)
    found = places(sizes, weights, np.arange(2 * BLOCK), seed=seed)
    for number, size in enumerate(sizes):
        rows = found.row[found.source == number]
        assert len(rows) >= 2 * BLOCK * weights[number] / sum(weights) - 1
        for begin in range(0, len(rows), size):
            part = rows[begin : begin + size]
            assert len(np.unique(part)) == len(part)
            assert part.max() < size
    later = places(sizes, weights, np.arange(BLOCK) + block * BLOCK, seed=seed)
    assert np.bincount(later.source, minlength=len(sizes)).sum() == BLOCK


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), seeds)
def test_a_position_is_the_same_whoever_asks_for_it_and_with_what_else(positions, seed):
    sizes, weights = (7, 100, 31), (1.0, 0.2, 3.0)
    together = places(sizes, weights, np.array(positions), seed=seed)
    for number, position in enumerate(positions):
        alone = places(sizes, weights, np.array([position]), seed=seed)
        assert (alone.source[0], alone.row[0]) == (together.source[number], together.row[number])


@given(st.lists(st.floats(0.01, 10), min_size=33, max_size=200), st.booleans(), seeds)
def test_of_many_sources_each_has_its_share_of_every_block(weights, equal, seed):
    weights = np.ones(len(weights)) if equal else np.array(weights)
    rows, heaviest = block_rows(weights), np.argmax(weights)
    found = places([7] * len(weights), weights.tolist(), np.arange(3 * rows), seed=seed)
    shares = rows * weights / weights.sum()
    for source in found.source.reshape(3, rows):
        counts = np.bincount(source, minlength=len(weights))
        others = np.delete(np.abs(counts - shares), heaviest)
        assert others.max() < 1 + 1e-6
    assert rows == BLOCK or rows < 4 * len(weights) ** 2


def test_few_sources_share_blocks_of_the_usual_size():
    assert block_rows(np.ones(32)) == BLOCK
    assert block_rows(np.ones(33)) == 2 * BLOCK
    assert block_rows(np.array([100.0, *[1.0] * 99])) == BLOCK


def test_no_positions_have_no_places():
    assert places((7, 100), (1.0, 3.0), np.arange(0), seed=7).row.shape == (0,)


def test_a_light_source_comes_too():
    found = places((10, 10), (1.0, 1e-4), np.arange(30 * BLOCK), seed=0)
    assert (found.source == 1).sum() == int(30 * BLOCK * 1e-4 / (1 + 1e-4))


def test_the_order_of_a_seed_never_changes():
    # A change here changes every experiment's data order: it needs a new major version.
    found = places((7, 100), (1.0, 3.0), np.arange(1020, 1030), seed=7)
    assert found.source.tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    assert found.row.tolist() == [2, 5, 36, 68, 78, 44, 97, 56, 82, 79]
