"""Records carry their digest: a damaged one is a miss, a later one is refused, neither is taken for the other."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl.store import StoreUnavailable
from marin_dsl.store.records import SCHEMA, NewerSchema, read_record, write_record

PLACE = "failures/" + "ab" * 32 + "/000001.json"

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=10,
)
records = st.dictionaries(st.text(), plain, max_size=5)


@given(records)
def test_a_record_is_read_as_it_was_written(record):
    assert read_record(PLACE, write_record(PLACE, record)) == record


@given(records)
def test_the_order_of_its_keys_changes_no_byte_of_a_record(record):
    assert write_record(PLACE, dict(reversed(record.items()))) == write_record(PLACE, record)


@given(records, st.data())
def test_a_record_with_any_byte_changed_is_no_record(record, data):
    damaged = bytearray(write_record(PLACE, record))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    assert read_record(PLACE, bytes(damaged)) is None


def test_every_bit_of_a_record_is_covered():
    good = write_record(PLACE, {"value": {"digest": "sha256:00", "inline": None}, "seconds": 1.5, "name": "é"})
    for place in range(len(good) * 8):
        damaged = bytearray(good)
        damaged[place // 8] ^= 1 << place % 8
        assert read_record(PLACE, bytes(damaged)) is None


@given(records, st.data())
def test_a_record_cut_short_is_no_record(record, data):
    good = write_record(PLACE, record)
    assert read_record(PLACE, good[: data.draw(st.integers(0, len(good) - 1))]) is None


@given(st.binary() | st.text().map(str.encode) | plain.map(lambda value: json.dumps(value).encode()))
def test_any_other_content_is_no_record(data):
    assert read_record(PLACE, data) is None


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"{}", b"[" * 100_000, b"9" * 10_000, b"\xff\xfe", b'{"schema":1}']
)
def test_garbage_is_no_record(data):
    assert read_record(PLACE, data) is None


def test_an_absent_record_is_none():
    assert read_record(PLACE, None) is None


def test_a_record_of_a_later_version_is_refused():
    with pytest.raises(NewerSchema) as caught:
        read_record(PLACE, write_record(PLACE, {"a": 1}, schema=SCHEMA + 1))
    assert str(caught.value) == (
        f"a record has schema {SCHEMA + 1}, and this version of Marin DSL reads up to {SCHEMA}; upgrade it"
    )


def test_a_flipped_schema_number_is_damage_and_no_later_version():
    assert read_record(PLACE, write_record(PLACE, {"a": 1}).replace(b'"schema":2', b'"schema":9')) is None


def test_the_store_says_which_record_is_of_a_later_version(store):
    store.files.create("a/b.json", write_record("a/b.json", {}, schema=SCHEMA + 1))
    with pytest.raises(StoreUnavailable) as caught:
        store.read("a/b.json")
    assert str(caught.value).startswith(f"store {store.url}: a/b.json: a record has schema {SCHEMA + 1}, and this")


def test_a_record_of_the_first_schema_stays_readable(store):
    earlier = (
        b'{"schema":1,"digest":"sha256:bde1d68671fe3e53ee0083e35cbc713793020af3a27ee899907829db41fdc93c",'
        b'"record":{"a":"\xc3\xa9","b":[1,null]}}\n'
    )
    store.files.create("a/b.json", earlier)
    assert store.read("a/b.json") == {"a": "é", "b": [1, None]}
    assert read_record("a/b.json", earlier.replace(b"null", b"true")) is None
    # Its digest would be right at any place: it must be none of the schema that is written now.
    assert read_record("a/b.json", earlier.replace(b'"schema":1', b'"schema":2')) is None


PLACES = [
    PLACE, "failures/" + "ab" * 32 + "/000002.json", "conflicts/" + "ab" * 32 + "/000001.json",
    "results/ab/" + "cd" * 31 + ".json", "results/ac/" + "cd" * 31 + ".json",
    "recipes/ab/" + "cd" * 31 + ".call", "recipes/ab/" + "cd" * 31 + ".next",
    "labels/name/@1.0/000001.json", "labels/name/@1.0/000002.json", "labels/name/@1.1/000001.json",
    "history/name/@1.0/000001.json", "runs/a/start/000001.json", "runs/b/start/000001.json", "runs/a/end/000001.json",
    "skips/ab/" + "cd" * 31 + ".json", "equivalences/" + "ab" * 32 + "/000001.json",
]  # fmt: skip


@given(records, st.sampled_from(PLACES), st.sampled_from(PLACES))
def test_a_record_is_none_at_another_place(record, one, other):
    assert (read_record(other, write_record(one, record)) is None) == (one != other)


@given(records, st.sampled_from(PLACES), st.sampled_from(PLACES))
def test_a_record_is_the_same_in_the_trash(record, one, other):
    assert (read_record(f"trash/{other}", write_record(one, record)) is None) == (one != other)


def test_the_record_of_an_expression_without_inputs_is_that_of_its_call_too():
    digits = "ab/" + "cd" * 31 + ".json"
    assert read_record(f"recipes/{digits}", write_record(f"results/{digits}", {"a": 1})) == {"a": 1}


def test_the_form_of_a_record_is_fixed():
    assert write_record(PLACE, {"b": [1, None], "a": "é"}) == (
        b'{"schema":2,"digest":"sha256:5054b0b513dd8f891d404d75c5e12c201e275f01b348836c89c407f97b5c15f4",'
        b'"record":{"a":"\xc3\xa9","b":[1,null]}}\n'
    )
