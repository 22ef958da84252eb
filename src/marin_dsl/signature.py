"""Whether the arguments of a call fit an operator's signature; wrong calls fail where the user wrote them."""

from __future__ import annotations

import difflib
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any

import attrs

from marin_dsl.expression import Expression


class WrongCall(TypeError):
    """An operator was called with arguments that it cannot take; the message names the call's file and line."""


@attrs.frozen(eq=False)
class Signature:
    """The parameters of an operator, with the types that they and the result are annotated with.

    Attributes:
        name: what messages call the operator.
        parameters: the function's own signature.
        hints: annotations by parameter name, and the result's under `return`.
    """

    name: str
    parameters: inspect.Signature
    hints: Mapping[str, Any]

    @classmethod
    def of(cls, function: Any, name: str) -> Signature:
        """The signature of a function; annotations that cannot be resolved are not checked."""
        try:
            hints = typing.get_type_hints(function)
        except (NameError, TypeError, AttributeError):
            hints = {}
        return cls(name, inspect.signature(function), hints)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], origin: tuple[str, int]) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in.

        Raises:
            WrongCall: a name is unknown, an argument is missing or given twice, or one has the wrong type.
        """
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise WrongCall(self._complaint(origin, self._advice(kwargs, error))) from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            parameter = self.parameters.parameters[name]
            if name in self.hints and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                self._check(name, value, origin)
        return dict(bound.arguments)

    def call(self, function: Any, arguments: Mapping[str, Any]) -> Any:
        """The result of a function on arguments by parameter name."""
        bound = inspect.BoundArguments(self.parameters, dict(arguments))  # type: ignore[arg-type]
        return function(*bound.args, **bound.kwargs)

    def _check(self, name: str, value: Any, origin: tuple[str, int]) -> None:
        problem = mismatch(value, self.hints[name])
        if problem:
            raise WrongCall(self._complaint(origin, f"argument `{name}` {problem}"))

    def _complaint(self, origin: tuple[str, int], text: str) -> str:
        return f"{origin[0]}:{origin[1]}: {self.name}(...): {text}"

    def _advice(self, kwargs: dict[str, Any], error: TypeError) -> str:
        known = [
            name
            for name, parameter in self.parameters.parameters.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        unknown = [name for name in kwargs if name not in known]
        accepts = f"it takes {', '.join(self._spelled(name) for name in known) or 'no arguments'}"
        if not unknown or "unexpected keyword" not in str(error):
            return f"{error}; {accepts}"
        close = difflib.get_close_matches(unknown[0], known, 1)
        guess = f"; did you mean `{close[0]}`?" if close else ";"
        return f"unexpected argument `{unknown[0]}`{guess} {accepts}"

    def _spelled(self, name: str) -> str:
        hint = self.hints.get(name)
        return f"{name}: {spell(hint)}" if hint is not None else name


def spell(hint: Any) -> str:
    """A type as a user would write it."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def mismatch(value: Any, hint: Any) -> str | None:
    """Why a value (with expressions somewhere inside, perhaps) does not fit a type; None when it does.

    >>> mismatch(0.5, int)
    'is 0.5 (a float); expected int'
    """
    if isinstance(value, Expression):
        return _expression_mismatch(value, hint)
    if _holds_expressions(value):
        return _nest_mismatch(value, hint)
    import typeguard

    try:
        typeguard.check_type(value, hint, collection_check_strategy=typeguard.CollectionCheckStrategy.ALL_ITEMS)
    except typeguard.TypeCheckError as error:
        inner = f": {error}" if isinstance(value, list | tuple | dict | set) else ""
        return f"is {value!r:.80} (a {type(value).__name__}); expected {spell(hint)}{inner}"
    except Exception:  # a hint that the checker does not understand checks nothing
        return None
    return None


def _expression_mismatch(value: Expression[Any], hint: Any) -> str | None:
    """An expression fits unless both types are plain classes and neither is a kind of the other."""
    given = getattr(value.operator, "result_hint", None)
    expected = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if not isinstance(given, type) or typing.get_args(given) or not all(_plain(kind) for kind in expected):
        return None
    if any(issubclass(given, kind) or issubclass(kind, given) for kind in expected) or (
        given is int and float in expected
    ):
        return None
    return f"is the result of {value.operator.name}, a {spell(given)}; expected {spell(hint)}"


def _plain(kind: Any) -> bool:
    return isinstance(kind, type) and not typing.get_args(kind)


def _holds_expressions(value: Any) -> bool:
    from marin_dsl.grid import Grid

    if isinstance(value, Expression | Grid):
        return True
    if isinstance(value, dict):
        return any(_holds_expressions(item) for item in value.values())
    if attrs.has(type(value)):
        return any(_holds_expressions(getattr(value, field.name)) for field in attrs.fields(type(value)))
    return isinstance(value, list | tuple) and any(_holds_expressions(item) for item in value)


def _nest_mismatch(value: Any, hint: Any) -> str | None:
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if isinstance(origin, type) and isinstance(value, list | tuple | dict) and not isinstance(value, origin):
        return f"is a {type(value).__name__}; expected {spell(hint)}"
    items: list[tuple[str, Any, Any]] = []
    if isinstance(value, dict) and len(parts) == 2:
        items = [(f"[{key!r}]", item, parts[1]) for key, item in value.items()]
    elif isinstance(value, list | tuple) and _one_kind(value, parts):
        items = [(f"[{position}]", item, parts[0]) for position, item in enumerate(value)]
    for place, item, expected in items:
        problem = mismatch(item, expected)
        if problem:
            return f"at {place} {problem}"
    return None


def _one_kind(value: list[Any] | tuple[Any, ...], parts: tuple[Any, ...]) -> bool:
    """Whether a list's or tuple's type says one thing of all elements: `list[T]`, `tuple[T, ...]`."""
    return len(parts) == 1 if isinstance(value, list) else len(parts) == 2 and parts[1] is Ellipsis
