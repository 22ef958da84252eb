"""Canonical bytes to values."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from marin_dsl.encoding import tags
from marin_dsl.encoding.functions import function_meant
from marin_dsl.encoding.items import read_item
from marin_dsl.encoding.leaves import BoundLeaf, LazyContent, LeafMissing, ReadLeaf
from marin_dsl.encoding.places import importable
from marin_dsl.encoding.registry import codec_named
from marin_dsl.encoding.scalars import KINDS_BY_NAME


class Undecodable(ValueError):
    """Bytes that are no encoding of a value, or name a class that is not known here."""


def decode(
    data: bytes,
    *,
    read_leaf: ReadLeaf | None = None,
    reference: Callable[[bytes], Any] | None = None,
    lazy: bool = False,
    nameless: bool = False,
) -> Any:
    """The value of which `data` is the encoding.

    Arrays come back read-only; everything else is fresh with each call.

    Args:
        data: canonical bytes.
        read_leaf: where the large leaves are; without it a value that has some is refused.
        reference: what stands for the reference to an expression (its key is given).
        lazy: leave large leaves unread, as handles that encode as themselves.
        nameless: read objects of users' classes as `Named`, without needing their code.

    Raises:
        Undecodable: the bytes are damaged, or were written by code that cannot be found here.
        LeafMissing: a leaf is not where `read_leaf` looked.
    """
    reading = _Reading(read_leaf, reference, lazy, nameless)
    try:
        return read_item(data, reading.tag)
    except (LeafMissing, Undecodable):  # the latter of a part that was read by itself
        raise
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError, AttributeError) as error:
        cause = str(error) or type(error).__name__
        raise Undecodable(f"these {len(data)} bytes are no value that can be read here: {cause}") from error


@attrs.frozen
class Named:
    """An object of a user's class, read without the class: its registered name and its fields."""

    name: str
    fields: Mapping[str, Any]

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.fields)))  # it may be a dict key; a field need not be hashable


@attrs.frozen
class NamedFunction:
    """A function or class, read without looking for it.

    Attributes:
        place: `module:qualified.name` where it can be imported from; empty if it cannot.
        code: digest of its code as records write it; None where its name tells all.
    """

    place: str
    code: str | None

    def __str__(self) -> str:
        name = self.place.rpartition(":")[2] or "<function>"
        return f"{name} (code {self.code[7:19]})" if self.code else name


@attrs.frozen(eq=False)
class _Reading:
    read_leaf: ReadLeaf | None
    reference: Callable[[bytes], Any] | None
    lazy: bool
    nameless: bool

    def tag(self, number: int, content: Any) -> Any:
        reader = _READERS.get(number)
        if reader is None:
            raise ValueError(f"tag {number} is not one of the encoding's")
        return reader(self, content)

    def content(self, leaf: BoundLeaf) -> Any:
        """The bytes of a large text or byte string."""
        located = leaf.locate()
        return located.read_bytes() if isinstance(located, Path) else located


def _read_array(reading: _Reading, parts: Any) -> Any:
    from marin_dsl.encoding import arrays

    dtype, shape, content = _expected(list, parts)
    if not isinstance(content, BoundLeaf):
        return arrays.read_array(dtype, _expected(list, shape), _expected(bytes, content))
    if reading.lazy:
        return arrays.LazyArray(dtype, _expected(list, shape), content.unread())
    return arrays.read_array(dtype, shape, content.locate())


def _read_scalar(reading: _Reading, parts: Any) -> Any:
    from marin_dsl.encoding import arrays

    dtype, content = _expected(list, parts)
    return arrays.read_scalar(dtype, _expected(bytes, content))


def _read_large(tag: str, convert: Callable[[Any], Any]) -> Callable[[_Reading, Any], Any]:
    def read(reading: _Reading, part: Any) -> Any:
        leaf = _expected(BoundLeaf, part)
        return LazyContent(tag, leaf.unread()) if reading.lazy else convert(bytes(reading.content(leaf)))

    return read


def _read_object(reading: _Reading, parts: Any) -> Any:
    name, schema, fields = _expected(list, parts)
    _expected(dict, fields)
    if reading.nameless:
        return Named(name, dict(fields))
    codec = codec_named(name)
    if schema != codec.schema:
        raise ValueError(f"`{name}` was written with schema {schema}, and the class here has schema {codec.schema}")
    return _made(name, lambda: codec.from_fields(dict(fields)))


def _read_enum(reading: _Reading, parts: Any) -> Any:
    name, member = _expected(list, parts)
    if reading.nameless:
        return Named(name, {"name": member} if isinstance(member, str) else {"value": member})
    cls = importable(name)
    if not (isinstance(cls, type) and issubclass(cls, enum.Enum)):
        raise ValueError(f"`{name}` is no enumeration")
    return cls[member] if isinstance(member, str) else _made(name, lambda: cls(member))


def _read_function(reading: _Reading, parts: Any) -> Any:
    place, code = _expected(list, parts)
    _expected(str, place)
    if code is not None and len(_expected(bytes, code)) != 32:
        raise ValueError("the code of a function needs a digest of 32 bytes")
    if reading.nameless:
        return NamedFunction(place, None if code is None else f"sha256:{code.hex()}")
    return function_meant(place, code)


def _read_expression(reading: _Reading, key: Any) -> Any:
    if reading.reference is None:
        raise ValueError("the value refers to an expression, which has no value here")
    return reading.reference(_expected(bytes, key))


def _read_leaf(reading: _Reading, parts: Any) -> BoundLeaf:
    digest, size = _expected(list, parts)
    if not (isinstance(digest, bytes) and len(digest) == 32 and type(size) is int and size >= 0):
        raise ValueError("a leaf needs a digest of 32 bytes and a size")
    return BoundLeaf(digest, size, reading.read_leaf)


def _read_simple(_: _Reading, parts: Any) -> Any:
    name, plain = _expected(list, parts)
    if not _is_plain(plain):
        raise ValueError(f"`{name}` is made of something else than plain values")
    return _made(name, lambda: KINDS_BY_NAME[name].from_plain(plain))


def _is_plain(part: Any) -> bool:
    return all(map(_is_plain, part)) if isinstance(part, list) else isinstance(part, int | float | str | bytes)


E = TypeVar("E")


def _expected(kind: type[E], part: Any) -> E:
    """The part itself, if it is of the right kind: `set(range(10**12))` or `bytes(10**12)` would take all memory."""
    if type(part) is not kind:
        raise ValueError(f"a {type(part).__name__} stands where a {kind.__name__} belongs")
    return part


def _made(name: Any, make: Callable[[], Any]) -> Any:
    """What `make` gives; whatever goes wrong in a class is said with its name."""
    try:
        return make()
    except (LeafMissing, MemoryError):
        raise
    except Exception as error:
        cause = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"`{name}` cannot be made from what is stored: {cause}") from error


_READERS: dict[int, Callable[[_Reading, Any], Any]] = {
    tags.BIGNUM: lambda _, data: int.from_bytes(_expected(bytes, data), "big"),
    tags.NEGATIVE_BIGNUM: lambda _, data: -1 - int.from_bytes(_expected(bytes, data), "big"),
    tags.SET: lambda _, parts: set(_expected(list, parts)),
    tags.TUPLE: lambda _, parts: tuple(_expected(list, parts)),
    tags.FROZENSET: lambda _, parts: frozenset(_expected(list, parts)),
    tags.SURROGATE_TEXT: lambda _, data: _expected(bytes, data).decode("utf-8", "surrogatepass"),
    tags.OBJECT: _read_object,
    tags.ENUM: _read_enum,
    tags.NUMPY_ARRAY: _read_array,
    tags.NUMPY_SCALAR: _read_scalar,
    tags.LEAF: _read_leaf,
    tags.LARGE_BYTES: _read_large("LARGE_BYTES", lambda data: data),
    tags.LARGE_TEXT: _read_large("LARGE_TEXT", lambda data: data.decode()),
    tags.EXPRESSION: _read_expression,
    tags.SIMPLE: _read_simple,
    tags.FUNCTION: _read_function,
}


def leaves_of(data: bytes) -> dict[bytes, int]:
    """Digests and sizes of the large leaves that canonical bytes refer to; nothing is read or built.

    Raises:
        Undecodable: the bytes are no encoding.
    """
    found: dict[bytes, int] = {}

    def tag(number: int, content: Any) -> object:
        if number == tags.LEAF:
            leaf = _read_leaf(_Reading(None, None, True, True), content)
            found[leaf.digest] = leaf.size
        return object()  # a tuple that is a key of a dict would be a list here, which cannot be one

    try:
        read_item(data, tag)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise Undecodable(f"these {len(data)} bytes are no encoded value: {error}") from error
    return found
