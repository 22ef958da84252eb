"""Users' classes as values: `@encodable`, and the names under which the store knows them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import attrs

from marin_dsl.encoding.places import importable, place_of

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
    names = (name, *earlier_names)
    for known in names:
        other = _BY_NAME.get(known)
        if other is not None and place_of(other.cls) != place_of(cls):
            raise ValueError(f"`{known}` already names {place_of(other.cls)}; give {place_of(cls)} a name of its own")
    _BY_NAME.update(dict.fromkeys(names, codec))
    _BY_CLASS[cls] = codec


@overload
def encodable(cls: C) -> C: ...
@overload
def encodable(*, name: str | None = None, schema: int = 1, earlier_names: tuple[str, ...] = ()) -> Callable[[C], C]: ...
def encodable(cls: Any = None, *, name: str | None = None, schema: int = 1, earlier_names: tuple[str, ...] = ()) -> Any:
    """Make an attrs class, a dataclass or a NamedTuple a value: an argument or a result of operators.

    Two instances have one identity exactly when the registered name, the schema number and all fields are equal; only
    fields that are neither arguments of the class nor compared (`init=False, eq=False`: caches) are no part of it. A
    field whose metadata says `{"neutral": True}` is left out while it equals its default, so that adding such a field
    keeps the identity of every value that does not use it.

    Args:
        cls: the class to register (when used as a bare decorator).
        name: what the encoding calls the class; default its module and qualified name.
        schema: number of the field layout.
        earlier_names: former names of the class, so that values stored before a rename stay readable.

    Raises:
        TypeError: the class declares no fields, or cannot be made again from them.
        ValueError: another class already has the name.
    """

    def register(decorated: C) -> C:
        fields = _declared_fields(decorated)
        _check_post_init(decorated)
        register_codec(
            decorated,
            name=name or place_of(decorated),
            schema=schema,
            to_fields=lambda value: _field_values(value, fields),
            from_fields=lambda values: _restore(decorated, fields, values),
            earlier_names=earlier_names,
        )
        return decorated

    return register if cls is None else register(cls)


@attrs.frozen
class _Field:
    """A declared field of a class.

    Attributes:
        name: the attribute.
        default: from the instance that is being made to the default of the field; None when it has none.
        neutral: whether it is left out while it equals its default.
        given: whether the class takes it as an argument.
        kept: whether it is part of a value.
    """

    name: str
    default: Callable[[Any], Any] | None = None
    neutral: bool = False
    given: bool = True
    kept: bool = True


def _declared_fields(cls: type) -> tuple[_Field, ...]:
    if attrs.has(cls):
        found = tuple(
            _Field(f.name, _attrs_default(f), bool(f.metadata.get("neutral")), f.init, f.init or bool(f.eq))
            for f in attrs.fields(cls)
        )
    elif dataclasses.is_dataclass(cls):
        found = tuple(
            _Field(f.name, _dataclass_default(f), bool(f.metadata.get("neutral")), f.init, f.init or f.compare)
            for f in dataclasses.fields(cls)
        )
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        defaults = cls._field_defaults  # type: ignore[attr-defined]
        found = tuple(_Field(n, _constant(defaults[n]) if n in defaults else None) for n in cls._fields)
    else:
        raise TypeError(
            f"@encodable: {place_of(cls)} declares no fields; make it an attrs class, a dataclass or a NamedTuple "
            "(with @encodable above the decorator that makes it one), or use register_codec(...) to say how it becomes "
            "fields and comes back"
        )
    for field in found:
        if field.neutral and field.default is None:
            raise TypeError(f"@encodable: field `{field.name}` of {place_of(cls)} is neutral, so it needs a default")
    return found


def _constant(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _attrs_default(f: Any) -> Callable[[Any], Any] | None:
    if f.default is attrs.NOTHING:
        return None
    if isinstance(f.default, attrs.Factory):  # type: ignore[arg-type]
        factory = f.default.factory
        return factory if f.default.takes_self else lambda _: factory()
    return _constant(f.default)


def _dataclass_default(f: Any) -> Callable[[Any], Any] | None:
    if f.default is not dataclasses.MISSING:
        return _constant(f.default)
    factory = f.default_factory
    return None if factory is dataclasses.MISSING else lambda _: factory()


def _field_values(value: Any, fields: tuple[_Field, ...]) -> dict[str, Any]:
    found = {}
    for field in fields:
        # A field that the class does not take may not have been set yet.
        if field.kept and (field.given or hasattr(value, field.name)):
            content = getattr(value, field.name)
            if not (field.neutral and _is_neutral(content, value, field)):
                found[field.name] = content
    return found


def _is_neutral(content: Any, value: Any, field: _Field) -> bool:
    from marin_dsl.encoding.writer import encode  # the neutral rule compares by encoding, never by ==

    assert field.default is not None
    default = field.default(value)
    try:
        return type(content) is type(default) and encode(content) == encode(default)
    except Unencodable:
        return False  # the complaint is made where the field is written, with its place


def _restore(cls: type, fields: tuple[_Field, ...], values: Mapping[str, Any]) -> Any:
    """An instance with exactly these field values.

    Converters and validators are not run again: they have seen the value when it was made, and a converter need not
    give back what it is given. What a class does after its fields are set is done.
    """
    _check_fields(cls, fields, values)
    if issubclass(cls, tuple):
        return cls._make(values[f.name] if f.name in values else _default(f, None) for f in fields)  # type: ignore[attr-defined]
    made = cls.__new__(cls)
    if "_attrs_cached_hash" in getattr(getattr(cls.__hash__, "__code__", None), "co_names", ()):
        object.__setattr__(made, "_attrs_cached_hash", None)
    for field in fields:
        if field.name in values:
            object.__setattr__(made, field.name, values[field.name])
        elif field.default is not None:
            object.__setattr__(made, field.name, field.default(made))
    hook = _post_init(cls)
    if hook is not None:
        hook(made)
        for name, content in values.items():
            object.__setattr__(made, name, content)
    return made


def _default(field: _Field, made: Any) -> Any:
    assert field.default is not None
    return field.default(made)


def _check_fields(cls: type, fields: tuple[_Field, ...], values: Mapping[str, Any]) -> None:
    unknown = set(values) - {field.name for field in fields if field.kept}
    if unknown:
        raise ValueError(
            f"{place_of(cls)} has no field {', '.join(sorted(unknown))}: the value was written by another version of "
            "the class; raise its schema number and register the earlier layout"
        )
    missing = [field.name for field in fields if field.given and field.default is None and field.name not in values]
    if missing:
        raise ValueError(
            f"{place_of(cls)} needs {', '.join(missing)}, which the value lacks: it was written by another version of "
            "the class; give the field a default, or raise the schema number"
        )


def _post_init(cls: type) -> Callable[[Any], Any] | None:
    return getattr(cls, "__attrs_post_init__" if attrs.has(cls) else "__post_init__", None)


def _check_post_init(cls: type) -> None:
    hook = _post_init(cls)
    if hook is not None and len(inspect.signature(hook).parameters) > 1:
        raise TypeError(
            f"@encodable: {place_of(cls)} has arguments that it does not keep (InitVar), so it cannot be made again "
            "from its fields; use register_codec(...) to say how it becomes fields and comes back"
        )


def codec_of(cls: type) -> Codec | None:
    """The codec of a registered class, or None."""
    return _BY_CLASS.get(cls)


def codec_named(name: str) -> Codec:
    """The codec that an encoding names; the module that registers it is imported if need be.

    Raises:
        LookupError: nothing is registered under the name.
    """
    if name not in _BY_NAME and ":" in name:
        importable(name)
    if name not in _BY_NAME:
        raise LookupError(f"no encodable class is registered as `{name}`; import the module that defines it")
    return _BY_NAME[name]
