"""Configurations side by side: only the settings in which they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs
import numpy as np

from marin_dsl.pages.content import Differences

UNSET = "not set"


@attrs.frozen
class Setting:
    """One setting across all arms.

    Attributes:
        name: dotted path of the setting ("optimizer.learning_rate").
        values: its value in each arm as text, `UNSET` where the arm lacks it.
        unset: which of the arms lack it.
    """

    name: str
    values: tuple[str, ...]
    unset: tuple[bool, ...]


@attrs.frozen
class Comparison:
    """What differs between arms and what does not.

    Attributes:
        arms: names of the arms.
        differing: settings with more than one value.
        equal: settings with the same value everywhere.
    """

    arms: tuple[str, ...]
    differing: tuple[Setting, ...]
    equal: tuple[Setting, ...]


def _text(value: object) -> str:
    if isinstance(value, str):
        return value if value else "(empty)"
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return repr(value)


def leaves(configuration: Mapping, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Path and value of every leaf of a nested configuration; an empty mapping is a leaf.

    >>> list(leaves({"a": {"b": 1}, "c": {}}))
    [(('a', 'b'), 1), (('c',), {})]
    """
    for key, value in configuration.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, str(key)))
        else:
            yield (*path, str(key)), value


def _typed(value: object) -> tuple[str, str]:
    return type(value).__name__, _text(value)


def compare(section: Differences) -> Comparison:
    """The settings of all arms, those that differ apart from those that do not; 1, 1.0 and "1" differ."""
    arms = [dict(leaves(configuration)) for _, configuration in section.configurations]
    absent = object()
    differing: list[Setting] = []
    equal: list[Setting] = []
    for path in dict.fromkeys(path for arm in arms for path in arm):
        values = [arm.get(path, absent) for arm in arms]
        unset = tuple(value is absent for value in values)
        texts = tuple(UNSET if missing else _text(value) for value, missing in zip(values, unset, strict=True))
        setting = Setting(".".join(path), texts, unset)
        same = not any(unset) and len({_typed(value) for value in values}) == 1
        (equal if same else differing).append(setting)
    return Comparison(tuple(name for name, _ in section.configurations), tuple(differing), tuple(equal))
