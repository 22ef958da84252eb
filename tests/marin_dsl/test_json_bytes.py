"""Documents are the same whichever library writes them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl.json_bytes import json_bytes

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
characters = st.characters(exclude_categories=())  # lone surrogates too: names of files may hold them
documents = st.dictionaries(
    st.text(characters),
    st.recursive(
        scalars | st.text(characters), lambda inner: st.lists(inner) | st.dictionaries(st.text(characters), inner)
    ),
)


@given(documents, st.booleans())
def test_every_document_is_read_back_as_it_was(document, sort):
    data = json_bytes(document, sort=sort)
    assert b"\n" not in data
    assert json.loads(data.decode("utf-8", "surrogatepass")) == document


@given(documents)
def test_the_order_of_items_decides_nothing_in_a_sorted_document(document):
    assert json_bytes(document, sort=True) == json_bytes(dict(reversed(document.items())), sort=True)


def test_what_is_no_number_is_not_nothing():
    assert json_bytes({"a": [{"b": float("nan")}], "c": None}) == b'{"a":[{"b":NaN}],"c":null}'


def test_what_has_no_form_in_json_is_refused_or_spelled_as_told():
    with pytest.raises(TypeError, match="object"):
        json_bytes({"a": object()})
    assert json_bytes({"a": 1 + 2j, "b": "\ud800", "c": 2**70}, default=str) == (
        b'{"a":"(1+2j)","b":"\xed\xa0\x80","c":1180591620717411303424}'
    )
