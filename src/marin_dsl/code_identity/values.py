"""What values consist of: constants, containers, instances, callables of every make."""

import collections
import enum
import functools
import hashlib
import logging
import pathlib
import re
import struct
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .classes import class_parts, unwrapped
from .exploration import ATOMS, Excluded, Exploration, Part
from .fields import field_values
from .graph import Node
from .normal_form import constant
from .pickled import reduced
from .territory import public_name
from .witness import State

_CONTAINERS = (list, tuple, dict, set, frozenset)
_CONTENT: tuple[Any, ...] = (*_CONTAINERS, str, bytes, int, float, complex)
_BUILTIN_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)
_BY_TYPE_ONLY = (logging.Logger, type(threading.Lock()), type(threading.RLock()), threading.local)
_GENERICS: tuple[Any, ...] = (types.GenericAlias, type(typing.List[int]))  # noqa: UP006
_CALLABLES = (types.FunctionType, types.MethodType, functools.partial, type)


def describe(walk: Exploration, value: object, where: str) -> Iterable[Part]:
    """The content of any value as texts, bytes and further nodes; never an id, a hash or a `repr` with an address."""
    if is_plain(value):
        try:
            encoded = walk.encode(value)
        except (TypeError, ValueError, RecursionError):
            encoded = None
        if encoded is None and isinstance(value, ATOMS):
            encoded = constant(value)
        if encoded is not None:
            if ":" not in where and not where.rpartition(".")[2].startswith("__"):
                walk.show_constant(where, value, encoded)
            return [b"value", encoded]
    operator = _operator_parts(walk, value, where)
    return operator if operator is not None else _parts(walk, value, where)


def is_plain(value: object) -> bool:
    """Whether a value consists of numbers, texts and built-in containers of them, by exact type."""
    stack: list[Any] = [value]
    seen: set[int] = set()
    while stack:
        part = stack.pop()
        if type(part) in ATOMS or id(part) in seen:
            continue
        if type(part) not in _CONTAINERS:
            return False
        seen.add(id(part))
        stack.extend((*part, *part.values()) if type(part) is dict else part)
    return True


def _operator_parts(walk: Exploration, value: Any, where: str) -> list[Part] | None:
    """Operators: by their own identity, or, where that is their code, as part of this graph (they may be recursive)."""
    if isinstance(value, type) or not _has_identity(value):
        return None
    code = getattr(value, "__marin_code__", None)
    if code is None:
        walk.standing.setdefault(id(value), value)
        return [b"identity", value.__marin_identity__]
    prefix, function, includes, excludes = code
    excluded = Excluded.of(excludes)
    included = [walk.node(part, f"{where}: included {i}", excluded) for i, part in enumerate(includes)]
    return [b"operator", prefix, walk.node(function, where, excluded), *included]


def _has_identity(value: object) -> bool:
    return hasattr(type(value), "__marin_identity__") or "__marin_identity__" in getattr(value, "__dict__", ())


def _parts(walk: Exploration, value: object, where: str) -> Iterable[Part]:
    match value:
        case types.FunctionType():
            return (
                walk.function(value) if walk.territory.holds_function(value) else _foreign_function(walk, value, where)
            )
        case types.MethodType():
            return [b"method", walk.node(value.__func__, where), walk.node(value.__self__, f"{where}: self")]
        case functools.partial() | functools.partialmethod():
            arguments = [walk.node(part, f"{where}: partial") for part in (value.args, value.keywords)]
            return [b"partial", walk.node(value.func, where), *arguments]
        case staticmethod() | classmethod():
            return [type(value).__name__, walk.node(value.__func__, where)]
        case property() | types.DynamicClassAttribute():  # the latter is `enum.property`
            return [b"property", *(walk.node(f, f"{where}: accessor") for f in (value.fget, value.fset, value.fdel))]
        case functools.cached_property():
            return [b"cached property", walk.node(value.func, where)]
        case functools.singledispatchmethod():
            return [b"dispatching method", walk.node(value.dispatcher, where)]
        case functools._lru_cache_wrapper():
            return [b"cache", repr(sorted(value.cache_parameters().items())), walk.node(value.__wrapped__, where)]
        case types.ModuleType():
            return _module(walk, value)
        case type():
            return class_parts(walk, value, where)
    return _data(walk, value, where)


def _data(walk: Exploration, value: Any, where: str) -> Iterable[Part]:
    match value:
        case _ if type(value) in _CONTAINERS:
            return _container(walk, value, where)
        case enum.Enum():
            return [b"member", walk.node(type(value), where), value.name]
        case _ if isinstance(value, _BUILTIN_CALLABLES):
            return _built_in(walk, value, where)
        case re.Pattern():
            return [b"pattern", walk.node(value.pattern, f"{where}: pattern"), str(value.flags)]
        case pathlib.PurePath():
            walk.note(f"{where} is a path: its text counts, not what lies there")
            return [b"path", _path_text(value, where)]
        case memoryview() | struct.Struct():
            content = value.tobytes() if isinstance(value, memoryview) else value.format
            return [_type_name(value), walk.node(content, f"{where}: content")]
        case _ if value is Ellipsis or value is NotImplemented:
            return [b"singleton", repr(value)]
        case _ if isinstance(value, _BY_TYPE_ONLY):
            return [b"by type", _type_name(value)]
        case _ if isinstance(value, _GENERICS):
            noted = [value.__metadata__] if hasattr(value, "__metadata__") else []  # of `Annotated`
            parts = (value.__origin__, value.__args__, *noted)
            return [b"generic", *(walk.node(part, f"{where}: type") for part in parts)]
        case _ if type(value).__name__ == "TypeAliasType":
            return [b"alias", value.__name__, walk.node(_aliased(value), f"{where}: type")]
        case types.UnionType():
            return [b"union", *(walk.node(part, f"{where}: type") for part in value.__args__)]
        case _ if _type_name(value) in ("numpy.finfo", "numpy.iinfo"):  # which keep what they were asked for
            return [_type_name(value), str(value.dtype)]
        case _ if type(value).__module__ == "typing":
            return [b"typing", getattr(value, "__name__", None) or repr(value)]
    return _instance(walk, value, where)


def _aliased(alias: Any) -> object:
    try:
        return alias.__value__  # only now computed
    except Exception:  # the project's code ran, and may raise anything
        return None


def _container(walk: Exploration, value: Any, where: str) -> Iterable[Part]:
    """A container with something in it that is no plain value; without order where it has none."""
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(walk.node(part, f"{where}[{i}]") for i, part in enumerate(value))]
    if isinstance(value, dict):
        pairs = [[walk.node(key, f"{where}: key"), walk.node(v, f"{where}[{_key(key)}]")] for key, v in value.items()]
        return [type(value).__name__, Node(unordered=True).fill([Node().fill(pair) for pair in pairs])]
    return [type(value).__name__, Node(unordered=True).fill([walk.node(part, f"{where}: element") for part in value])]


def _key(key: object) -> str:
    return repr(key) if type(key) in ATOMS else getattr(key, "__name__", type(key).__name__)


def _module(walk: Exploration, module: types.ModuleType) -> Iterable[Part]:
    if not walk.territory.holds_module(module.__name__):
        return [b"foreign", public_name(module.__name__, "")]
    walk.note(f"the module {module.__name__} is used as a value: every definition in it counts, its submodules do not")
    members = {name: part for name, part in vars(module).items() if not isinstance(part, types.ModuleType)}
    named = [(n, walk.node(p, f"{module.__name__}.{n}")) for n, p in sorted(members.items()) if not n.startswith("__")]
    return [b"module", *(part for pair in named for part in pair)]


def _built_in(walk: Exploration, value: Any, where: str) -> Iterable[Part]:
    owner = getattr(value, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType):
        kind = getattr(value, "__objclass__", None)
        module = getattr(value, "__module__", None) or getattr(kind, "__module__", None)
        if module and walk.territory.holds_module(module):
            walk.note(f"{module}.{value.__name__} is compiled: only its name counts")
        return [b"foreign", public_name(module, value.__qualname__)]
    return [b"method of", value.__name__, walk.node(owner, f"{where}: self")]


# ---- third-party code that holds code of the project


def _foreign_function(walk: Exploration, function: types.FunctionType, where: str) -> Iterable[Part]:
    name = walk.foreign_name(function)
    if name is not None:
        return [b"foreign", name]
    if hasattr(function, "registry") and hasattr(function, "dispatch"):
        return [b"dispatch", walk.node(dict(function.registry), f"{where}: registered")]
    written = public_name(function.__globals__.get("__name__"), function.__code__.co_qualname)
    held = [cell for cell in function.__closure__ or () if _is_filled(cell)]
    return [b"made by", written, *(_held(walk, cell.cell_contents, where) for cell in held)]


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _held(walk: Exploration, value: object, where: str) -> Node:
    """What third-party code holds: its functions and fixed values count; its caches and machinery do so by type."""
    known = isinstance(value, _CALLABLES) or hasattr(value, "__wrapped__") or walk.territory.holds_class(type(value))
    fixed = is_plain(value) and not isinstance(value, dict | set)
    if known or fixed or isinstance(value, tuple):
        return walk.node(value, f"{where}: held")
    return Node().fill([b"by type", _type_name(value)])


# ---- instances


def _instance(walk: Exploration, value: object, where: str) -> Iterable[Part]:
    if walk.territory.holds_class(type(value)):
        return [b"instance", walk.node(type(value), where), *_state(walk, value, where)]
    try:
        return [b"value", walk.encode(value)]
    except (TypeError, ValueError, RecursionError):
        return _foreign_instance(walk, value, where)


def _state(walk: Exploration, value: object, where: str) -> Iterator[Part]:
    for base in _CONTENT:
        if isinstance(value, base):
            yield from (base.__name__, walk.node(base(value), f"{where}: content"))
    if isinstance(value, BaseException):
        yield walk.node(value.args, f"{where}: arguments")
    for name, part in sorted(_attributes(value).items()):
        yield from (name, walk.node(part, f"{where}: {name}"))


def _attributes(value: object) -> Mapping[str, object]:
    kind = type(value)
    slots = [s for c in kind.__mro__ for s in vars(c) if isinstance(vars(c)[s], types.MemberDescriptorType)]
    found = {s: getattr(value, s) for s in slots if hasattr(value, s)} | dict(getattr(value, "__dict__", {}))
    return {n: v for n, v in found.items() if not isinstance(getattr(kind, n, None), functools.cached_property)}


def _foreign_instance(walk: Exploration, value: object, where: str) -> Iterable[Part]:
    name = walk.foreign_name(value)
    inside = unwrapped(value)
    if name is not None:
        return [b"foreign", name]
    if inside is not value:
        options = {n: v for n, v in getattr(value, "__dict__", {}).items() if is_plain(v) and not n.startswith("__")}
        return [b"wrapper", _type_name(value), walk.node(inside, where), walk.node(options, f"{where}: options")]
    fields = field_values(value)
    fields = _contents(value) if fields is None else fields
    called = getattr(value, "__name__", "")
    if fields is None and not called:
        parts = reduced(value, walk.territory.holds_class)
        if parts is not None:
            walk.show_object(where, value)
            return [
                b"pickled",
                _type_name(value),
                *(walk.node(part, f"{where}: {_type_name(value)}") for part in parts),
            ]
    if fields is None:
        if not any(_is_of_project(walk, v) for v in getattr(value, "__dict__", {}).values()):
            walk.note_type_alone(where, _type_name(value))
        fields = {n: v for n, v in getattr(value, "__dict__", {}).items() if _is_of_project(walk, v)}
    named = [(n, walk.node(v, f"{where}: {n}")) for n, v in sorted(fields.items())]
    return [b"instance of", _type_name(value), f"{called}", *(part for pair in named for part in pair)]


def _contents(value: object) -> dict[str, object] | None:
    """What the containers of the standard library hold, in order where they have one."""
    match value:
        case collections.OrderedDict():
            return {"items": list(value.items())}
        case collections.defaultdict():
            return {"default": value.default_factory, "items": dict(value)}
        case collections.deque():
            return {"items": list(value), "length": value.maxlen}
        case dict() | types.MappingProxyType() | collections.UserDict():
            return {"items": dict(value)}
    return None


def _is_of_project(walk: Exploration, value: object) -> bool:
    if isinstance(value, types.FunctionType):
        return walk.territory.holds_function(value)
    return isinstance(value, _CALLABLES) and walk.territory.holds_class(
        value if isinstance(value, type) else type(value)
    )


def _type_name(value: object) -> str:
    return public_name(type(value).__module__, type(value).__qualname__)


def _path_text(path: pathlib.PurePath, where: str) -> str:
    """A path; one beside the module that names it is written relative to the project, so that the project can move."""
    module = where
    while module and module not in sys.modules:
        module = module.rpartition(".")[0]
    file = getattr(sys.modules.get(module), "__file__", None)
    if file and path.is_absolute():
        root = pathlib.Path(file).absolute().parents[module.count(".")]
        if path.is_relative_to(root):
            return f"project:{path.relative_to(root).as_posix()}"
    return path.as_posix()


# ---- what can be changed in place


def state_of(encode: Callable[[object], bytes], value: Any) -> State:
    """What a function or a constant consists of, to see later whether it was changed in place; None of anything else.

    Constants are compared by their bytes where they have any, else by the very objects that they hold.
    """
    if isinstance(value, types.FunctionType):
        registered = getattr(value, "registry", None)  # of a function that dispatches by type
        implementations = registered.values() if isinstance(registered, Mapping) else ()
        return value.__code__, value.__defaults__, *(value.__kwdefaults__ or {}).values(), *implementations
    if isinstance(value, list | dict | set) or type(value).__module__.partition(".")[0] == "numpy":
        return _bytes_of(encode, value) or _contained(value)
    return None


def _bytes_of(encode: Callable[[object], bytes], value: object) -> bytes | None:
    try:
        return hashlib.sha256(encode(value)).digest()
    except (TypeError, ValueError, RecursionError):
        return None


def _contained(value: object) -> tuple[object, ...] | None:
    if isinstance(value, dict):
        return (*value, *value.values())
    return tuple(value) if isinstance(value, list | set) else None
