import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from marin_models import Stops
from marin_models.stopping import first_stop


def letters(tokens):
    return "".join("ab"[token] * (1 + token) for token in tokens)  # a token may stand for several characters


def found(tokens, **arguments):
    searched = arguments.pop("searched", 0)
    return first_stop(np.array(tokens, np.int32), Stops(decode=letters, **arguments), searched=searched)


def test_a_sequence_is_found_where_it_is_complete():
    assert found([0, 1, 1, 0, 1], sequences=[(1, 0)]) == (4, (1, 0))
    assert found([0, 1, 1], sequences=[(1, 0)]) is None


def test_a_string_may_begin_and_end_inside_of_tokens():
    assert letters([0, 1, 0]) == "abba"
    assert found([0, 1, 0], strings=["ab"]) == (2, "ab")
    assert found([0, 1, 0], strings=["ba"]) == (3, "ba")


def test_of_stops_completed_by_the_same_token_sequences_and_then_the_first_named_count():
    assert found([0, 1], strings=["ab", "b"], sequences=[(1,)]) == (2, (1,))
    assert found([0, 1], strings=["ab", "b"]) == (2, "ab")


tokens = st.lists(st.integers(0, 1), max_size=12)
stop_lists = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=3), max_size=3)


@given(tokens, stop_lists, st.lists(st.text("ab", min_size=1, max_size=3), max_size=2), st.data())
def test_a_search_in_two_parts_finds_what_one_search_finds(tokens, sequences, strings, data):
    cut = data.draw(st.integers(0, len(tokens)))
    stops = {"sequences": sequences, "strings": strings}
    whole = found(tokens, **stops)
    first = found(tokens[:cut], **stops)
    assert whole == (first or found(tokens, searched=cut, **stops))
    shortest = [n for n in range(len(tokens) + 1) if found(tokens[:n], **stops)]
    assert (whole[0] if whole else None) == (shortest[0] if shortest else None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sequences": [()]}, r"an empty stop in sequences \(\(\),\).*leave it out"),
        ({"strings": [""], "decode": letters}, r"an empty stop .* strings \(''\,\)"),
        ({"strings": ["."]}, r"strings \('\.',\) are looked for in text; give `decode`"),
        ({"strings": "ab", "decode": letters}, r"write \['ab'\] instead of 'ab'"),
    ],
)
def test_a_stop_that_cannot_work_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Stops(**arguments)
