"""Numbers, texts, truths and nothing: values that are one chunk of canonical bytes, with nothing inside."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from marin_dsl.encoding import tags
from marin_dsl.encoding.leaves import LEAF_THRESHOLD
from marin_dsl.encoding.tags import head

_SMALL_INTS = [head(tags.UNSIGNED, n) for n in range(1024)]
_TWO_BYTES = struct.Struct(">BH").pack
_NAN = b"\xf9\x7e\x00"
_DOUBLE, _SINGLE, _HALF = map(struct.Struct, (">d", ">f", ">e"))


def _none(value: None) -> bytes:
    return b"\xf6"


def _truth(value: bool) -> bytes:
    return b"\xf5" if value else b"\xf4"


def _integer(value: int) -> bytes:
    if 0 <= value < 1024:
        return _SMALL_INTS[value]
    if 1024 <= value < 0x10000:
        return _TWO_BYTES(0x19, value)
    if -(1 << 64) <= value < 1 << 64:
        return head(tags.UNSIGNED, value) if value >= 0 else head(tags.NEGATIVE, -1 - value)
    magnitude = value if value >= 0 else -1 - value
    tag = tags.BIGNUM if value >= 0 else tags.NEGATIVE_BIGNUM
    return head(tags.TAG, tag) + _bytes(magnitude.to_bytes((magnitude.bit_length() + 7) // 8, "big"))


def _float(value: float) -> bytes:
    return _NAN if value != value else (_shorter(value) or b"\xfb" + _DOUBLE.pack(value))


def _shorter(value: float) -> bytes | None:
    """The shortest of the narrower forms that keeps every bit (RFC 8949, section 4.2.1: preferred serialisation)."""
    best = None
    for form, initial in ((_SINGLE, b"\xfa"), (_HALF, b"\xf9")):
        try:
            narrow = form.pack(value)
        except OverflowError:
            break
        if form.unpack(narrow)[0] != value:  # a zero keeps its sign in every form
            break
        best = initial + narrow
    return best


def _text(value: str) -> bytes | None:
    if len(value) >= LEAF_THRESHOLD:  # and so are its bytes: they are made once, by who writes them
        return None
    try:
        data = value.encode()
    except UnicodeEncodeError:
        return surrogate_text(value)
    return head(tags.TEXT, len(data)) + data if len(data) < LEAF_THRESHOLD else None


def surrogate_text(value: str) -> bytes:
    """A text with lone surrogates (file names, broken scrapes), which is no UTF-8: it gets a tag of its own."""
    return head(tags.TAG, tags.SURROGATE_TEXT) + _bytes(value.encode("utf-8", "surrogatepass"))


def _bytes(data: bytes) -> bytes:
    return head(tags.BYTES, len(data)) + data


PLAIN: dict[type, Callable[[Any], bytes | None]] = {
    type(None): _none,
    bool: _truth,
    int: _integer,
    float: _float,
    str: _text,
}
"""By exact type, the canonical bytes of a value; None: the value is large, and more than one chunk."""
