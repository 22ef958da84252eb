"""CBOR data items of definite length (RFC 8949): bytes to plain values, tags by a callback."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from marin_dsl.encoding import tags

_SIMPLE = {20: False, 21: True, 22: None}
_FLOATS = {25: (">e", 2), 26: (">f", 4), 27: (">d", 8)}
_WIDTHS = {24: 1, 25: 2, 26: 4, 27: 8}


class Items:
    """Reads data items one after the other.

    Only what the encoding writes is accepted: definite lengths, no undefined, nothing after the end. Content of tags is
    read like any other, so that a list stays a list wherever it stands.

    Args:
        data: the bytes.
        tag: from the number and the content of a tag to what it stands for.
    """

    def __init__(self, data: bytes, tag: Callable[[int, Any], Any]) -> None:
        self._data, self._at, self._tag = data, 0, tag

    def next(self) -> Any:
        """The next item.

        Raises:
            ValueError: the bytes end too early, or are no item of the encoding.
        """
        # Written for speed: nearly all items have a short argument, which needs no call.
        at = self._at
        try:
            initial = self._data[at]
        except IndexError:
            raise self._cut_short() from None
        self._at = at = at + 1
        major, argument = initial >> 5, initial & 31
        if major == 7:
            return self._simple(argument)
        if argument == 24 and at < len(self._data):
            argument = self._data[at]
            self._at = at = at + 1
        elif argument >= 24:
            argument = self._argument(argument)
            at = self._at
        if major == tags.UNSIGNED:
            return argument
        if major == tags.TEXT or major == tags.BYTES:
            end = at + argument
            if end > len(self._data):
                raise self._cut_short()
            self._at = end
            taken = self._data[at:end]
            return taken.decode() if major == tags.TEXT else taken
        if major == tags.ARRAY:
            return [self.next() for _ in range(argument)]
        if major == tags.MAP:
            return self._map(argument)
        return self._tag(argument, self.next()) if major == tags.TAG else -1 - argument

    def finish(self) -> None:
        """Make sure that nothing is left.

        Raises:
            ValueError: something is.
        """
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes follow the value")

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise self._cut_short()
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _cut_short(self) -> ValueError:
        return ValueError(f"they end after {len(self._data)} bytes, in the middle of an item")

    def _argument(self, short: int) -> int:
        if short not in _WIDTHS:
            raise ValueError(f"byte {self._at - 1} begins an item of indefinite length or of a reserved kind")
        return int.from_bytes(self._take(_WIDTHS[short]), "big")

    def _simple(self, short: int) -> Any:
        if short in _FLOATS:
            code, width = _FLOATS[short]
            return struct.unpack(code, self._take(width))[0]
        if short not in _SIMPLE:
            raise ValueError(f"byte {self._at - 1} is a simple value that the encoding does not use")
        return _SIMPLE[short]

    def _map(self, count: int) -> dict[Any, Any]:
        found = {}
        for _ in range(count):
            key = self.next()
            found[key] = self.next()
        if len(found) != count:
            raise ValueError("a map has the same key twice")
        return found
