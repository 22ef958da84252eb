"""Functions and classes as values: by where they can be imported from, and by what their code is.

What can be imported is named; if it is the project's own, the digest of its code stands beside the name, so that an
edited function is another value. What cannot be imported (a lambda, a closure, a function of a notebook) is its code
digest alone, and stands in memory: it goes along with the expression that it is an argument of, and into no store.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import attrs

from marin_dsl.encoding.places import importable
from marin_dsl.encoding.registry import Unencodable


@attrs.frozen
class Meaning:
    """What a function or class is as a value.

    Attributes:
        place: `module:qualified.name`; empty when it cannot be imported.
        code: 32 bytes for its code; None for what is installed, which its name tells.
        seen: what the code was read from; it is remembered as long as this is held.
    """

    place: str
    code: bytes | None
    seen: object = attrs.field(default=None, eq=False, repr=False)


FunctionKey = tuple[str, bytes]
"""Place and code of a function: two of one code can have two places, and then are two values."""


@attrs.frozen(eq=False)
class _Held:
    """A function; not every one can be referred to weakly."""

    function: Any


class Functions(Mapping[FunctionKey, Any]):
    """Functions that go along with an expression; unpickling makes them known where they arrive.

    Args:
        held: functions by place and code.
        seen: what their code was read from, to be remembered as long as they are held.
    """

    __slots__ = ("_held", "seen")

    def __init__(self, held: Mapping[FunctionKey, Any], seen: tuple[object, ...] = ()) -> None:
        self._held = {named: _known(named, function) for named, function in held.items()}
        self.seen = seen

    def __getitem__(self, named: FunctionKey) -> Any:
        return self._held[named].function

    def __iter__(self) -> Iterator[FunctionKey]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __reduce__(self) -> Any:
        return Functions, (dict(self),)


NO_FUNCTIONS = Functions({})


class MeaningOf(Protocol):
    """Tells what a value is as a function or class; None for anything else."""

    def __call__(self, value: Any) -> Meaning | None:
        """What the value is."""
        ...


_KNOWN: weakref.WeakValueDictionary[FunctionKey, _Held] = weakref.WeakValueDictionary()
"""Functions in memory: who refers to one by what it is holds it (see `Functions`)."""


def _known(named: FunctionKey, function: Any) -> _Held:
    return _KNOWN.setdefault(named, _Held(function))


_meaning_of: MeaningOf = lambda value: None  # noqa: E731  (encoding comes before code: who knows of code says it)


def tell_functions_by(meaning_of: MeaningOf) -> None:
    """Say how functions and classes are told from one another; before that none is a value."""
    global _meaning_of
    _meaning_of = meaning_of


def meaning_of(value: Any) -> Meaning | None:
    """What a value is as a function or class; None for anything else.

    Raises:
        Unencodable: it is one that cannot be told from others.
    """
    return _meaning_of(value)


def function_meant(place: str, code: bytes | None) -> Any:
    """The function or class that an encoding names.

    Raises:
        LookupError: it is not here.
        ValueError: what is here has another code.
    """
    known = _KNOWN.get((place, code)) if code is not None else None
    if known is not None and (not place or known.function.__module__ == "__main__"):
        return known.function  # it came with its expression; others can be looked at as they are now
    if not place:
        raise LookupError(
            "it holds a function that cannot be imported, which is kept in no store; build the expression again"
        )
    found = importable(place)
    meant = meaning_of(found)
    if meant is None:
        raise LookupError(f"`{place}` is no function or class")
    if meant.code != code:
        raise ValueError(
            f"`{place}` is not what it was when the value was made: its code is another one; make it anew "
            "(raise the version of the operator that made it)"
        )
    return found


def refuse_to_keep(name: str) -> Unencodable:
    """What is said of a function that would have to be stored and cannot be imported."""
    return Unencodable(
        f"the function `{name}` cannot be imported, so that nobody could read it from a store; define it at the top "
        "of a module"
    )
