"""What a class consists of: bases, fields, members; not what attrs, dataclasses and their like generate from those.

A class's own name counts (values and messages carry it), its module does not.
"""

import dataclasses
import enum
import inspect
import types
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from .exploration import Exploration, Part
from .fields import field_names
from .territory import importable, is_installed, public_name

_BOOKKEEPING = {
    "__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__slots__",
    "__parameters__", "__orig_bases__", "__abstractmethods__", "_abc_impl", "__dataclass_params__",
    "__dataclass_fields__", "__attrs_attrs__", "__attrs_props__", "__attrs_own_setattr__", "__attrs_base_of_slotted__",
    "_fields", "_field_defaults", "_is_protocol", "_is_runtime_protocol", "__protocol_attrs__",
    "__callable_proto_members_only__", "__non_callable_proto_members__",
    "__required_keys__", "__optional_keys__", "__total__", "__readonly_keys__",
    "__mutable_keys__", "__closed__", "__extra_items__", "__type_params__", "__abstractvars__", "__abstractclassvars__",
    "__classcell__", "__classdictcell__",
}  # fmt: skip
_GENERATED = {
    "__init__", "__repr__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__setattr__",
    "__delattr__", "__replace__", "__getstate__", "__setstate__", "__attrs_init__", "__str__",
}  # fmt: skip
_COMPARED = ("__eq__", "__lt__", "__hash__", "__setattr__")
_FIELD_FACTS = (
    "init",
    "repr",
    "eq",
    "order",
    "hash",
    "compare",
    "kw_only",
    "alias",
    "validator",
    "converter",
    "eq_key",
    "order_key",
    "on_setattr",
)
_ALWAYS_GENERATED = ("__init__", "__repr__")
_NO_FIELDS = (dataclasses._FIELD_CLASSVAR, dataclasses._FIELD_INITVAR)  # type: ignore[attr-defined]
_NOTHING = (None, attrs.NOTHING, dataclasses.MISSING)
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def class_parts(walk: Exploration, kind: type, where: str) -> Iterable[Part]:
    """The content of a class; of a class that is not the project's, its name."""
    if not walk.territory.holds_class(kind):
        return [b"foreign", public_name(kind.__module__, kind.__qualname__)]
    name = f"{kind.__module__}.{kind.__qualname__}"
    ours = [base for base in kind.__mro__ if walk.territory.holds_class(base)]
    for label in {label for base in ours for label in vars(base)}:  # one of a base may be defined here later
        walk.witness.attribute(vars(kind), label)
    walk.show(name, _heading(kind))
    walk.annotate(walk.annotated.of_class(kind))
    bases = [walk.node(base, f"{name}: base") for base in kind.__bases__ if base is not object]
    makers = [walk.node(type(kind), f"{name}: metaclass")]
    return [b"class", kind.__name__, *makers, *bases, *_fields(walk, kind, name), *_members(walk, kind, name)]


def unwrapped(value: object) -> object:
    """What a wrapper of another maker wraps, or the value itself."""
    for name in ("__wrapped__", "__func__"):
        inside = getattr(value, name, value)
        if inside is not value:
            return inside
    return value


def _heading(kind: type) -> str:
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base is not object)
    fields = "".join(f"    {name}\n" for name in field_names(kind) or ())
    return f"class {kind.__name__}({bases}):\n{fields}"


def _fields(walk: Exploration, kind: Any, name: str) -> Iterator[Part]:
    if issubclass(kind, enum.Enum):
        yield from _enum_members(walk, kind, name)
        return
    for label in _declared_without_value(kind):
        yield from (b"declared", label)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        yield from kind._fields
        yield walk.node(kind._field_defaults, f"{name}: defaults")
        return
    declared = kind.__dict__.get("__attrs_attrs__") or (kind.__dict__.get("__dataclass_fields__") or {}).values()
    for field in declared:
        yield from (b"field", field.name, *_default(walk, field, f"{name}.{field.name}"))
        if getattr(field, "_field_type", None) in _NO_FIELDS:
            yield f"{field._field_type.name}"
        for fact in _FIELD_FACTS:
            if not any(getattr(field, fact, None) is nothing for nothing in _NOTHING):
                yield from (fact, walk.node(getattr(field, fact), f"{name}: {fact} of {field.name}"))
        yield walk.node(dict(field.metadata), f"{name}: metadata of {field.name}")
    for method in _COMPARED if declared else ():
        yield f"{method}:{_is_generated(kind, method, kind.__dict__.get(method))}"
    for method in _ALWAYS_GENERATED if declared else ():
        if getattr(kind, method) is getattr(object, method):
            yield f"{method}:none"


def _enum_members(walk: Exploration, kind: type[enum.Enum], name: str) -> Iterator[Part]:
    for label, member in kind.__members__.items():
        yield from (label, walk.node(member._value_, f"{name}.{label}"))
    # Of flags: what is done with bits that no member has; only where the class itself says it.
    boundary = kind.__dict__.get("_boundary_")
    if boundary is not None and boundary is not getattr(kind.__mro__[1], "_boundary_", None):
        yield from (b"boundary", f"{boundary.name}")


def _declared_without_value(kind: type) -> list[str]:
    """The names that a protocol asks for: elsewhere annotations mean nothing while running."""
    return sorted(inspect.get_annotations(kind)) if getattr(kind, "_is_protocol", False) else []


def _default(walk: Exploration, field: object, where: str) -> Iterator[Part]:
    default: Any = getattr(field, "default", attrs.NOTHING)
    factory = getattr(field, "default_factory", dataclasses.MISSING)
    if type(default) is attrs.Factory:
        yield from (b"factory", f"{default.takes_self}", walk.node(default.factory, f"{where}: factory"))
    elif factory is not dataclasses.MISSING:
        yield from (b"factory", walk.node(factory, f"{where}: factory"))
    elif not any(default is nothing for nothing in _NOTHING[1:]):
        yield from (b"default", walk.node(default, f"{where}: default"))


def _members(walk: Exploration, kind: type, name: str) -> Iterator[Part]:
    for label, member in sorted(vars(kind).items()):
        if not _is_left_out(walk, kind, label, member):
            yield from (label, walk.node(member, f"{name}.{label}"))


def _is_left_out(walk: Exploration, kind: type, label: str, member: object) -> bool:
    if label == "__match_args__":
        return member == _match_arguments(kind)
    if label in _BOOKKEEPING or isinstance(member, _DESCRIPTORS) or type(member).__name__ == "_tuplegetter":
        return True
    if issubclass(kind, enum.Enum):
        function = _function(member)
        if isinstance(function, types.FunctionType):
            return not walk.territory.holds_function(function)
        return label in kind.__members__ or (label.startswith("_") and label.endswith("_"))
    return _is_generated(kind, label, member)


def _is_generated(kind: type, label: str, member: object) -> bool:
    function = _function(member)
    if not isinstance(function, types.FunctionType):
        return False
    if issubclass(kind, tuple) and hasattr(kind, "_fields") and function.__globals__.get("__name__") != kind.__module__:
        return True
    code = function.__code__  # a user's class may stand in a text that has no file, too: `python -c`
    made_from_text = code.co_filename.startswith("<attrs generated") or code.co_qualname.startswith("__create_fn__.")
    if label in _GENERATED and (made_from_text or function.__module__ == "dataclasses"):
        return True
    return label.startswith("__") and _is_made_elsewhere(kind, function)


def _is_made_elsewhere(kind: type, function: types.FunctionType) -> bool:
    claims = function.__module__ == kind.__module__
    return is_installed(function.__code__.co_filename) and (claims or importable(function) is None)


def _function(member: object) -> object:
    member = getattr(member, "__func__", member)
    return member.fget if isinstance(member, property | types.DynamicClassAttribute) else member


def _match_arguments(kind: type) -> tuple[str, ...] | None:
    """What the maker of a class makes its positional patterns; None for a class without one."""
    if attrs.has(kind):
        return tuple(field.name for field in attrs.fields(kind) if field.init and not field.kw_only)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.init and not field.kw_only)
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
