"""The quick answers of a signature: they are right when they are given, and `signature` knows the rest.

Most calls are of functions without `*args` and `**kwargs`, and most arguments are of exactly the class that they should
be. Both are worked out once per operator; whatever is not as plain is left to `inspect` and to the type checker.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

_NUMBERS: dict[type, tuple[type, ...]] = {
    int: (int, bool),
    float: (float, int, bool),
    complex: (complex, float, int, bool),
}
"""The classes whose instances are taken for a number of a class."""


@attrs.frozen(eq=False)
class Placement:
    """Where the arguments of a call go.

    Attributes:
        positional: names of the parameters that can be given by position.
        places: for each parameter that can be given by name, how many positional arguments leave it free.
        required: names of the parameters without a default.
        defaults: all parameters in order, each with its default (or None).
    """

    positional: tuple[str, ...]
    places: Mapping[str, int]
    required: tuple[str, ...]
    defaults: Mapping[str, Any]

    @classmethod
    def of(cls, signature: inspect.Signature) -> Placement | None:
        """The placement for a signature; None when it collects arguments or has positional-only ones."""
        parameters = signature.parameters.values()
        if any(each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) for each in parameters):
            return None
        positional = tuple(each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)
        return cls(
            positional,
            {each.name: position for position, each in enumerate(parameters)},
            tuple(each.name for each in parameters if each.default is each.empty),
            {each.name: None if each.default is each.empty else each.default for each in parameters},
        )

    def place(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Arguments by parameter name, in order, defaults filled in; None when the call is wrong."""
        given, places = len(args), self.places
        if given > len(self.positional):
            return None
        for name in kwargs:
            if places.get(name, -1) < given:  # unknown, or given by position as well
                return None
        for name in self.required:
            if places[name] >= given and name not in kwargs:
                return None
        arguments = {**self.defaults, **kwargs}
        arguments.update(zip(self.positional, args, strict=False))
        return arguments


def surely_right(parameter: inspect.Parameter, hint: Any) -> Callable[[Any], bool]:
    """A quick test whether what a parameter is given fits its type; of `*args` and `**kwargs`, whether each does."""
    fits = surely_fits(hint)
    if parameter.kind is parameter.VAR_POSITIONAL:
        return lambda collected: all(map(fits, collected))
    if parameter.kind is parameter.VAR_KEYWORD:
        return lambda collected: all(map(fits, collected.values()))
    return fits


def surely_fits(hint: Any) -> Callable[[Any], bool]:
    """A quick test whether a value fits a type: yes is certain, no means that it has to be looked at closely.

    >>> fits = surely_fits(list[float] | None)
    >>> fits([1, 0.5]), fits(None), fits(["a"])
    (True, True, False)
    """
    kinds = exact_kinds(hint)
    containers = [test for kind in alternatives(hint) if (test := _container_test(kind)) is not None]
    if not containers:
        return lambda value: type(value) in kinds
    return lambda value: type(value) in kinds or any(test(value) for test in containers)


def _container_test(hint: Any) -> Callable[[Any], bool] | None:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is list and len(parts) == 1:
        items = _all_fit(parts[0])
        return lambda value: type(value) is list and items(value)
    if origin is dict and len(parts) == 2:
        keys, items = map(_all_fit, parts)
        return lambda value: type(value) is dict and keys(value) and items(value.values())
    return None


def _all_fit(hint: Any) -> Callable[[Iterable[Any]], bool]:
    if hint is Any:
        return lambda values: True
    kinds = exact_kinds(hint)
    return lambda values: kinds.issuperset(map(type, values))


def exact_kinds(hint: Any) -> frozenset[type]:
    """Classes whose direct instances fit a type, whatever is in them."""
    kinds: set[type] = set()
    for kind in alternatives(hint):
        if plain(kind) and (kind is tuple or not issubclass(kind, tuple)):  # a named tuple has types of its own inside
            kinds.update(_NUMBERS.get(kind, (kind,)))
    return frozenset(kinds)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union; of another type itself."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    return typing.get_args(hint) if union else (hint,)


def plain(kind: Any) -> bool:
    """Whether a type is a mere class."""
    return isinstance(kind, type) and kind is not Any and not typing.get_args(kind)
