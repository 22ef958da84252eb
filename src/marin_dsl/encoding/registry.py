"""Users' classes as values: `@encodable`, and the names under which the store knows them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import attrs

C = TypeVar("C", bound=type)


class Unencodable(TypeError):
    """A value, or a part of one, has no encoding; the message says which part and what to do.

    Attributes:
        reason: what is wrong with the part, without its place.
        path: the place of the part inside the value, as a user would write it (`[3].model`).
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason, self.path = reason, path

    def inside(self, step: str) -> Unencodable:
        """The same complaint, seen from the container that holds the part."""
        self.path = step + self.path
        return self

    def __str__(self) -> str:
        return f"at `{self.path}`: {self.reason}" if self.path else self.reason


@attrs.frozen
class Codec:
    """How instances of a registered class become named fields, and come back."""

    cls: type
    name: str
    schema: int
    to_fields: Callable[[Any], Mapping[str, Any]]
    from_fields: Callable[[Mapping[str, Any]], Any]


_BY_CLASS: dict[type, Codec] = {}
_BY_NAME: dict[str, Codec] = {}


def register_codec(
    cls: type,
    *,
    name: str,
    to_fields: Callable[[Any], Mapping[str, Any]],
    from_fields: Callable[[Mapping[str, Any]], Any],
    schema: int = 1,
    earlier_names: tuple[str, ...] = (),
) -> None:
    """Give instances of a class an encoding: a registered name, a schema number, and named fields.

    Args:
        cls: the class; only exact instances are meant, subclasses are registered on their own.
        name: what the encoding calls it; part of the identity of every value.
        to_fields: instance to field values, each of them encodable.
        from_fields: field values to an equal instance.
        schema: number of the field layout; part of the identity of every value.
        earlier_names: names under which values written earlier are still read.

    Raises:
        ValueError: another class already has the name.
    """
    codec = Codec(cls, name, schema, to_fields, from_fields)
    for known in (name, *earlier_names):
        other = _BY_NAME.get(known)
        if other is not None and _place(other.cls) != _place(cls):
            raise ValueError(f"`{known}` already names {_place(other.cls)}; give {_place(cls)} a name of its own")
        _BY_NAME[known] = codec
    _BY_CLASS[cls] = codec


@overload
def encodable(cls: C) -> C: ...
@overload
def encodable(*, name: str | None = None, schema: int = 1, earlier_names: tuple[str, ...] = ()) -> Callable[[C], C]: ...
def encodable(cls: Any = None, *, name: str | None = None, schema: int = 1, earlier_names: tuple[str, ...] = ()) -> Any:
    """Make an attrs class, a dataclass or a NamedTuple a value: an argument or a result of operators.

    Two instances have one identity exactly when the registered name, the schema number and all fields are equal. A
    field whose metadata says `{"neutral": True}` is left out while it equals its default, so that adding such a field
    keeps the identity of every value that does not use it.

    Args:
        cls: the class to register (when used as a bare decorator).
        name: what the encoding calls the class; default its module and qualified name.
        schema: number of the field layout.
        earlier_names: former names of the class, so that values stored before a rename stay readable.

    Raises:
        TypeError: the class declares no fields.
    """
    if cls is None:
        return lambda decorated: encodable(decorated, name=name, schema=schema, earlier_names=earlier_names)
    fields = _declared_fields(cls)
    register_codec(
        cls,
        name=name or _place(cls),
        schema=schema,
        to_fields=lambda value: _field_values(value, fields),
        from_fields=lambda values: _build(cls, fields, values),
        earlier_names=earlier_names,
    )
    return cls


@attrs.frozen
class _Field:
    name: str
    parameter: str
    default: Any
    neutral: bool


_NO_DEFAULT = object()


def _declared_fields(cls: type) -> tuple[_Field, ...]:
    if attrs.has(cls):
        return tuple(
            _Field(f.name, f.alias or f.name, _attrs_default(f), bool(f.metadata.get("neutral")))
            for f in attrs.fields(cls)
            if f.init
        )
    if dataclasses.is_dataclass(cls):
        return tuple(
            _Field(f.name, f.name, _dataclass_default(f), bool(f.metadata.get("neutral")))
            for f in dataclasses.fields(cls)
            if f.init
        )
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return tuple(_Field(n, n, cls._field_defaults.get(n, _NO_DEFAULT), False) for n in cls._fields)  # type: ignore[attr-defined]
    raise TypeError(
        f"@encodable: {_place(cls)} declares no fields; make it an attrs class, a dataclass or a NamedTuple, or use "
        "register_codec(...) to say how it becomes fields and comes back"
    )


def _attrs_default(f: Any) -> Any:
    if f.default is attrs.NOTHING:
        return _NO_DEFAULT
    if isinstance(f.default, attrs.Factory):  # type: ignore[arg-type]
        return _NO_DEFAULT if f.default.takes_self else f.default.factory()
    return f.default


def _dataclass_default(f: Any) -> Any:
    if f.default is not dataclasses.MISSING:
        return f.default
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else _NO_DEFAULT


def _field_values(value: Any, fields: tuple[_Field, ...]) -> dict[str, Any]:
    from marin_dsl.encoding.writer import encode  # the neutral rule compares by encoding, never by ==

    found = {}
    for field in fields:
        content = getattr(value, field.name)
        if field.neutral and type(content) is type(field.default) and encode(content) == encode(field.default):
            continue
        found[field.name] = content
    return found


def _build(cls: type, fields: tuple[_Field, ...], values: Mapping[str, Any]) -> Any:
    unknown = set(values) - {field.name for field in fields}
    if unknown:
        raise ValueError(
            f"{_place(cls)} has no field {', '.join(sorted(unknown))}: the value was written by another version of the "
            "class; raise its schema number and register the earlier layout"
        )
    return cls(**{field.parameter: values[field.name] for field in fields if field.name in values})


def _place(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def codec_of(cls: type) -> Codec | None:
    """The codec of a registered class, or None."""
    return _BY_CLASS.get(cls)


def codec_named(name: str) -> Codec:
    """The codec that an encoding names; the module that registers it is imported if need be.

    Raises:
        LookupError: nothing is registered under the name.
    """
    if name not in _BY_NAME:
        importable(name)
    if name not in _BY_NAME:
        raise LookupError(f"no encodable class is registered as `{name}`; import the module that defines it")
    return _BY_NAME[name]


def importable(name: str) -> Any:
    """The object at `module:qualified.name`.

    Raises:
        LookupError: there is no such module or object.
    """
    module, _, qualname = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise LookupError(f"`{name}` cannot be imported here ({error}); is the project's code on the path?") from error
    return found
