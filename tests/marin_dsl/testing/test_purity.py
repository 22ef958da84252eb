"""`assert_pure` finds what is impure, says where, and how to mend it."""

from __future__ import annotations

import os
import random
import re
import time

import attrs
import numpy as np
import pytest
from hypothesis import given

from marin_dsl import context, encodable, op, secret
from marin_dsl.operator.signature import WrongCall
from marin_dsl.testing import Impure, assert_pure, values


@encodable
@attrs.frozen
class Score:
    points: float


@op(version="1")
def scored(values: list[float], *, offset: float = 0.0) -> list[Score]:
    return [Score(value + offset) for value in values]


@op(version="1")
def drawn(count: int) -> np.ndarray:
    return context().rng().random(count)


@op(version="1")
def sorted_words(text: str) -> list:
    return sorted(set(text.split()))


@op(version="1")
def kept_in_scratch(text: str) -> str:
    (context().scratch / "text").write_text(text)
    return (context().scratch / "text").read_text()


@op(version="1")
def given_back(value) -> list:
    return [value, value]


@op(version="1")
def followed(count: int):
    return scored([0.5] * count)


@pytest.mark.parametrize(
    "call",
    [
        lambda: assert_pure(scored, [1.0, 2.0], offset=0.5),
        lambda: assert_pure(scored.function, [1.0, 2.0]),
        lambda: assert_pure(drawn, 3),
        lambda: assert_pure(kept_in_scratch, "a"),
        lambda: assert_pure(given_back, {"a": np.arange(100_000)}),
        lambda: assert_pure(followed, 2),
        lambda: assert_pure(sorted_words, "to be or not to be", fresh_process=True),
    ],
)
def test_what_is_pure_passes(call):
    before = random.getstate()
    call()
    assert random.getstate() == before


@given(values(max_leaves=4))
def test_it_goes_together_with_strategies(value):
    assert_pure(given_back, value)


def test_a_secret_is_not_looked_up():
    @op(version="1")
    def length(token: str, others: list[str]) -> int:
        return len(token + others[0])

    assert_pure(length, secret("env://NOT_SET_ANYWHERE"), [secret("env://NOR_THIS")])


def impure(*args, **settings):
    """An operator of a function, and what is said about it."""

    def look(function):
        with pytest.raises(Impure) as caught:
            assert_pure(op(version="1")(function), *args, **settings)
        return str(caught.value)

    return look


def test_an_argument_that_is_changed_is_named_with_its_place():
    @impure({"a": [1, 2]})
    def said(table: dict) -> int:
        table["a"].append(3)
        return 1

    assert re.match(re.escape(__file__) + r":\d+: said is not pure: it changes its argument `table`: ", said)
    assert "`table['a']` was [1, 2] and is [1, 2, 3]; work on a copy, table = copy.deepcopy(table)" in said


def test_a_mutable_default_is_an_argument():
    @impure(1)
    def said(value: int, found: list = []) -> list:  # noqa: B006
        found.append(value)
        return list(found)

    assert "it changes its argument `found`: `found` was [] and is [1]" in said


def test_writing_into_an_array_that_was_given_is_explained():
    @impure(np.arange(3))
    def said(array) -> int:
        array[0] = 7
        return 1

    assert "it writes into an array that it was given" in said
    assert "begin with a copy: np.array(...)" in said


@pytest.mark.parametrize(
    ("draw", "name"),
    [(random.random, "`random`"), (lambda: random.seed(0), "`random`"), (np.random.rand, "`np.random`")],
)
def test_global_random_numbers_are_noticed_and_put_back(draw, name):
    before = random.getstate(), np.random.get_state()[1].tobytes()

    @impure(1)
    def said(value) -> int:
        draw()
        return value

    assert f"it draws from the global random numbers of {name}, or seeds them; draw from context().rng()" in said
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == before


def test_a_changed_working_directory_is_noticed_and_put_back(tmp_path):
    before = os.getcwd()

    @impure(str(tmp_path))
    def said(folder: str) -> int:
        os.chdir(folder)
        return 1

    assert f"it changes the working directory (to {tmp_path}); use whole paths, below context().scratch" in said
    assert os.getcwd() == before


def test_changed_environment_variables_are_named_and_put_back(monkeypatch):
    monkeypatch.setenv("FIRST", "1")
    monkeypatch.delenv("SECOND", raising=False)

    @impure(1)
    def said(value: int) -> int:
        del os.environ["FIRST"]
        os.environ["SECOND"] = "2"
        return value

    assert "it changes the environment variables FIRST, SECOND; hand them to the program that needs them" in said
    assert (os.environ["FIRST"], os.environ.get("SECOND")) == ("1", None)


def test_surroundings_are_put_back_when_the_function_raises(tmp_path):
    @op(version="1")
    def raising(folder: str) -> int:
        os.chdir(folder)
        raise RuntimeError("broken")

    before = os.getcwd()
    with pytest.raises(RuntimeError, match="broken"):
        assert_pure(raising, str(tmp_path))
    assert os.getcwd() == before


def test_two_different_results_are_shown_where_they_differ():
    counted = iter(range(9))

    @impure(1)
    def said(value: int) -> dict:
        return {"loss": [Score(0.5), Score(float(next(counted)))], "at": value}

    assert "two different values for equal arguments: `result['loss'][1].points` is 0.0 and then 1.0" in said
    assert "draw random numbers from context().rng()" in said


def test_the_clock_is_noticed():
    @impure(1)
    def said(value: int) -> int:
        return time.perf_counter_ns()

    assert "let the clock, files and whatever else counts be arguments" in said


def test_a_result_without_an_encoding_is_refused():
    @impure(1)
    def said(value: int) -> list:
        return [value, lambda: 1]

    assert "what it returns cannot be stored: at `result[1]`: the function `" in said
    assert "cannot be imported" in said


def test_a_result_that_the_operator_keeps_and_changes_is_noticed():
    found: list = []

    @impure(1)
    def said(value: int) -> list:
        found[:] = [len(found)]
        return found

    assert "another call of it changes what it has returned before: it keeps the object" in said
    assert "return a copy" in said


def test_an_argument_that_the_operator_keeps_and_changes_is_noticed():
    seen: list = []

    @impure([1])
    def said(given: list) -> int:
        for earlier in seen:
            earlier.append("late")
        seen.append(given)
        return 1

    assert "another call of it changes what it was given before as its argument `given`" in said


def test_another_hash_seed_is_tried_in_a_fresh_process():
    @impure("to be or not to be that is the question", fresh_process=True)
    def said(text: str) -> list:
        return list(set(text.split()))

    assert "in a fresh process with another hash seed it returns another value; sort what comes out of sets" in said


@pytest.mark.long
def test_what_fails_only_in_a_fresh_process_is_shown_with_its_traceback(monkeypatch):
    import sys

    monkeypatch.setattr(sys, "set_up_here", True, raising=False)

    @impure(1, fresh_process=True)
    def said(value: int) -> bool:
        return sys.set_up_here

    assert "in a fresh process it does not come to a value:" in said
    assert "AttributeError" in said


def test_expressions_have_no_value_to_call_a_function_with():
    with pytest.raises(TypeError, match=r"assert_pure\(given_back, \.\.\.\) calls the function, and .* no value yet"):
        assert_pure(given_back, [drawn(1)])


def test_a_wrong_call_is_one_at_the_line_of_the_test():
    with pytest.raises(WrongCall, match=re.escape(__file__) + r":\d+: scored\(\.\.\.\): missing a required argument"):
        assert_pure(scored)
