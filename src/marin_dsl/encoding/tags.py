"""The CBOR tags of the encoding: the closed set, and the head bytes of a data item."""

from __future__ import annotations

import struct

UNSIGNED, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG = range(7)

BIGNUM = 2
NEGATIVE_BIGNUM = 3
SET = 258
TUPLE = 40500
FROZENSET = 40501
SURROGATE_TEXT = 40502
OBJECT = 40503
ENUM = 40504
NUMPY_ARRAY = 40505
NUMPY_SCALAR = 40506
LEAF = 40507
LARGE_BYTES = 40508
LARGE_TEXT = 40509
EXPRESSION = 40510
SIMPLE = 40511
FUNCTION = 40512


def head(major: int, argument: int) -> bytes:
    """The initial bytes of a data item: major type and argument in the shortest form (RFC 8949, section 3)."""
    major <<= 5
    if argument < 24:
        return bytes((major | argument,))
    if argument < 0x100:
        return bytes((major | 24, argument))
    if argument < 0x10000:
        return struct.pack(">BH", major | 25, argument)
    if argument < 0x100000000:
        return struct.pack(">BI", major | 26, argument)
    return struct.pack(">BQ", major | 27, argument)
