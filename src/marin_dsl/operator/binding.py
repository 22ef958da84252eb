"""Where the arguments of a call go: worked out once per operator, and as `inspect` would place them.

A call that is wrong is left to `inspect`, which has the words for it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(eq=False)
class Placement:
    """Where the arguments of a call go.

    Attributes:
        positional: names of the parameters that can be given by position.
        only: how many of those can be given by position only.
        needed: how many of those that can be given by position only have no default.
        places: for each parameter that can be given by name, how many positional arguments leave it free.
        required: names of the parameters that can be given by name and have no default.
        defaults: all parameters in order, each with its default (or None).
        complete: how many positional arguments are all there can be; -1 when some can be given in no other way than
            by name, or are collected.
        rest: the parameter that collects further positional arguments, if there is one.
        named: the parameter that collects further named arguments, if there is one.
    """

    positional: tuple[str, ...]
    only: int
    needed: int
    places: Mapping[str, int]
    required: tuple[str, ...]
    defaults: Mapping[str, Any]
    complete: int
    rest: str | None
    named: str | None

    @classmethod
    def of(cls, signature: inspect.Signature) -> Placement:
        """The placement for a signature."""
        parameters = signature.parameters.values()
        only = [each for each in parameters if each.kind is each.POSITIONAL_ONLY]
        either = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        by_name = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
        places = {each.name: len(only) + position for position, each in enumerate(either)}
        return cls(
            tuple(each.name for each in (*only, *either)),
            len(only),
            sum(each.default is each.empty for each in only),
            places | {each.name: sys.maxsize for each in by_name},
            tuple(each.name for each in (*either, *by_name) if each.default is each.empty),
            {each.name: None if each.default is each.empty else each.default for each in parameters},
            len(parameters) if len(parameters) == len(only) + len(either) else -1,
            next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), None),
            next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), None),
        )

    def place(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Arguments by parameter name, in order, defaults filled in; None when the call is wrong.

        It is None as well for what Python's versions do not agree about: a parameter that can be given by position
        only, is not, and whose name is that of a named argument.
        """
        given, places = len(args), self.places
        if given == self.complete and not kwargs:
            return dict(zip(self.positional, args))  # noqa: B905 (as many, and each call pays for asking)
        if given > len(self.positional) and self.rest is None:
            return None
        if given < self.only and (
            given < self.needed or any(name in kwargs for name in self.positional[given : self.only])
        ):
            return None
        for name in kwargs:
            # Unknown, or given by position as well.
            if places.get(name, -1) < given and (self.named is None or name in places):
                return None
        for name in self.required:
            if places[name] >= given and name not in kwargs:
                return None
        return self._collected(args, kwargs)

    def _collected(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        arguments = {**self.defaults}
        if self.named is None:
            arguments.update(kwargs)
        else:
            further: dict[str, Any] = {}
            for name, value in kwargs.items():
                (arguments if name in self.places else further)[name] = value
            arguments[self.named] = further
        arguments.update(zip(self.positional, args, strict=False))
        if self.rest is not None:
            arguments[self.rest] = args[len(self.positional) :]
        return arguments
