"""Wrong calls fail where the user wrote them, and say what to do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, Union

import attrs
import numpy as np
import pytest

from marin_dsl import Expression, encodable, grid, op
from marin_dsl.grids import Cell
from marin_dsl.operator.signature import WrongCall, mismatch, spell


@encodable
@attrs.frozen
class Settings:
    rate: Any = 0.1


class Shaped(Protocol):
    def shape(self) -> tuple: ...


class Row(TypedDict):
    loss: float


class Point(NamedTuple):
    x: int


@op(version="1")
def train(corpus: str, *, rate: float, steps: int = 10) -> float:
    return rate


@op(version="1")
def count(text: str) -> int:
    return len(text)


@op(version="1")
def anything(value: Any) -> Any:
    return value


@op(version="1")
def several(*parts: int, **named: float) -> int:
    return sum(parts)


def complaint(call) -> str:
    with pytest.raises(WrongCall) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: train("a", rat=0.1),  # `rate` is missing by that too, and the misspelling is what helps
            "train(...): unexpected argument `rat`; did you mean `rate`? it takes corpus: str, rate: float, steps: int",
        ),
        (
            lambda: train("a", momentum=0.1, rate=1.0),
            "train(...): unexpected argument `momentum`; it takes corpus: str",
        ),
        (lambda: train("a"), "train(...): missing a required argument: 'rate'; it takes corpus: str"),
        (lambda: train(rate=0.1), "train(...): missing a required argument: 'corpus'; it takes"),
        (lambda: train("a", "b", rate=0.1), "train(...): too many positional arguments; it takes"),
        (lambda: train("a", corpus="b", rate=0.1), "train(...): multiple values for argument 'corpus'; it takes"),
        (lambda: train(1, rate=0.1), "argument `corpus` is 1 (a int); expected str"),
        (lambda: train("a", rate="fast"), "argument `rate` is 'fast' (a str); expected float"),
        (lambda: train("a", rate=0.1, steps=1.5), "argument `steps` is 1.5 (a float); expected int"),
        (lambda: train(count("a"), rate=0.1), "argument `corpus` is the result of"),
        (lambda: train([count("a")], rate=0.1), "argument `corpus` is a list; expected str"),
        (lambda: train(Settings(count("a")), rate=0.1), "argument `corpus` is a Settings; expected str"),
        (lambda: train(grid(a=[1])(lambda a: count("a")), rate=0.1), "argument `corpus` is a grid; expected str"),
        (lambda: several(1, 2, "x"), "argument `parts[2]` is 'x' (a str); expected int"),
        (lambda: several(1, a="x"), "argument `a` is 'x' (a str); expected float"),
        (lambda: anything(object()), "at `value`: a object has no encoding"),
        (lambda: anything({"a": [object()]}), "at `value['a'][0]`: a object has no encoding"),
        (lambda: anything({count("a"): 1}), "an expression cannot be a dict key or a member of a set"),
        (lambda: anything({count("a")}), "an expression cannot be a dict key or a member of a set"),
    ],
)
def test_a_wrong_call_names_its_line_and_what_is_wrong(call, text):
    found = complaint(call)
    assert text in found
    assert re.match(re.escape(__file__) + r":\d+: \w+\(\.\.\.\): ", found)


def test_the_place_is_the_line_of_the_call():
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(WrongCall, match=re.escape(f"{__file__}:{line}: count(...)")):
        count(3)


def test_a_value_that_contains_itself_is_refused():
    cycle: list = []
    cycle.append(cycle)
    assert "an argument contains itself, or is nested too deeply to be data" in complaint(lambda: anything(cycle))

    @op(version="1")
    def typed(values: list[list]) -> int:
        return 1

    assert "an argument contains itself" in complaint(lambda: typed(cycle))


def operator(hint: Any):
    def function(value):
        return value

    function.__annotations__ = {"value": hint}
    return op(version="1")(function)


def returning(hint: Any) -> Expression:
    def function():
        return None

    function.__annotations__ = {"return": hint}
    return op(version="1")(function)()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (int, float), (int, complex), (float, complex), (bool, int), (Any, int), (int, Any), (object, int),
        (int, object),
        (int, int | None), (type(None), int | None), (int, Union[float, None]),  # noqa: UP007
        (list[int], list[str]), (int, Shaped),
        (dict, Row), (Row, dict), (int, Literal[1, 2]), (Sequence[int], list), (Point, tuple), (None, int | None),
        (Expression, int), (Expression[int], str | None),  # an operator that gives one is gone on with
    ],
)  # fmt: skip
def test_an_expression_fits_where_its_result_may(given, expected):
    assert isinstance(operator(expected)(returning(given)), Expression)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(str, int), (float, int), (complex, float), (str, int | None), (dict, str | int), (type(None), int), (bytes, str)],
)
def test_an_expression_that_can_never_fit_is_refused(given, expected):
    found = complaint(lambda: operator(expected)(returning(given)))
    assert f"a {spell(given)}; expected {spell(expected)}" in found


NUMBER, TEXT = returning(int), returning(str)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ([NUMBER, 1, 2.5], list[float]), ([NUMBER], list[float] | None), ([NUMBER], Union[list[float], None]),  # noqa: UP007
        ((NUMBER, "a"), tuple[int, str]), ((NUMBER, 1), tuple[int, ...]), ({"a": NUMBER}, dict[str, float]),
        ({"a": [NUMBER]}, Mapping[str, Sequence[float]]), ({"loss": NUMBER}, Row), ([NUMBER], Any), ([NUMBER], list),
        ([NUMBER], str | list), (grid(a=[1])(lambda a: NUMBER), list[Cell]), (grid(a=[1])(lambda a: NUMBER), list),
        (Settings(NUMBER), Settings), (Settings(NUMBER), Settings | None), ([Settings(NUMBER)], list[Settings]),
        (grid(a=[1])(lambda a: NUMBER), Sequence[Cell[float]]),
    ],
)  # fmt: skip
def test_nests_with_expressions_fit(value, hint):
    assert mismatch(value, hint) is None
    assert isinstance(operator(hint)(value), Expression)


@pytest.mark.parametrize(
    ("value", "hint", "text"),
    [
        ([1, TEXT], list[float], "at [1] is the result of"),
        ([1, "a", NUMBER], list[float], "at [1] is 'a' (a str); expected float"),
        ({"a": TEXT}, dict[str, float], "at ['a'] is the result of"),
        ((NUMBER, NUMBER), tuple[int, str], "at [1] is the result of"),
        ((1, TEXT), tuple[int, ...], "at [1] is the result of"),
        ([[1, TEXT]], list[list[int]], "at [0] at [1] is the result of"),
        ([TEXT], list[float] | None, "is a list; expected list[float] | None"),
        ((TEXT,), list, "is a tuple; expected list"),
        ({"a": NUMBER}, list[int], "is a dict; expected list[int]"),
        (Settings(NUMBER), int, "is a Settings; expected int"),
    ],
)
def test_nests_with_expressions_that_do_not_fit_say_where(value, hint, text):
    assert text in mismatch(value, hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [(1, float), (True, int), (np.float64(0.5), float), (np.arange(3), np.ndarray), ([1, 2], list[float]), (None, Any)],
)
def test_plain_values_fit(value, hint):
    assert mismatch(value, hint) is None


def test_a_wrong_element_deep_in_a_plain_list_is_found():
    assert "[2]" in mismatch([1, 2, "three"], list[int]) or "item 2" in mismatch([1, 2, "three"], list[int])


def test_annotations_that_cannot_be_resolved_are_not_checked():
    @op(version="1")
    def odd(value: Undefined, other: int) -> Undefined:
        return value

    assert isinstance(odd("x", 1), Expression)


def test_a_long_list_is_checked_in_reasonable_time():
    import time

    @op(version="1")
    def typed(values: list[int]) -> int:
        return 1

    began = time.process_time()
    typed(list(range(100_000)))
    assert time.process_time() - began < 2
