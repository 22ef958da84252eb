"""What an expression is, what it refuses, and what it says then."""

from __future__ import annotations

import pickle
import re

import attrs
import cloudpickle
import numpy as np
import pytest

from marin_dsl import Expression, attempt, digest, encodable, evaluate, op
from marin_dsl.expression import encode_arguments, walk
from marin_dsl.expression.annotations import Annotations, Label
from marin_dsl.expression.keys import splice
from marin_dsl.operator.signature import WrongCall


@op(version="1")
def f(*parts, **named):
    return parts


@op(version="1")
def add_up(values: list) -> float:
    return float(sum(np.sum(value) for value in values))


def test_calling_an_operator_runs_nothing():
    @op(version="1")
    def explode():
        raise AssertionError("ran")

    assert isinstance(explode(), Expression)
    with pytest.raises(AssertionError, match="ran"):
        explode.function()


def test_expressions_are_equal_when_they_describe_the_same_value():
    assert f(1) == f(1)
    assert f(1) != f(2)
    assert f(1) != 1
    assert {f(1), f(1), f(2)} == {f(2), f(1)}
    assert repr(f(1)).startswith("<Expression ")


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda e: bool(e), "has no truth value before it is evaluated; evaluate it, or decide inside an operator"),
        (lambda e: list(e), "cannot be iterated before it is evaluated; take parts with expr[0], expr['name']"),
        (lambda e: len(e), "has no length before it is evaluated; compute it inside an operator"),
        (lambda e: 1 in e, "has no members before it is evaluated; ask inside an operator"),
        (lambda e: e + object(), "add of an expression: at `right`: a object has no encoding"),
        (lambda e: e[object()], "getitem of an expression: at `key`: a object has no encoding"),
        (lambda e: Expression(), "an expression is made by calling an operator (@op), not by calling Expression"),
    ],
)
def test_what_needs_a_value_says_that_there_is_none_yet(use, text):
    with pytest.raises(TypeError, match=re.escape(text)):
        use(f(1))


def test_an_inline_node_that_cannot_be_built_names_its_line():
    with pytest.raises(WrongCall, match=re.escape(__file__) + r":\d+: mul of an expression"):
        2 * f(1) * object()


def test_a_misspelt_attribute_is_an_error_and_no_node():
    with pytest.raises(AttributeError, match=re.escape("for that field of its value write .field('loss')")):
        _ = f(1).loss
    with pytest.raises(AttributeError, match="is immutable; build another expression instead of setting `key`"):
        f(1).key = b""
    with pytest.raises(AttributeError, match="is immutable"):
        del f(1).key
    assert not hasattr(f(1), "__array__")


def test_arithmetic_with_arrays_is_one_expression_on_either_side():
    array = np.ones(3)
    for made in (array + f(1), f(1) + array, np.float64(2) * f(1), array @ f(1), array < f(1)):
        assert isinstance(made, Expression)
    assert f(1) - 2 != 2 - f(1)
    assert (array == f(1)) is False


def test_labels_and_annotations_are_kept_beside_the_key():
    made = f(1).named("first/model", "1.0").with_(priority=3).with_(resources={"GPU": 1})
    assert made.label == Label("first/model", "1.0")
    assert str(made.label) == "first/model@1.0"
    assert made.annotations == Annotations({"GPU": 1}, 3)
    assert made == f(1)
    assert f(1).label is None, "the first one is unchanged"
    assert Label("a", "1.0dev").moves
    assert not Label("a", "1.0").moves


def test_the_place_where_it_was_built_is_kept():
    made = f(1)
    assert made.origin is not None
    assert made.origin[0] == __file__
    assert (made + 1).origin[1] == made.origin[1] + 3
    assert attempt(made).origin[0] == __file__


def test_a_pickle_carries_literals_of_any_size():
    big = np.arange(50_000.0)
    again = pickle.loads(pickle.dumps(f(big, f(big), "x" * 100_000)))
    assert again == f(big, f(big), "x" * 100_000)
    assert again.leaves.keys() == f(big, f(big), "x" * 100_000).leaves.keys()
    assert evaluate(pickle.loads(pickle.dumps(add_up([big]))), store="memory://pickled", debug=True).value == big.sum()


def test_cloudpickle_carries_operators_that_no_module_has():
    @op(version="1", name="local.thing")
    def local(x):
        return x + 1

    again = cloudpickle.loads(cloudpickle.dumps(local(1)))
    assert again == local(1)
    assert evaluate(again, store="memory://local", debug=True).value == 2


def test_arguments_are_cut_at_each_expression():
    payload, references, leaves, _ = encode_arguments({"a": [f(1), f(1)], "b": f(2)})
    assert len(payload) == 4
    assert list(references) == [f(1), f(1), f(2)]
    assert leaves == {}
    assert splice(payload, [b"\1" * 32] * 3) != splice(payload, [b"\2" * 32] * 3)


def test_a_walk_meets_inputs_first_and_each_once():
    a = f(1)
    b, c = f(a, a), f(a)
    assert list(walk(f(b, c), b)) == [a, b, c, f(b, c)]


@encodable
@attrs.frozen
class Settings:
    rate: float
    source: object = None


def test_expressions_may_stand_inside_objects_of_users():
    assert digest(f(Settings(0.1, f(1)))) != digest(f(Settings(0.1, f(2))))
    outcome = evaluate(f(Settings(0.1, f(1))), store="memory://nested", debug=True)
    assert outcome.value == (Settings(0.1, (1,)),)


def test_the_digest_of_an_expression_alone_is_refused_as_a_value():
    with pytest.raises(TypeError, match="has no value yet; evaluate it, or pass it as an argument of an operator"):
        digest([f(1)])
    assert digest(f(1)).startswith("sha256:")
