"""Whether the arguments of a call fit an operator's signature; wrong calls fail where the user wrote them."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from marin_dsl.expression import Expression
from marin_dsl.operator.binding import Placement
from marin_dsl.operator.fitting import Fit, alternatives, may_be, result_hint, result_may_fit
from marin_dsl.operator.secret import Secret


class WrongCall(TypeError):
    """An operator was called with arguments that it cannot take; the message names the call's file and line."""


@attrs.frozen(eq=False)
class Signature:
    """The parameters of an operator, with the types that they and the result are annotated with.

    Attributes:
        name: what messages call the operator.
        parameters: the function's own signature.
        hints: annotations by parameter name, and the result's under `return`.
        placement: how right calls are bound.
        fits: by parameter name, whether an argument surely fits; parameters that take anything have none.
        rest: the same for the parameters that collect arguments, of each that they collect.
        by_name: whether all arguments can be given by name.
    """

    name: str
    parameters: inspect.Signature
    hints: Mapping[str, Any]
    placement: Placement
    fits: tuple[tuple[str, Fit], ...]
    rest: tuple[tuple[str, Fit], ...]
    by_name: bool

    @classmethod
    def of(cls, function: Any, name: str) -> Signature:
        """The signature of a function; annotations that cannot be resolved are not checked."""
        try:
            hints = typing.get_type_hints(function)
        except (NameError, TypeError, AttributeError):
            hints = {}
        parameters = inspect.signature(function)
        fits = {each: Fit(hints[each]) for each in parameters.parameters if hints.get(each, Any) is not Any}
        placement = Placement.of(parameters)
        rest = {each: fits.pop(each) for each in (placement.rest, placement.named) if each in fits}
        # What is wrapped has the parameters; what wraps it may look at how they are given.
        nameable = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        by_name = {each.kind for each in parameters.parameters.values()} <= nameable
        by_name = by_name and not hasattr(function, "__wrapped__")
        return cls(name, parameters, hints, placement, tuple(fits.items()), tuple(rest.items()), by_name)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], origin: tuple[str, int]) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in.

        Raises:
            WrongCall: a name is unknown, an argument is missing or given twice, or one has the wrong type.
        """
        arguments = self.placement.place(args, kwargs)
        if arguments is None:
            try:
                bound = self.parameters.bind(*args, **kwargs)
            except TypeError as error:
                raise WrongCall(self._complaint(origin, self._advice(kwargs, error))) from None
            bound.apply_defaults()
            arguments = dict(bound.arguments)
        for name, fit in self.fits:
            value = arguments[name]
            if type(value) not in fit.kinds and not fit(value):
                self._check(name, value, self.hints[name], origin)
        for name, fit in self.rest:
            collected = arguments[name]
            if not fit.each(collected if type(collected) is tuple else collected.values()):
                for place, item in _places(name, collected):
                    self._check(place, item, self.hints[name], origin)
        return arguments

    def check_first(self, value: Any, origin: tuple[str, int] | None) -> None:
        """Make sure that a value fits the first parameter.

        Raises:
            WrongCall: it does not.
        """
        name = next(iter(self.parameters.parameters))
        fit = dict((*self.fits, *self.rest)).get(name)
        if fit is not None and not fit(value):
            self._check(name, value, self.hints[name], origin or ("", 0))

    def call(self, function: Any, arguments: Mapping[str, Any]) -> Any:
        """The result of a function on arguments by parameter name."""
        if self.by_name:
            return function(**arguments)
        bound = inspect.BoundArguments(self.parameters, dict(arguments))
        return function(*bound.args, **bound.kwargs)

    def _check(self, place: str, value: Any, hint: Any, origin: tuple[str, int]) -> None:
        try:
            problem = mismatch(value, hint)
        except RecursionError:
            return  # a value that contains itself is refused by the encoding, which says so
        if problem:
            raise WrongCall(self._complaint(origin, f"argument `{place}` {problem}"))

    def _complaint(self, origin: tuple[str, int], text: str) -> str:
        return f"{origin[0]}:{origin[1]}: {self.name}(...): {text}"

    def _advice(self, kwargs: dict[str, Any], error: TypeError) -> str:
        known = [
            name
            for name, parameter in self.parameters.parameters.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.parameters.parameters.values())
        unknown = [] if takes_any else [name for name in kwargs if name not in known]
        accepts = f"it takes {', '.join(self._spelled(name) for name in known) or 'no arguments'}"
        if not unknown:
            # Python 3.12 and later also say which kind of argument it is.
            return f"{str(error).replace('required keyword-only argument', 'required argument')}; {accepts}"
        close = difflib.get_close_matches(unknown[0], known, 1)
        guess = f"; did you mean `{close[0]}`?" if close else ";"
        return f"unexpected argument `{unknown[0]}`{guess} {accepts}"

    def _spelled(self, name: str) -> str:
        hint = self.hints.get(name)
        return f"{name}: {spell(hint)}" if hint is not None else name


def _places(name: str, collected: Any) -> Iterable[tuple[str, Any]]:
    """What `*args` or `**kwargs` collected, with what messages call each."""
    if isinstance(collected, tuple):
        return [(f"{name}[{position}]", item) for position, item in enumerate(collected)]
    return collected.items()


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
    if isinstance(value, Secret) and any(may_be(str, kind) for kind in alternatives(hint)):
        return None  # operators receive its text
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
    if result_may_fit(value, hint):
        return None
    return f"is the result of {value.operator.name}, a {spell(result_hint(value))}; expected {spell(hint)}"


def _holds_expressions(value: Any) -> bool:
    from marin_dsl.grids import Grid

    if isinstance(value, Expression | Grid | Secret):
        return True
    if isinstance(value, dict):
        return any(map(_holds_expressions, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_expressions, value))
    return attrs.has(type(value)) and any(
        _holds_expressions(getattr(value, field.name, None)) for field in attrs.fields(type(value))
    )


def _nest_mismatch(value: Any, hint: Any) -> str | None:
    """What of a nest of values and expressions does not fit; of a union, what is wrong for its first member."""
    from marin_dsl.grids import Grid

    problems = [
        _nest_mismatch_one(list(value) if isinstance(value, Grid) else value, kind) for kind in alternatives(hint)
    ]
    if None in problems:
        return None
    kind = "grid" if isinstance(value, Grid) else type(value).__name__
    return problems[0] if len(problems) == 1 and "at [" in str(problems[0]) else f"is a {kind}; expected {spell(hint)}"


def _nest_mismatch_one(value: Any, hint: Any) -> str | None:
    origin, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if isinstance(origin, type) and not may_be(type(value), origin):
        return f"is a {type(value).__name__}; expected {spell(hint)}"
    for place, item, expected in _items(value, origin, parts):
        problem = mismatch(item, expected)
        if problem:
            return f"at {place} {problem}"
    return None


def _items(value: Any, origin: Any, parts: tuple[Any, ...]) -> list[tuple[str, Any, Any]]:
    """The elements of a container of which its type says something, each with its place and its type."""
    if isinstance(value, dict):
        return [(f"[{key!r}]", item, parts[1]) for key, item in value.items()] if len(parts) == 2 else []
    if not isinstance(value, list | tuple):
        return []
    if origin is not tuple:
        kinds = parts * len(value) if len(parts) == 1 else ()
    else:
        kinds = parts[:1] * len(value) if parts[1:] == (Ellipsis,) else parts
    return [(f"[{position}]", item, kind) for position, (item, kind) in enumerate(zip(value, kinds, strict=False))]
