"""What functions, classes and operators are as values: where they are imported from, and what their code is."""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import types
import weakref
from typing import Any

from marin_dsl.code_identity import CodeIdentity, code_identity, is_of_project
from marin_dsl.encoding import Unencodable
from marin_dsl.encoding.functions import Meaning
from marin_dsl.encoding.places import importable, module_path
from marin_dsl.operator.operator import PACKAGES, Operator

_WITH_CODE = (
    types.FunctionType, types.MethodType, types.BuiltinMethodType, types.MethodWrapperType, functools.partial, type,
    operator.attrgetter, operator.itemgetter, operator.methodcaller,
)  # fmt: skip
_HELD = (".<closure>.", ": default", ": partial", ": self", ": held")
"""How places are called that are in a function itself, and not in a module."""

_IMPORTABLE: weakref.WeakKeyDictionary[Any, CodeIdentity] = weakref.WeakKeyDictionary()
_IN_MEMORY: weakref.WeakKeyDictionary[Any, weakref.ref[CodeIdentity]] = weakref.WeakKeyDictionary()
"""An identity holds what it was read from, its function too: only who uses a function holds the identity of it."""
_LIVE: weakref.WeakValueDictionary[int, CodeIdentity] = weakref.WeakValueDictionary()


def meaning_of(value: Any) -> Meaning | None:
    """What a value is as a function, class or operator; None for anything else."""
    if not callable(value):
        return None
    place = place_of(value)
    if isinstance(value, Operator):
        return Meaning(place, value.identity)
    if place and not is_of_project(value, PACKAGES):
        return Meaning(place, None)
    if place or isinstance(value, _WITH_CODE) or callable(getattr(value, "__wrapped__", None)):
        code = _code_of(value, place)
        if not place:
            _refuse_unseen(value, code)
        return Meaning(place, code.digest, code)
    return None


def _refuse_unseen(value: Any, code: CodeIdentity) -> None:
    """Refuse a function that holds what it cannot be told by: two open files would be one."""
    for where, kind in code.by_type.items():
        if any(mark in where for mark in _HELD):
            name = getattr(value, "__qualname__", type(value).__name__)
            raise Unencodable(
                f"the function `{name}` holds a {kind.removeprefix('builtins.')} ({where}), which cannot be told from "
                "another one; pass it what it needs as data"
            )


def any_changed() -> bool:
    """Whether the code of a function that is a value somewhere is another one than when it was last looked at."""
    return not all(code.is_current for code in tuple(_LIVE.values()))


def _code_of(value: Any, place: str) -> CodeIdentity:
    known = _known(value)
    if known is not None and known.is_current:
        return known
    code = code_identity(value)
    _LIVE[id(code)] = code
    with contextlib.suppress(TypeError):  # without a hash, or without weak references: it is looked at anew each time
        if place:
            _IMPORTABLE[value] = code
        else:
            _IN_MEMORY[value] = weakref.ref(code)
    return code


def _known(value: Any) -> CodeIdentity | None:
    try:
        found = _IN_MEMORY.get(value)
        return _IMPORTABLE.get(value) if found is None else found()
    except TypeError:
        return None


def place_of(value: Any) -> str:
    """`module:qualified.name` where a value can be imported from by any process; empty if it cannot."""
    module = getattr(value, "__module__", None) or getattr(getattr(value, "__objclass__", None), "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not (isinstance(module, str) and isinstance(name, str) and module in sys.modules) or "<" in name:
        return ""
    place = f"{module_path(module)}:{name}"
    try:
        found = None if place.startswith("__main__:") else importable(place)
    except LookupError:
        found = None
    return place if found is value else ""
