"""Objects of other makers, by what they would be pickled as: a `SimpleNamespace(rate=0.1)`, an `itemgetter("loss")`."""

import copyreg
import functools
import pickle
import random
import types
from collections.abc import Callable
from typing import Any

_SEEN_BY_ITSELF = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodType, type)


def reduced(value: Any, is_ours: Callable[[type], bool]) -> tuple[object, ...] | None:
    """How pickle would make a value anew: a callable, its arguments, and what is set then.

    Args:
        value: an object of a class that is not the project's.
        is_ours: whether a class is the project's; such objects inside are not pickled to see whether that can be done.

    Returns:
        The parts; None if some part of it cannot be pickled, or if using it changes it (iterators, random numbers).
    """
    kind = type(value)
    if hasattr(kind, "__next__") or isinstance(value, random.Random) or kind.__module__.startswith("numpy.random"):
        return None
    try:
        _Probe(is_ours).dump(value)
        # What a class says of itself comes first: Dask, once it is imported, registers other ways for all exceptions.
        says_so = kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__
        reducer = None if says_so else copyreg.dispatch_table.get(kind)
        found = reducer(value) if reducer else value.__reduce_ex__(4)
    except Exception:  # other people's code ran, and may raise anything
        return None
    if isinstance(found, str):
        return None
    make, arguments, state, items, pairs = (*found, None, None, None)[:5]
    return make, arguments, _without_computed(kind, state), items and list(items), pairs and dict(pairs)


class _Probe(pickle.Pickler):
    """Pickles to nowhere; functions, classes and the project's objects are looked at elsewhere."""

    def __init__(self, is_ours: Callable[[type], bool]) -> None:
        super().__init__(_Nowhere(), protocol=5, buffer_callback=lambda buffer: None)
        self._is_ours = is_ours

    def persistent_id(self, value: object) -> str | None:
        return "seen" if isinstance(value, _SEEN_BY_ITSELF) or self._is_ours(type(value)) else None


class _Nowhere:
    def write(self, data: bytes) -> int:
        return len(data)


def _without_computed(kind: type, state: object) -> object:
    if not isinstance(state, dict):
        return state
    return {n: v for n, v in state.items() if not isinstance(getattr(kind, str(n), None), functools.cached_property)}
