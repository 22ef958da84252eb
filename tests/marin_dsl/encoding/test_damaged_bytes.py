"""Bytes that are no value: said as `Undecodable`, soon, and without taking memory."""

import fractions
import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from marin_dsl.encoding import LeafMissing, Undecodable, decode, encode, tags
from marin_dsl.encoding.tags import head
from marin_dsl.testing import values
from tests.marin_dsl.encoding import examples

TAGS = [number for name, number in vars(tags).items() if name.isupper() and number > 6]


def read(data, **how):
    """Decode, where being refused is fine and everything else is not."""
    try:
        return decode(data, **how)
    except (Undecodable, LeafMissing) as error:
        return error


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    read(data)
    read(data, lazy=True, nameless=True)


def items():
    """CBOR that is well-formed and has our tags, with any content under them."""
    numbers = st.integers(-(1 << 64), (1 << 64) - 1) | st.sampled_from([1 << 60, (1 << 63) - 1, 10**8])
    names = st.sampled_from(
        ["<f8", "|O", "<U9", "<M8[s]", "bfloat16", "finfo", "", "<i4,<i4", "os:environ", "os:system", "a", "range",
         "decimal", "fraction", "uuid", "datetime", "date", "complex", "timedelta", "zone", "offset", "marin:File",
         "marin:Directory", "marin:Ok", "tests.marin_dsl.encoding.examples:Point", "U", "S", "content", "files", "x"]
    )  # fmt: skip
    plain = st.one_of(
        numbers, st.floats(), st.text(max_size=5), names, st.binary(max_size=40), st.none(), st.booleans()
    )
    scalars = plain.map(encode)
    return st.recursive(scalars, _compound, max_leaves=12)


def _compound(inner):
    lists = st.lists(inner, max_size=4).map(lambda parts: head(tags.ARRAY, len(parts)) + b"".join(parts))
    maps = st.lists(st.tuples(inner, inner), max_size=3).map(
        lambda pairs: head(tags.MAP, len(pairs)) + b"".join(key + value for key, value in pairs)
    )
    tagged = st.builds(lambda number, content: head(tags.TAG, number) + content, st.sampled_from(TAGS), inner | lists)
    return lists | maps | tagged


@given(items())
def test_any_content_under_our_tags_is_read_or_refused(data):
    read(data)
    read(data, lazy=True)
    read(data, nameless=True)
    read(data, read_leaf=lambda digest, size: b"\0" * min(size, 100), reference=lambda key: key)


@given(values(max_leaves=5), st.integers(1, 20))
@example(fractions.Fraction(1, 24), 1)
def test_a_value_cut_short_is_refused(value, missing):
    data = encode(value)
    with pytest.raises(
        Undecodable, match=r"^these \d+ bytes are no value that can be read here: they end after \d+ byte"
    ):
        decode(data[: max(0, len(data) - missing)])


@given(values(max_leaves=5), st.binary(min_size=1, max_size=5))
def test_bytes_after_a_value_are_refused(value, more):
    with pytest.raises(Undecodable, match=rf"read here: {len(more)} bytes follow the value$"):
        decode(encode(value) + more)


def tagged(tag, *parts):
    return head(tags.TAG, getattr(tags, tag)) + encode(list(parts))


CLAIMS = {
    "list of 2^60": "9b1000000000000000",
    "list of 2^64-1": "9bffffffffffffffff",
    "map of 2^60": "bb1000000000000000",
    "text of 2^60": "7b1000000000000000",
    "bytes of 2^60": "5b1000000000000000",
    "many lists of 2^60": "9b1000000000000000" * 200,
    "array of 2^60 elements": (head(tags.TAG, tags.NUMPY_ARRAY) + encode(["<f8", [1 << 60], b""])).hex(),
    "array of 2^60 no elements": (head(tags.TAG, tags.NUMPY_ARRAY) + encode(["<f8", [1 << 60, 0], b""])).hex(),
    "array of wide text": (head(tags.TAG, tags.NUMPY_ARRAY) + encode(["<U400000000", [0], b""])).hex(),
    "scalar of wide text": (head(tags.TAG, tags.NUMPY_SCALAR) + encode(["<U400000000", b""])).hex(),
    "decimal of a great exponent": (head(tags.TAG, tags.SIMPLE) + encode(["decimal", [0, "1", 10**18]])).hex(),
    "large bytes by their number": (head(tags.TAG, tags.LARGE_BYTES) + encode(25276747998)).hex(),
    "large text by its number": (head(tags.TAG, tags.LARGE_TEXT) + encode(25276747998)).hex(),
    "scalar bytes by their number": tagged("NUMPY_SCALAR", "S", 25276747998).hex(),
    "set of a range": (head(tags.TAG, tags.SET) + encode(range(10**12))).hex(),
    "tuple of a range": (head(tags.TAG, tags.TUPLE) + encode(range(10**12))).hex(),
    "number of a range": tagged("SIMPLE", "complex", range(10**12)).hex(),
    "offset of a range": tagged("SIMPLE", "datetime", ["2024-01-01", ["offset", range(10**12)], 0]).hex(),
    "shape of a range": tagged("NUMPY_ARRAY", "<f8", range(10**12), b"").hex(),
    "deep lists": "81" * 100_000,
    "deep tags": "d9010281" * 50_000,
    "deep maps": "a100" * 50_000,
    "bignum without end": "c2" * 50_000,
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_that_the_bytes_do_not_keep_takes_neither_time_nor_memory(claim):
    tracemalloc.start()
    started = time.perf_counter()
    read(bytes.fromhex(CLAIMS[claim]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000
    assert time.perf_counter() - started < 5


MESSAGES = {
    "": "they end after 0 bytes, in the middle of an item",
    "9fff": "byte 0 begins an item of indefinite length or of a reserved kind",
    "f7": "byte 0 is a simple value that the encoding does not use",
    "c100": "tag 1 is not one of the encoding's",
    "a2 0001 0002": "a map has the same key twice",
    "61ff": "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
    tagged("ENUM", "os:environ", "PATH").hex(): "`os:environ` is no enumeration",
    tagged("ENUM", "tests.marin_dsl.encoding.examples:Colour", "BLUE").hex(): "'BLUE'",
    tagged("NUMPY_ARRAY", "|O", [1], bytes(8)).hex(): "module 'ml_dtypes' has no attribute '|O'",
    tagged("NUMPY_ARRAY", "<f8", [-1], bytes(8)).hex(): "[-1] is no shape",
    tagged("NUMPY_ARRAY", "<f8", [2], bytes(8)).hex(): "cannot reshape array of size 1 into shape (2,)",
    tagged("SIMPLE", "fraction", [1, 0]).hex(): (
        "`fraction` cannot be made from what is stored: ZeroDivisionError: Fraction(1, 0)"
    ),
    tagged("SIMPLE", "uuid", b"1").hex(): "`uuid` cannot be made from what is stored: bytes is not a 16-char string",
    tagged("LEAF", b"short", 5).hex(): "a leaf needs a digest of 32 bytes and a size",
    (head(tags.TAG, tags.EXPRESSION) + encode(bytes(32))).hex(): (
        "the value refers to an expression, which has no value here"
    ),
    (head(tags.TAG, tags.EXPRESSION) + encode(5)).hex(): "the value refers to an expression, which has no value here",
}  # fmt: skip


@pytest.mark.parametrize("data", MESSAGES)
def test_the_message_says_what_is_wrong(data):
    with pytest.raises(Undecodable) as caught:
        decode(bytes.fromhex(data))
    size = len(bytes.fromhex(data))
    assert str(caught.value) == f"these {size} bytes are no value that can be read here: {MESSAGES[data]}"


def test_the_key_of_an_expression_is_bytes():
    with pytest.raises(Undecodable, match="a int stands where a bytes belongs"):
        decode(head(tags.TAG, tags.EXPRESSION) + encode(5), reference=lambda key: key)


def test_a_module_that_fails_while_it_is_imported_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken_module_of_a_user.py").write_text("raise SystemError('not today')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        Undecodable, match=r"`broken_module_of_a_user:Thing` cannot be imported here \(not today\); is the"
    ):
        decode(tagged("OBJECT", "broken_module_of_a_user:Thing", 1, {}))


def test_a_leaf_that_no_store_was_given_for_is_missing():
    with pytest.raises(LeafMissing, match=r"^no store was given to read leaf sha256:[0-9a-f]{64} from$"):
        decode(encode("x" * 70_000))


def test_examples_are_not_read_as_something_else_when_a_leaf_has_other_content():
    data = encode(examples.plain()["large text"])
    assert decode(data, read_leaf=lambda digest, size: b"y" * size) == "y" * 70_000  # verifying is the store's part
