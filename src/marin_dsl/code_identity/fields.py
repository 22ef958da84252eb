"""Classes that declare their fields: those of attrs, dataclasses and NamedTuples."""

import dataclasses

import attrs


def field_values(value: object) -> dict[str, object] | None:
    """The fields of an instance of an attrs class, a dataclass or a NamedTuple; None for any other."""
    names = field_names(type(value))
    return None if names is None else {name: getattr(value, name, None) for name in names}


def field_names(kind: type) -> list[str] | None:
    """The names of the fields that a class declares, in order; None if it is of another make."""
    if attrs.has(kind):
        return [field.name for field in attrs.fields(kind)]
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(kind._fields) if issubclass(kind, tuple) and hasattr(kind, "_fields") else None
