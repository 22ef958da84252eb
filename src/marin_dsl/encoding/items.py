"""CBOR data items of definite length (RFC 8949): bytes to plain values, tags by a callback."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from marin_dsl.encoding.tags import ARRAY, BYTES, MAP, TAG, TEXT, UNSIGNED

_SIMPLE = {20: False, 21: True, 22: None}
_FLOATS = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
_SIMPLE_OR_FLOAT = 7
_STRINGS = (TEXT, BYTES)


def read_item(data: bytes, tag: Callable[[int, Any], Any]) -> Any:
    """The one data item that the bytes are.

    Only what the encoding writes is accepted: definite lengths, no undefined, nothing after the end. Content of tags is
    read like any other, so that a list stays a list wherever it stands.

    Args:
        data: the bytes.
        tag: from the number and the content of a tag to what it stands for.

    Raises:
        ValueError: the bytes end too early or too late, or are no item of the encoding.
    """
    # One closure and few calls: all that is ever served or computed goes through here, number by number. Bytes that end
    # too early are noticed by whatever comes next, at the latest by the end.
    at, size = 0, len(data)
    from_bytes = int.from_bytes

    def item() -> Any:
        nonlocal at
        if at >= size:
            raise _cut_short(size)
        initial = data[at]
        at += 1
        major, argument = initial >> 5, initial & 31
        if argument >= 24 and major != _SIMPLE_OR_FLOAT:
            if argument > 27:
                raise ValueError(f"byte {at - 1} begins an item of indefinite length or of a reserved kind")
            begin = at
            at += 1 << (argument - 24)
            argument = from_bytes(data[begin:at], "big")
        if major == UNSIGNED:
            return argument
        if major in _STRINGS:
            begin = at
            at += argument
            if at > size:
                raise _cut_short(size)
            return data[begin:at].decode() if major == TEXT else data[begin:at]
        if major == ARRAY:
            return [item() for _ in range(argument)]
        if major == MAP:
            pairs = {item(): item() for _ in range(argument)}
            if len(pairs) != argument:
                raise ValueError("a map has the same key twice")
            return pairs
        if major == TAG:
            content = item()
            if at > size:  # nothing is made of half a number
                raise _cut_short(size)
            return tag(argument, content)
        if major == _SIMPLE_OR_FLOAT:
            value, width = _simple(data, at, argument)
            at += width
            return value
        return -1 - argument

    found = item()
    if at > size:
        raise _cut_short(size)
    if at < size:
        raise ValueError(f"{size - at} bytes follow the value")
    return found


def _cut_short(size: int) -> ValueError:
    return ValueError(f"they end after {size} bytes, in the middle of an item")


def _simple(data: bytes, at: int, short: int) -> tuple[Any, int]:
    """The simple value or float whose initial byte is before `at`, and how many bytes more it takes."""
    if short in _FLOATS:
        if at + _FLOATS[short].size > len(data):
            raise _cut_short(len(data))
        return _FLOATS[short].unpack_from(data, at)[0], _FLOATS[short].size
    if short not in _SIMPLE:
        raise ValueError(f"byte {at - 1} is a simple value that the encoding does not use")
    return _SIMPLE[short], 0
