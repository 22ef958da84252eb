"""Types as far as drawing graphs needs them: values of a type, which type another can stand for, and typed parts."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument, ResolutionFailed

from marin_dsl.expression import Expression
from marin_dsl.operator.fitting import NUMBERS, alternatives, plain
from marin_dsl.outcome import Failed, Ok
from marin_dsl.testing.strategies import arrays, hashable_scalars, values

Strategy = st.SearchStrategy[Any]

ANYTHING = (Any, object, None, inspect.Parameter.empty)
"""What a parameter without a type is annotated with, among others."""
SEQUENCES = (list, Sequence, Iterable, Collection)
MAPPINGS = (dict, Mapping)


def takes_anything(hint: Any) -> bool:
    """Whether a type says nothing."""
    return any(hint is each for each in ANYTHING) or isinstance(hint, typing.TypeVar)


@functools.lru_cache(maxsize=1024)
def values_of(hint: Any) -> Strategy | None:
    """Values of a type; None when Hypothesis knows of none."""
    found = [strategy for kind in alternatives(hint) if (strategy := _values_of_one(kind)) is not None]
    return st.one_of(found) if found else None


def _values_of_one(hint: Any) -> Strategy | None:
    if takes_anything(hint):
        return values(max_leaves=3)
    bare = _BARE.get(hint) if isinstance(hint, type) else None
    if bare is not None:
        return bare()
    nested = nest_of(hint, values_of)
    if nested is not None:
        return nested
    try:
        found: Strategy = st.from_type(hint)
        found.validate()
    except (ResolutionFailed, InvalidArgument):
        return None
    return found


def nest_of(hint: Any, members: Callable[[Any], Strategy | None]) -> Strategy | None:
    """Lists, tuples and dicts of a type, their members drawn by the members' types; None when it is no such type."""
    origin, kinds = typing.get_origin(hint), [kind for kind in typing.get_args(hint) if kind is not Ellipsis]
    if not kinds or not (origin is tuple or origin in SEQUENCES or origin in MAPPINGS):
        return None
    inside = [values_of(kinds[0]) if origin in MAPPINGS else members(kinds[0]), *map(members, kinds[1:])]
    drawn = [each for each in inside if each is not None]
    if len(drawn) < len(inside):
        return None
    if origin in MAPPINGS:
        return st.dictionaries(*drawn, max_size=3)
    if origin is tuple and Ellipsis not in typing.get_args(hint):
        return st.tuples(*drawn)
    several = st.lists(drawn[0], max_size=3)
    return several.map(tuple) if origin is tuple else several


_BARE: dict[Any, Callable[[], Strategy]] = {
    list: lambda: st.lists(values(max_leaves=2), max_size=3),
    Sequence: lambda: st.lists(values(max_leaves=2), max_size=3),
    tuple: lambda: st.lists(values(max_leaves=2), max_size=3).map(tuple),
    dict: lambda: st.dictionaries(st.text(max_size=3), values(max_leaves=2), max_size=3),
    Mapping: lambda: st.dictionaries(st.text(max_size=3), values(max_leaves=2), max_size=3),
    set: lambda: st.sets(hashable_scalars(), max_size=3),
    frozenset: lambda: st.frozensets(hashable_scalars(), max_size=3),
    np.ndarray: arrays,
    Ok: lambda: values(max_leaves=2).map(lambda value: Ok(value)),
    Failed: lambda: st.builds(Failed, kind=st.just("raised"), exception=st.just("ValueError"), message=st.text()),
}
"""Types that say nothing of what is in them, or whose classes Hypothesis would fill with what is no value."""


def stands_for(given: Any, wanted: Any) -> bool:
    """Whether every value of one type surely is one of another."""
    if takes_anything(wanted):
        return True
    if takes_anything(given):
        return False
    return all(any(_one_stands_for(one, other) for other in alternatives(wanted)) for one in alternatives(given))


def _one_stands_for(given: Any, wanted: Any) -> bool:
    if given == wanted or takes_anything(wanted):
        return True
    origin, parts = typing.get_origin(given) or given, typing.get_args(given)
    target, wanted_parts = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if not (isinstance(origin, type) and isinstance(target, type)):
        return False
    try:
        related = issubclass(origin, (target, *NUMBERS.get(target, ())))
    except TypeError:  # protocols and typed dicts cannot be asked
        return False
    return related and (
        not wanted_parts or (len(parts) == len(wanted_parts) and all(map(stands_for, parts, wanted_parts)))
    )


@functools.lru_cache(maxsize=1024)  # a class does not change its fields
def _fields(cls: type) -> tuple[tuple[str, Any], ...]:
    if not (attrs.has(cls) or hasattr(cls, "__dataclass_fields__") or (issubclass(cls, tuple) and cls is not tuple)):
        return ()
    names = [field.name for field in attrs.fields(cls)] if attrs.has(cls) else [*getattr(cls, "__annotations__", {})]
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, TypeError):
        return ()
    return tuple((name, hints[name]) for name in names if name in hints)


def parts(expression: Expression[Any], hint: Any) -> list[tuple[Callable[[], Expression[Any]], Any]]:
    """The parts that every value of a type has, each as what builds the projection, and the type of the part."""
    if plain(hint) and typing.is_typeddict(hint):
        keys = typing.get_type_hints(hint)
        return [(functools.partial(expression.__getitem__, key), kind) for key, kind in keys.items()]
    if plain(hint):
        return [(functools.partial(expression.field, name), kind) for name, kind in _fields(hint)]
    kinds = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and Ellipsis not in kinds:
        return [(functools.partial(expression.__getitem__, place), kind) for place, kind in enumerate(kinds)]
    return []
