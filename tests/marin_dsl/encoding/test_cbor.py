"""The bytes are deterministic CBOR (RFC 8949, section 4.2): held against cbor2 and a checker of our own."""

import collections
import math
import struct

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl.encoding import decode, encode
from marin_dsl.testing import same, values
from tests.marin_dsl.encoding import examples


def plain():
    """Values that CBOR knows without tags, big integers apart."""
    numbers = st.integers(-(1 << 70), 1 << 70)
    scalars = st.none() | st.booleans() | numbers | st.floats() | st.text() | st.binary()
    keys = st.booleans() | numbers | st.text() | st.binary()
    return st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=10)


@given(plain())
def test_cbor2_reads_plain_values_from_our_bytes(value):
    assert same(cbor2.loads(encode(value)), value)


@given(plain())
def test_we_read_what_cbor2_writes_canonically(value):
    assert same(decode(cbor2.dumps(value, canonical=True)), value)


@given(st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.floats() | st.integers()))
def test_values_without_maps_have_the_canonical_bytes_of_cbor2(value):
    assert encode(value) == cbor2.dumps(value, canonical=True)


@given(values())
def test_any_value_is_well_formed_deterministic_cbor(value):
    data = encode(value)
    assert deterministic_end(data, 0) == len(data)
    cbor2.loads(data, tag_hook=lambda decoder, tag: ())


@pytest.mark.parametrize("name", examples.all_values())
def test_an_example_is_well_formed_deterministic_cbor(name):
    data = encode(examples.all_values()[name])
    assert deterministic_end(data, 0) == len(data)


def deterministic_end(data, at):
    """Where the item at `at` ends; fails unless it is in the one deterministic form."""
    major, short = data[at] >> 5, data[at] & 31
    at += 1
    width = {24: 1, 25: 2, 26: 4, 27: 8}.get(short, 0)
    assert short <= 27, "indefinite length or reserved"
    argument = int.from_bytes(data[at : at + width], "big") if width else short
    at += width
    assert at <= len(data)
    if major == 7:
        _check_simple(short, argument)
        return at
    assert width == 0 or argument >= {1: 24, 2: 1 << 8, 4: 1 << 16, 8: 1 << 32}[width], "not the shortest head"
    if major in (2, 3):
        assert at + argument <= len(data)
        if major == 3:
            data[at : at + argument].decode("utf-8")
        return at + argument
    if major == 4:
        for _ in range(argument):
            at = deterministic_end(data, at)
    if major == 5:
        at = _check_map(data, at, argument)
    if major == 6:
        start, at = at, deterministic_end(data, at)
        if argument in (2, 3):
            assert data[start] >> 5 == 2, "a bignum is bytes"
            assert at - start > 8, "a bignum that fits a plain integer"
    return at


def _check_map(data, at, count):
    keys = []
    for _ in range(count):
        start, at = at, deterministic_end(data, at)
        keys.append(data[start:at])
        at = deterministic_end(data, at)
    assert keys == sorted(set(keys)), "keys out of order or twice"
    return at


def _check_simple(short, argument):
    if short < 24:
        assert short in (20, 21, 22)
        return
    value = struct.unpack(
        {25: ">e", 26: ">f", 27: ">d"}[short], argument.to_bytes({25: 2, 26: 4, 27: 8}[short], "big")
    )[0]
    if math.isnan(value):
        assert (short, argument) == (25, 0x7E00), "not the one NaN"
        return
    for code in {26: (">e",), 27: (">e", ">f")}.get(short, ()):
        assert not _survives(value, code), "a shorter float has every bit"


def _survives(value, code):
    try:
        return struct.unpack(code, struct.pack(code, value))[0] == value
    except OverflowError:
        return False


# RFC 8949, appendix A: the examples that are deterministic and made of what we write.
APPENDIX_A = {
    "00": 0,
    "17": 23,
    "1818": 24,
    "1903e8": 1000,
    "1a000f4240": 1000000,
    "1b000000e8d4a51000": 1000000000000,
    "1bffffffffffffffff": 18446744073709551615,
    "c249010000000000000000": 18446744073709551616,
    "3bffffffffffffffff": -18446744073709551616,
    "c349010000000000000000": -18446744073709551617,
    "20": -1,
    "3903e7": -1000,
    "f90000": 0.0,
    "f98000": -0.0,
    "f93c00": 1.0,
    "fb3ff199999999999a": 1.1,
    "f97bff": 65504.0,
    "fa47c35000": 100000.0,
    "fa7f7fffff": 3.4028234663852886e38,
    "fb7e37e43c8800759c": 1.0e300,
    "f90001": 5.960464477539063e-8,
    "f90400": 0.00006103515625,
    "f9c400": -4.0,
    "f97c00": math.inf,
    "f97e00": math.nan,
    "f9fc00": -math.inf,
    "f4": False,
    "f5": True,
    "f6": None,
    "40": b"",
    "4401020304": b"\1\2\3\4",
    "60": "",
    "6449455446": "IETF",
    "62225c": '"\\',
    "62c3bc": "ü",
    "64f0908591": "\U00010151",
    "80": [],
    "8301820203820405": [1, [2, 3], [4, 5]],
    "a0": {},
    "a201020304": {1: 2, 3: 4},
    "a26161016162820203": {"a": 1, "b": [2, 3]},
}


@pytest.mark.parametrize("expected", APPENDIX_A)
def test_the_examples_of_the_standard(expected):
    value = APPENDIX_A[expected]
    assert encode(value).hex() == expected
    assert same(decode(bytes.fromhex(expected)), value)


def test_keys_are_sorted_by_their_bytes_as_the_standard_shows():
    # RFC 8949, section 4.2.1: 10, 100, -1, "z", "aa", [100], [-1], false; lists cannot be keys here.
    value = collections.OrderedDict.fromkeys([False, "aa", "z", -1, 100, 10])
    assert list(decode(encode(dict(value)))) == [10, 100, -1, "z", "aa", False]
