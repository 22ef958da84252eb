"""What is said of two recipes that differ."""

from __future__ import annotations

import enum
import re
from typing import Any

import attrs
import numpy as np
import pytest

from marin_dsl import encodable, op
from marin_dsl.expression import Expression, walk
from marin_dsl.expression.recipe import structure
from marin_dsl.lineage.difference import differences, leaves, reasons


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@encodable
@attrs.frozen
class Settings:
    rate: float
    inner: Any = None


@op(version="1")
def f(value: Any, other: Any = None) -> Any:
    return value


@op(version="1", name="test.g")
def g(value: Any) -> Any:
    return value


@op(version="2", name="test.g")
def g2(value: Any) -> Any:
    return value


@op(version="1", name="test.g", pin=["python"])
def pinned(value: Any) -> Any:
    return value


@op(name="test.h")
def h(value: Any) -> Any:
    return value


@op(name="test.h")
def h2(value: Any) -> Any:
    return [value]


def between(old: Expression, new: Expression) -> list:
    records = {found.key: structure(found) for found in walk(old, new)}
    return differences(old.key, new.key, records.get, records.get)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (f(0.1), f(0.2), ["f(value=0.2): value 0.1 → 0.2"]),
        (f(1), f(1.0), ["f(value=1.0): value 1 → 1.0"]),
        (f({"a": {"b": [1, 2]}}), f({"a": {"b": [1, 3]}}), ["f: value.a.b[1] 2 → 3"]),
        (f({"a": 1}), f({"b": 1}), ["f: value.a 1 → (absent)", "f: value.b (absent) → 1"]),
        (f({1: "x"}), f({1.0: "x"}), ["f: value.1 'x' → (absent)", "f: value.1.0 (absent) → 'x'"]),
        (f(Settings(0.1)), f(Settings(0.2)), ["f: value.rate 0.1 → 0.2"]),
        (f([1, 2, 3]), f([1, 3]), ["f: value[1] 2 → (absent)"]),
        (f([1, 3]), f([1, 2, 3]), ["f: value[1] (absent) → 2"]),
        (f([1, 2]), f([2, 1]), ["f: value has another order"]),
        (f([1]), f((1,)), ["f: value [1] → (1,)"]),
        (f({1, 2}), f({1, 3}), ["f: value {1, 2} → {1, 3}"]),
        (f({1}), f(frozenset({1})), ["f: value {1} → {1}"]),
        (f({Color.RED: 1}), f({Color.BLUE: 1}), None),
        (f(Color.RED), f(Color.BLUE), None),
        (f(np.zeros(3)), f(np.ones(3)), ["f: value <array float64 3> → <array float64 3>"]),
        (f("x" * 90_000), f("y" * 90_000), None),
        (f(f(1)), f(1), None),
        (g(1), g2(1), ["g(value=1): version 1 → 2"]),
        (g(1), h(1), ["h(value=1): operator test.g → test.h"]),
        (h(1), h2(1), ["h(value=1): code of test.h changed"]),
        (f(1) + 1, f(1) - 1, ["sub(f, 1): operator add → sub"]),
        (f(f(f(1))), f(f(f(2))), ["f(value=2): value 1 → 2"]),
    ],
)
def test_the_lines_name_place_and_values(old, new, lines):
    found = list(leaves(between(old, new)))
    assert found == lines if lines is not None else len(found) >= 1
    assert list(leaves(between(old, old))) == []


def test_pinned_versions_are_named():
    found = list(leaves(between(g(1), pinned(1))))
    assert len(found) == 1
    assert re.fullmatch(r"g\(value=1\): pinned python not pinned → 3\.\d+\.\d+.*", found[0])


def test_a_change_in_the_middle_of_a_sweep_is_one_change():
    old = f([f(n) for n in range(10)])
    new = f([f(n if n != 4 else 40) for n in range(10)])
    assert list(leaves(between(old, new))) == ["f(value=40): value 4 → 40"]


def test_what_an_earlier_run_did_not_record_is_said_so():
    old, new = f(f(1)), f(f(2))
    records = {found.key: structure(found) for found in (old, *walk(new))}
    found = differences(old.key, new.key, records.get, records.get)
    assert list(leaves(found)) == ["f(value=2): recipe is not recorded, so what changed cannot be told"]


def test_reasons_name_own_changes_before_inputs_and_count_the_rest():
    old, new = f({"a": 1, "b": 2, "c": 3}, f(1)), f({"a": 2, "b": 3, "c": 4}, f(2))
    found = reasons(between(old, new))
    assert found[new.key] == "value.a 1 → 2, value.b 2 → 3 and 1 more"
    above = reasons(between(f(old), f(new)))
    assert above[f(new).key] == "input value changed: f(f)"


def test_only_so_many_lines_are_shown():
    found = list(leaves(between(f(list(range(100))), f(list(range(100, 200)))), limit=5))
    assert len(found) == 6
    assert found[-1] == "… and 95 more"


def test_a_setting_that_several_share_is_one_line():
    both = [f([f(1, other=rate), f(2, other=rate), f(3, other=rate)]) for rate in (0.5, 0.25)]
    assert list(leaves(between(*both))) == ["f(value=1, other=0.25) and 2 more: other 0.5 → 0.25"]


def test_a_change_of_code_names_the_definitions_that_changed():
    records = {
        key: {**structure(expression), "operator": {**structure(expression)["operator"], "code": key.hex()}}
        for key, expression in ((b"old", f(1)), (b"new", f(1)))
    }
    for key, record in records.items():
        record["operator"]["identity"] = key.hex()
    sources = {b"old": {"m.step": "1", "m.same": "x", "m.gone": "y"}, b"new": {"m.step": "2", "m.same": "x"}}
    found = differences(b"old", b"new", records.get, records.get, lambda key, record: sources[key])
    assert [str(change) for change in found] == ["code of m.gone, m.step changed"]


def test_expressions_that_came_or_went_are_told_by_their_titles():
    old, new = f([g(1)], g(5)), f([g(1), g(2), [g(3)], {"a": g(4)}], None)
    keys = {key: structure(found) for root in (old, new) for found in walk(root) for key in [found.key]}
    assert [str(change) for change in differences(old.key, new.key, keys.get, keys.get) if not change.inherited] == [
        "other g(value=5) → None",
        "value[1] (absent) → g(value=2)",
        "value[2] (absent) → [g(value=3)]",
        "value[3] (absent) → {'a': g(value=4)}",
    ]
