import pytest
from hypothesis import given
from hypothesis import strategies as st

from library.documents import Document
from library.sampling import by_hash, rank, up_to_bytes

names = st.lists(st.text(st.characters(codec="utf-8")), unique=True)


@given(names, st.randoms(use_true_random=False))
def test_the_order_by_hash_does_not_depend_on_the_order_given(given_names, random):
    shuffled = random.sample(given_names, len(given_names))
    assert by_hash(shuffled, "s") == by_hash(given_names, "s")


@given(names, st.text(st.characters(codec="utf-8")))
def test_a_newcomer_does_not_change_the_order_of_the_others(given_names, newcomer):
    order = [name for name in by_hash([*given_names, newcomer], "s") if name != newcomer]
    assert order == [name for name in by_hash(given_names, "s") if name != newcomer]


@given(names)
def test_the_order_by_hash_is_that_of_the_ranks(given_names):
    ranks = [rank(name, "s") for name in by_hash(given_names, "s")]
    assert ranks == sorted(ranks)


def test_the_order_by_hash_is_neither_sorted_nor_the_same_for_another_salt():
    given_names = [f"file{number}" for number in range(20)]
    assert by_hash(given_names, "s") != given_names
    assert by_hash(given_names, "s") != by_hash(given_names, "t")


def test_ranks_are_pinned_and_spread_evenly():
    assert rank("name", "salt") == 1650496169512971718
    ranks = [rank(str(number), "salt") / 2**64 for number in range(4000)]
    assert all(0 <= value < 1 for value in ranks)
    assert abs(sum(ranks) / len(ranks) - 0.5) < 0.02


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=8), st.integers(1, 40))
def test_a_limit_gives_the_longest_prefix_that_fits(texts, limit):
    documents = [Document.of(text, str(number)) for number, text in enumerate(texts)]
    sizes = [len(text.encode()) for text in texts]
    fitting = max(count for count in range(len(sizes) + 1) if sum(sizes[:count]) <= limit)
    if documents and sizes[0] > limit:
        with pytest.raises(ValueError, match="holds no document"):
            list(up_to_bytes(documents, limit))
    else:
        assert list(up_to_bytes(documents, limit)) == documents[:fitting]


def test_no_limit_gives_all_and_a_limit_reads_no_further_than_it_must():
    assert len(list(up_to_bytes([Document.of("ab", "x")] * 3, None))) == 3
    endless = (Document.of("ab", str(number)) for number in iter(int, 1))
    assert len(list(up_to_bytes(endless, 5))) == 2


def test_a_limit_smaller_than_the_first_document_names_both_sizes():
    with pytest.raises(ValueError, match="limit_bytes=3 holds no document: the first, x, has 4 bytes; raise the limit"):
        list(up_to_bytes([Document.of("abcd", "x")], 3))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_is_not_positive_is_refused(limit):
    with pytest.raises(ValueError, match=f"limit_bytes={limit}; expected a positive number of bytes, or None"):
        list(up_to_bytes([], limit))
