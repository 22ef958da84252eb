"""Values to canonical bytes."""

from __future__ import annotations

import enum
import functools
import hashlib
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import attrs

from marin_dsl.encoding import tags
from marin_dsl.encoding.functions import Meaning, meaning_of, refuse_to_keep
from marin_dsl.encoding.leaves import LEAF_THRESHOLD, BoundLeaf, LazyContent, Leaf
from marin_dsl.encoding.places import importable, place_of
from marin_dsl.encoding.plain import PLAIN, surrogate_text
from marin_dsl.encoding.registry import Unencodable, codec_of
from marin_dsl.encoding.scalars import SIMPLE_KINDS
from marin_dsl.encoding.tags import head

_TAG_HEADS = {name: head(tags.TAG, value) for name, value in vars(tags).items() if name.isupper()}
_FIRST = operator.itemgetter(0)
Taken = Literal["importable", "any", "none"]


def encode(value: Any, *, functions: Taken = "importable") -> bytes:
    """The canonical bytes of a value; large leaves stand in it as digests.

    Args:
        value: any value.
        functions: which functions and classes are values: those that can be imported (what is stored can name no
            others), also those that are only in memory, or none.

    Raises:
        Unencodable: the value, or a part of it, has no encoding.
    """
    return encode_with_leaves(value, functions=functions).data


def encode_with_leaves(value: Any, *, functions: Taken = "importable") -> Encoded:
    """The canonical bytes of a value, and the large leaves that they refer to.

    Leaves in memory are referred to, never copied.

    Raises:
        Unencodable: the value, or a part of it, has no encoding.
    """
    encoder = Encoder(functions)
    encoder.write_root(value)
    return Encoded(b"".join(encoder.out), encoder.leaves)


@functools.lru_cache(maxsize=8192)  # a pure function: it cannot go stale
def encoded_text(name: str) -> bytes:
    """The canonical bytes of a name: of a key, a field or a class, which are met over and over."""
    return encode(name)


@functools.lru_cache(maxsize=8192)  # the same few are written many times while a node is worked on
def format_digest(digest: bytes) -> str:
    """A digest as people and records write it: `sha256:` and 64 hexadecimal digits."""
    return f"sha256:{digest.hex()}"


def parse_digest(text: str) -> bytes:
    """The 32 bytes of a written digest.

    Raises:
        ValueError: the text is no full SHA-256 digest.
    """
    try:
        digest = bytes.fromhex(text[7:])
    except ValueError:
        digest = b""
    if len(digest) == 32 and text == f"sha256:{digest.hex()}":  # `fromhex` takes spaces and capitals
        return digest
    raise ValueError(f"{text!r} is no digest: expected `sha256:` and 64 hexadecimal digits")


@attrs.frozen(eq=False)
class Encoded:
    """An encoded value: its canonical bytes (the manifest) and its large leaves by digest."""

    data: bytes
    leaves: dict[bytes, Leaf]

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical bytes: the identity of the value."""
        return hashlib.sha256(self.data).digest()


@attrs.frozen(eq=False)
class RawValue:
    """A value that is already encoded, to be embedded in another one as it is."""

    encoded: Encoded


class Encoder:
    """Writes values as chunks of canonical bytes.

    Attributes:
        out: the chunks in order.
        leaves: the large leaves met so far, by digest.
        functions: the functions and classes met so far of which the code counts, by place and code, each with what its
            code was read from.
    """

    def __init__(self, functions: Taken = "importable") -> None:
        self.out: list[Any] = []
        self.leaves: dict[bytes, Leaf] = {}
        self.functions: dict[tuple[str, bytes], tuple[Any, object]] = {}
        self._taken = functions

    @property
    def takes_functions(self) -> bool:
        """Whether functions and classes are values here."""
        return self._taken != "none"

    def write_root(self, value: Any) -> None:
        """Write a whole value; a cycle is reported instead of followed."""
        try:
            self.write(value)
        except RecursionError:
            raise Unencodable(
                f"the {type(value).__name__} contains itself, or is nested too deeply to be data; break the cycle"
            ) from None

    def write(self, value: Any) -> None:
        """Write one value, whatever its type."""
        writer = WRITERS.get(type(value))
        if writer is not None:
            writer(self, value)
        else:
            _write_other(self, value)

    def write_keyed(self, items: Mapping[Any, Any], step: Callable[[Any], str]) -> None:
        """Write a map sorted by encoded key; complaints about an item are placed at the step of its key."""
        found = [
            (encoded_text(key) if type(key) is str and len(key) < 256 else self.whole(key, key, step), key, value)
            for key, value in items.items()
        ]
        found.sort(key=_FIRST)
        if any(one[0] == other[0] for one, other in itertools.pairwise(found)):
            raise Unencodable("two keys of the dict are the same value, although Python tells them apart (NaN does)")
        self.out.append(head(tags.MAP, len(found)))
        for encoded_key, key, value in found:
            self.out.append(encoded_key)
            try:
                self.write(value)
            except Unencodable as error:
                raise error.inside(step(key)) from None

    def aside(self, value: Any, key: Any, step: Callable[[Any], str]) -> list[bytes]:
        """The chunks of a value, without adding them to the output; complaints are placed at the step of its key."""
        kept, self.out = self.out, []
        try:
            self.write(value)
            return self.out
        except Unencodable as error:
            raise error.inside(step(key)) from None
        finally:
            self.out = kept

    def whole(self, value: Any, key: Any, step: Callable[[Any], str]) -> bytes:
        """The bytes of a value that others are sorted by, without adding them to the output."""
        return b"".join(self.aside(value, key, step))

    def write_bytes(self, data: bytes) -> None:
        """Write a byte string in the manifest itself."""
        self.out += (head(tags.BYTES, len(data)), data)

    def write_leaf(self, leaf: Leaf) -> None:
        """Write a reference to a large leaf, and keep the leaf."""
        self.leaves.setdefault(leaf.digest, leaf)
        self.out += (_TAG_HEADS["LEAF"], b"\x82", head(tags.BYTES, 32), leaf.digest, head(tags.UNSIGNED, leaf.size))

    def write_content(self, buffer: memoryview) -> None:
        """Write the bytes of a large object: in the manifest when short, else as a leaf."""
        if buffer.nbytes < LEAF_THRESHOLD:
            self.write_bytes(buffer.tobytes())
        else:
            self.write_leaf(Leaf.of_buffer(buffer))

    def write_function(self, value: Any, meaning: Meaning) -> None:
        """Write a function or a class.

        Raises:
            Unencodable: it can stand only in memory, and what is written here is to be stored.
        """
        if not meaning.place and self._taken != "any":
            raise refuse_to_keep(getattr(value, "__qualname__", type(value).__name__))
        if meaning.code is not None:
            self.functions.setdefault((meaning.place, meaning.code), (value, meaning.seen))
        self.write_tagged("FUNCTION", meaning.place, meaning.code)

    def write_tagged(self, tag: str, *parts: Any) -> None:
        """Write a tag over an array of parts."""
        self.out += (_TAG_HEADS[tag], head(tags.ARRAY, len(parts)))
        for part in parts:
            self.write(part)


def _write_plain(spelled: Callable[[Any], bytes | None]) -> Callable[[Encoder, Any], None]:
    return lambda encoder, value: encoder.out.append(spelled(value))


def _write_text(encoder: Encoder, value: str) -> None:
    plain = PLAIN[str](value)
    if plain is not None:
        encoder.out.append(plain)
        return
    try:
        data = value.encode()
    except UnicodeEncodeError:
        encoder.out.append(surrogate_text(value))
        return
    encoder.out.append(_TAG_HEADS["LARGE_TEXT"])
    encoder.write_leaf(Leaf.of_buffer(memoryview(data)))


def _write_bytes(encoder: Encoder, value: bytes) -> None:
    if len(value) >= LEAF_THRESHOLD:
        encoder.out.append(_TAG_HEADS["LARGE_BYTES"])
    encoder.write_content(memoryview(value))


def _write_items(encoder: Encoder, values: Iterable[Any]) -> None:
    for position, item in enumerate(values):
        try:
            encoder.write(item)
        except Unencodable as error:
            raise error.inside(f"[{position}]") from None


def _write_list(encoder: Encoder, value: list[Any]) -> None:
    encoder.out.append(head(tags.ARRAY, len(value)))
    _write_items(encoder, value)


def _write_tuple(encoder: Encoder, value: tuple[Any, ...]) -> None:
    encoder.out += (_TAG_HEADS["TUPLE"], head(tags.ARRAY, len(value)))
    _write_items(encoder, value)


def _write_dict(encoder: Encoder, value: dict[Any, Any]) -> None:
    encoder.write_keyed(value, _item_step)


def _item_step(key: Any) -> str:
    return f"[{_short(key)}]"


def _member_step(member: Any) -> str:
    return f"{{{_short(member)}}}"


def _field_step(name: str) -> str:
    return f".{name}"


def _short(value: Any) -> str:
    try:
        return repr(value)[:60]
    except Exception:  # an integer of many digits, or a class with a broken __repr__
        return f"<{type(value).__name__}>"[:60]


def _write_members(tag: str) -> Callable[[Encoder, Any], None]:
    def write(encoder: Encoder, value: Any) -> None:
        members = sorted(encoder.whole(member, member, _member_step) for member in value)
        if any(one == other for one, other in itertools.pairwise(members)):
            raise Unencodable("two members of the set are the same value, although Python tells them apart (NaN does)")
        encoder.out += (_TAG_HEADS[tag], head(tags.ARRAY, len(members)), *members)

    return write


def _write_raw(encoder: Encoder, value: RawValue) -> None:
    encoder.out.append(value.encoded.data)
    encoder.leaves.update(value.encoded.leaves)


def _write_lazy_content(encoder: Encoder, value: LazyContent) -> None:
    encoder.out.append(_TAG_HEADS[value.tag])
    encoder.write_leaf(value.leaf)


def _write_other(encoder: Encoder, value: Any) -> None:
    kind = SIMPLE_KINDS.get(type(value))
    if kind is not None:
        encoder.write_tagged("SIMPLE", kind.name, kind.to_plain(value))
    elif (codec := codec_of(type(value))) is not None:
        _write_object(encoder, codec.name, codec.schema, codec.to_fields(value))
    elif isinstance(value, enum.Enum):
        _write_enum(encoder, value)
    elif encoder.takes_functions and (meaning := meaning_of(value)) is not None:
        encoder.write_function(value, meaning)
    elif _is_array(value):
        from marin_dsl.encoding import arrays

        arrays.write_array(encoder, value)
    elif type(value).__name__ == "LazyArray":
        value.write(encoder)
    else:
        raise Unencodable(_advice(value))


def _write_enum(encoder: Encoder, value: enum.Enum) -> None:
    cls = type(value)
    place = place_of(cls)
    try:
        found = importable(place)
    except LookupError:
        found = None
    if found is not cls:
        raise Unencodable(f"the enumeration {place} cannot be imported by that name; define it at the top of a module")
    # A combination of flags, and the empty one, has no name of its own.
    encoder.write_tagged("ENUM", place, value.value if isinstance(value, enum.Flag) else value.name)


def _write_object(encoder: Encoder, name: str, schema: int, fields: Any) -> None:
    encoder.out += (_TAG_HEADS["OBJECT"], b"\x83", encoded_text(name))
    encoder.write(schema)
    encoder.write_keyed(fields, _field_step)


def _is_array(value: Any) -> bool:
    root = type(value).__module__.partition(".")[0]
    return root in ("numpy", "ml_dtypes") or (root in ("jax", "jaxlib") and hasattr(value, "__array__"))


def _advice(value: Any) -> str:
    kind = type(value)
    # Where a library keeps a class (`pathlib._local`) is its own affair, and differs between versions.
    module = ".".join(part for place, part in enumerate(kind.__module__.split(".")) if not (place and part[0] == "_"))
    given = f"a {module}.{kind.__qualname__}" if module != "builtins" else f"a {kind.__qualname__}"
    if hasattr(value, "__fspath__"):
        return (
            f"{given} names a place, not data; pass `File.of(path)` or `Directory.of(path)`, or its text with str(...)"
        )
    if hasattr(kind, "_fields") and isinstance(value, tuple):
        return f"{given} has no encoding yet; put `@encodable` above the class {kind.__qualname__}"
    if isinstance(value, dict | list | tuple | set | frozenset | str | bytes | int | float | complex):
        base = next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")
        return f"{given} is a subclass of {base} and would come back as another type; pass a plain {base}(...)"
    if hasattr(kind, "__attrs_attrs__") or hasattr(kind, "__dataclass_fields__"):
        return f"{given} has no encoding yet; put `@encodable` above the class {kind.__qualname__}"
    if hasattr(value, "__array__"):
        return f"{given} has no encoding; pass numpy.asarray(...) of it"
    if hasattr(value, "read"):
        return f"{given} can be read only once; pass its content, or `File.of(path)`"
    if hasattr(value, "__next__"):
        return f"{given} can be read only once; pass list(...) of it"
    return f"{given} has no encoding; pass plain data, or register the class with `register_codec`"


WRITERS: dict[type, Callable[[Encoder, Any], None]] = {
    **{kind: _write_plain(spelled) for kind, spelled in PLAIN.items()},
    str: _write_text,
    bytes: _write_bytes,
    list: _write_list,
    tuple: _write_tuple,
    dict: _write_dict,
    set: _write_members("SET"),
    frozenset: _write_members("FROZENSET"),
    RawValue: _write_raw,
    Leaf: Encoder.write_leaf,
    BoundLeaf: lambda encoder, value: encoder.write_leaf(value.unread()),
    LazyContent: _write_lazy_content,
}
