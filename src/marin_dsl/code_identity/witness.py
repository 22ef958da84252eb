"""What an identity was read from, so that it can be asked at little cost whether all of that is still as it was.

A notebook's cell defines a helper anew, a script sets a module's constant, a module is loaded again: an identity that
was computed before then stands for code that no longer runs. What names meant is remembered by the objects themselves,
and compared by `is`; constants that can be changed in place are compared by what they consist of.

What the code itself changes while it runs (a cache that it fills, a global that it sets once) is not looked at again:
it would be found changed after each run.
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

ABSENT = object()
Names = dict[int, tuple[Mapping[str, object], dict[str, object]]]
State = bytes | tuple[object, ...] | None


@attrs.define(eq=False)
class Witness:
    """Names with what they meant, and values with what they consisted of.

    Attributes:
        state_of: what a value consists of, to be compared; None where that is not looked at.
    """

    state_of: Callable[[object], State] = lambda value: None
    _names: Names = attrs.field(factory=dict)
    _attributes: Names = attrs.field(factory=dict)
    _cells: list[tuple[types.CellType, object]] = attrs.field(factory=list)
    _fields: dict[int, tuple[object, dict[str, object]]] = attrs.field(factory=dict)
    _states: dict[int, tuple[object, State]] = attrs.field(factory=dict)

    def name(self, namespace: Mapping[str, object], name: str) -> None:
        """Remember what a name means in a namespace, or that it means nothing there."""
        _note(self._names, namespace, name)

    def attribute(self, namespace: Mapping[str, object], name: str) -> None:
        """Remember what a class or a module has under a name, or that it has nothing."""
        _note(self._attributes, namespace, name)

    def cell(self, cell: types.CellType) -> None:
        """Remember what a variable of a closure holds."""
        self._cells.append((cell, content(cell)))

    def value(self, value: object) -> None:
        """Remember what a value consists of."""
        state = self.state_of(value)
        if state is not None:
            self._states[id(value)] = value, state

    def fields(self, value: object, fields: Mapping[str, object]) -> None:
        """Remember what an instance has in its fields."""
        self._fields[id(value)] = value, dict(fields)
        for part in fields.values():
            self.value(part)

    def forget(self, names: Iterable[tuple[int, str]], attributes: Iterable[str], values: Iterable[object]) -> None:
        """Look no more at what the code itself changes: globals (by namespace), attributes, and values in place."""
        for namespace, name in names:
            if namespace in self._names:
                self._names[namespace][1].pop(name, None)
        for _, seen in (*self._attributes.values(), *self._fields.values()):
            for name in attributes:
                seen.pop(name, None)
        for value in values:
            self._states.pop(id(value), None)
            self._fields.pop(id(value), None)

    def holds(self) -> bool:
        """Whether everything is as it was."""
        return (
            all(map(_mean_the_same, (*self._names.values(), *self._attributes.values())))
            and all(content(cell) is held for cell, held in self._cells)
            and all(map(_has_the_same, self._fields.values()))
            and all(_equal(self.state_of(value), state) for value, state in self._states.values())
        )


def _note(names: Names, namespace: Mapping[str, object], name: str) -> None:
    names.setdefault(id(namespace), (namespace, {}))[1][name] = namespace.get(name, ABSENT)


def _mean_the_same(noted: tuple[Mapping[str, object], dict[str, object]]) -> bool:
    namespace, seen = noted
    return all(map(operator.is_, map(namespace.get, seen, itertools.repeat(ABSENT)), seen.values()))


def _has_the_same(noted: tuple[object, dict[str, object]]) -> bool:
    value, seen = noted
    return all(getattr(value, name, None) is part for name, part in seen.items())


def content(cell: types.CellType) -> Any:
    """What a variable of a closure holds; `ABSENT` while it holds nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _equal(now: State, before: State) -> bool:
    if isinstance(now, tuple) and isinstance(before, tuple):
        return len(now) == len(before) and all(map(operator.is_, now, before))
    return now == before
