"""Projections, arithmetic and attempt: what they compute, and what they leave unread."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_dsl import Failed, Ok, Skipped, attempt, encodable, evaluate, op, provenance
from marin_dsl.encoding import Leaf
from marin_dsl.encoding.arrays import LazyArray
from marin_dsl.expression.inline import INLINE, NotAPart


@pytest.fixture(scope="module", autouse=True)
def _quick_environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3"})
        yield


@op(version="1")
def same(value: Any) -> Any:
    return value


@op(version="1")
def fail(message: str) -> int:
    raise ValueError(message)


def value_of(expression) -> Any:
    return evaluate(expression, store="memory://inline-tests", debug=True).value


OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge"]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(OPERATORS), st.integers(1, 9), st.integers(1, 5))
def test_arithmetic_gives_what_python_gives_on_either_side(name, left, right):
    apply = getattr(operator, name)
    expected = apply(left, right)
    assert value_of(apply(same(left), right)) == expected
    assert value_of(apply(left, same(right))) == expected
    assert value_of(apply(same(left), same(right))) == expected


def test_the_rest_of_arithmetic():
    assert value_of(-same(3)) == -3
    assert value_of(abs(same(-3))) == 3
    assert value_of(same(3).eq(3)) is True
    assert value_of(same("a") + "b") == "ab"
    assert value_of(same(np.eye(2)) @ np.array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert value_of(np.array([1.0, 2.0]) @ same(np.eye(2))).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("build", "exception"),
    [
        (lambda: same(1) / 0, "ZeroDivisionError"),
        (lambda: same(1) + "a", "TypeError"),
        (lambda: same([1])[3], "IndexError"),
        (lambda: same({"a": 1})["b"], "KeyError"),
        (lambda: same(1).field("x"), "AttributeError"),
        (lambda: same(1)[0], "TypeError"),
        (lambda: same(np.arange(3)).field("dtype"), "marin_dsl.encoding.registry.Unencodable"),
    ],
)
def test_an_inline_node_that_fails_is_a_failure_with_its_exception(build, exception):
    outcome = evaluate(build(), store="memory://inline-tests", debug=True)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.exception) == ("raised", exception)
    assert outcome.operator
    below = evaluate(same(build()), store="memory://inline-tests", debug=True)
    assert isinstance(below, Skipped)


def test_items_may_be_expressions_themselves_and_slices_work():
    table = same({"a": [1, 2, 3], ("b", 2): 4, 5: 6})
    assert value_of(table["a"][same(1)]) == 2
    assert value_of(table[("b", 2)]) == 4
    assert value_of(table[same("a")][1:]) == [2, 3]
    assert value_of(same("abcdef")[same(1) : same(5) : 2]) == "bd"
    assert same([1])[1:] != same([1])[2:]


@encodable
@attrs.frozen
class Model:
    weights: Any
    name: str = ""

    @property
    def size(self) -> int:
        return int(np.size(self.weights))


def test_fields_and_properties_of_objects_of_users():
    model = same(Model(np.arange(50_000), "m"))
    assert value_of(model.field("name")) == "m"
    assert value_of(model.field("weights"))[-1] == 49_999
    assert value_of(model.field("size")) == 50_000
    assert value_of(same(3 + 4j).field("imag")) == 4.0


def test_attempt_gives_outcomes_as_values():
    assert value_of(attempt(same(3))).value == 3
    assert value_of(attempt(fail("no"))) == Failed("raised", "ValueError", "no")
    skipped = value_of(attempt(same(fail("no"))))
    assert isinstance(skipped, Skipped)
    assert [(cause.operator, cause.message) for cause in skipped.because] == [("fail(message='no')", "no")]
    twice = value_of(attempt(attempt(fail("no"))))
    assert isinstance(twice, Ok)
    assert twice.value == Failed("raised", "ValueError", "no")
    assert value_of(attempt(same(3)).field("value")) == 3
    assert value_of(attempt(fail("no")).field("message")) == "no"
    assert value_of(attempt(same({"a": np.arange(60_000)})).field("value")["a"][7]) == 7
    with pytest.raises(TypeError, match=r"attempt\(...\) takes an expression, and got 3, which cannot fail"):
        attempt(3)


def test_a_failing_node_used_twice_is_named_once():
    broken = fail("no")
    outcome = evaluate(same([broken, broken, [broken]]), store="memory://inline-tests", debug=True)
    assert len(outcome.because) == 1
    both = evaluate(same([broken, fail("neither")]), store="memory://inline-tests", debug=True)
    assert both.summary == (
        "fail(message='no') failed (ValueError: no); fail(message='neither') failed (ValueError: neither)"
    )


def test_parts_are_taken_from_plain_containers_and_declared_fields_only():
    lazy = LazyArray("<f8", [3], Leaf(b"\0" * 32, 24, None))
    item, field = INLINE["getitem"].part, INLINE["field"].part
    assert item(value={"a": lazy}, key="a") is lazy
    assert field(value=Model(lazy), name="weights") is lazy
    for take, arguments in (
        (item, {"value": lazy, "key": 0}),
        (item, {"value": "text", "key": 0}),
        (field, {"value": lazy, "name": "shape"}),
        (field, {"value": Model(lazy), "name": "size"}),
        (field, {"value": {}, "name": "keys"}),
    ):
        with pytest.raises(NotAPart):
            take(**arguments)


def test_inline_operators_are_named_and_travel_by_name():
    assert len({found.identity for found in INLINE.values()}) == len(INLINE)
    for found in INLINE.values():
        assert pickle.loads(pickle.dumps(found)) is found
