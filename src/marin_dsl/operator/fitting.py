"""Whether a value fits a type, answered quickly: yes is certain, no means that it has to be looked at closely.

Each type becomes one `Fit`, when an operator's signature is read. Most arguments are then answered by their class
alone, containers by the classes of their members, and an expression by the class of its operator's result.
"""

from __future__ import annotations

import abc
import collections.abc
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from marin_dsl.expression import Expression

_COLLECTIONS = frozenset({
    list, set, frozenset, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Set,
    collections.abc.MutableSet, collections.abc.Collection, collections.abc.Iterable,
})  # fmt: skip
_MAPPINGS = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})
_MEMBERS = {range: int, str: str, bytes: int}
"""Sequences whose members are all of one class."""
NUMBERS: dict[type, tuple[type, ...]] = {
    int: (bool,),
    float: (int, bool),
    complex: (float, int, bool),
}
"""What else a parameter of these types takes: the numbers that Python itself takes for them."""
_ONLY_EXPRESSIONS = {Expression}
_ORDINARY = (type.__instancecheck__, abc.ABCMeta.__instancecheck__)


class Fit:
    """A quick test whether a value fits a type: yes is certain, no means that it has to be looked at closely.

    >>> fits = Fit(list[float] | None)
    >>> fits([1, 0.5]), fits(None), fits(["a"])
    (True, True, False)

    Attributes:
        kinds: classes whose direct instances fit, whatever is in them; what is learnt of subclasses is added.
    """

    __slots__ = ("_classes", "_generic", "_hint", "_literals", "_results", "_tests", "kinds")

    def __init__(self, hint: Any) -> None:
        members = alternatives(hint)
        self._hint = hint
        self._classes = tuple(kind for kind in members if plain(kind) and _decided_by_class(kind))
        self._generic = tuple(origin for kind in members if (origin := _generic_class(kind)) is not None)
        self._tests = tuple(test for kind in members if (test := _container_test(kind)) is not None)
        self._literals = _literals(members)
        self._results: set[type] = set()
        exact = {kind for kind in members if plain(kind) and (kind is tuple or not issubclass(kind, tuple))}
        self.kinds: set[type] = exact.union(*(NUMBERS.get(kind, ()) for kind in exact)) - {Expression}

    def __call__(self, value: Any) -> bool:
        """Whether a value surely fits."""
        kind = type(value)
        if kind is Expression:
            return self._result_fits(value)
        if kind in self.kinds:
            return True
        for test in self._tests:
            if test(value):
                return True
        return self._is_literal(kind, value) or self._learns(kind)

    def each(self, values: Iterable[Any]) -> bool:
        """Whether all of some values surely fit."""
        kinds = set(map(type, values))
        if kinds == _ONLY_EXPRESSIONS:  # what is known of their values is known of their operators
            values = {id(value.operator): value for value in values}.values()
        return self.kinds.issuperset(kinds) or all(map(self, values))

    def each_value(self, values: Iterable[Any]) -> bool:
        """The same of keys and of members of sets, where no expression can stand."""
        return self.kinds.issuperset(map(type, values)) or all(self._is_literal(type(each), each) for each in values)

    def _is_literal(self, kind: type, value: Any) -> bool:
        return kind in self._literals and value in self._literals[kind]

    def _learns(self, kind: type) -> bool:
        """Whether a class is a kind of one that the type names; if so it is known from now on."""
        from marin_dsl.grids import Grid

        try:
            found = kind is not Grid and (
                issubclass(kind, self._classes)
                # Of these the members would be looked at as well.
                or (issubclass(kind, self._generic) and not issubclass(kind, (list, tuple, dict)))
            )
        except TypeError:  # a class that cannot be asked
            return False
        if found:
            self.kinds.add(kind)
        return found

    def _result_fits(self, value: Expression[Any]) -> bool:
        given = result_hint(value)
        if not isinstance(given, type) or given in self._results:
            return True
        fits = result_may_fit(value, self._hint)
        if fits:
            self._results.add(given)
        return fits


def _literals(members: tuple[Any, ...]) -> dict[type, frozenset[Any]]:
    """What `Literal` names, by class: `1` and `True` are two, although they are equal."""
    named = [value for kind in members if typing.get_origin(kind) is typing.Literal for value in typing.get_args(kind)]
    return {kind: frozenset(value for value in named if type(value) is kind) for kind in set(map(type, named))}


def _container_test(hint: Any) -> Callable[[Any], bool] | None:
    if hint is Any or (isinstance(hint, typing.TypeVar) and not hint.__bound__ and not hint.__constraints__):
        return lambda value: True
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in _COLLECTIONS and len(parts) == 1:
        return _collection_test(origin, Fit(parts[0]))
    if origin in _MAPPINGS and len(parts) == 2:
        keys, items = map(Fit, parts)
        return lambda value: type(value) is dict and keys.each_value(value) and items.each(value.values())
    if origin is tuple and parts:
        return _tuple_test(parts)
    return None


def _collection_test(origin: type, fit: Fit) -> Callable[[Any], bool]:
    ordered = frozenset(kind for kind in (list, tuple) if issubclass(kind, origin))
    sets = frozenset(kind for kind in (set, frozenset) if issubclass(kind, origin))
    whole = frozenset(kind for kind, member in _MEMBERS.items() if issubclass(kind, origin) and member in fit.kinds)

    def test(value: Any) -> bool:
        kind = type(value)
        if kind in ordered:
            return fit.each(value)
        return kind in whole or (kind in sets and fit.each_value(value))

    return test


def _tuple_test(parts: tuple[Any, ...]) -> Callable[[Any], bool]:
    if parts[1:] == (Ellipsis,):
        fit = Fit(parts[0])
        return lambda value: type(value) is tuple and fit.each(value)
    fits = tuple(map(Fit, parts))

    def test(value: Any) -> bool:
        return (
            type(value) is tuple
            and len(value) == len(fits)
            and all(fit(item) for fit, item in zip(fits, value, strict=True))
        )

    return test


def _decided_by_class(kind: type) -> bool:
    """Whether being a kind of a class is all that it takes: no protocol, no named tuple, no check of its own."""
    ordinary = type(kind).__instancecheck__ in _ORDINARY and not getattr(kind, "_is_protocol", False)
    return ordinary and (kind is tuple or not issubclass(kind, tuple))


def _generic_class(hint: Any) -> type | None:
    """The class of `Cell[float]` or of an array with its dtype: what stands in the brackets is not checked."""
    origin: Any = typing.get_origin(hint)
    if not isinstance(origin, type) or origin in _COLLECTIONS | _MAPPINGS | {type, collections.abc.Callable}:
        return None
    own = origin.__module__ not in ("typing", "types") and not issubclass(origin, (list, tuple, dict))
    return origin if own and _decided_by_class(origin) else None


def result_hint(expression: Expression[Any]) -> Any:
    """The annotated type of the value of an expression; None when nothing says it."""
    return getattr(expression.operator, "result_hint", None)


def result_may_fit(expression: Expression[Any], hint: Any) -> bool:
    """Whether the value of an expression can be of a type; where that cannot be told, it can."""
    given = result_hint(expression)
    return not plain(given) or issubclass(given, Expression) or any(may_be(given, kind) for kind in alternatives(hint))


def may_be(given: type, expected: Any) -> bool:
    """Whether something of one class can be of a type; where that cannot be told, it can."""
    try:
        return (
            not plain(expected)
            or issubclass(given, (expected, *NUMBERS.get(expected, ())))
            or issubclass(expected, given)
        )
    except TypeError:  # protocols and typed dicts cannot be asked
        return True


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union; of another type itself."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if union else (hint,)


def plain(kind: Any) -> bool:
    """Whether a type is a mere class."""
    return isinstance(kind, type) and kind is not Any and not typing.get_args(kind)
