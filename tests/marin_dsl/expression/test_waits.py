"""Order without data: `after`."""

from __future__ import annotations

import copy
import pickle

import pytest

from marin_dsl import Skipped, after, op, plan
from marin_dsl.expression.waits import WaitsForItself
from tests.marin_dsl.runs import Ran, run


@op(version="1")
def step(name: str, of=None) -> str:
    return name


@op(version="1")
def pair(a, b) -> list:
    return [a, b]


@op(version="1")
def boom() -> int:
    raise ValueError("boom")


@op(version="1")
def returning(name: str):
    return after(step(name), step("before"))


def test_what_is_waited_for_runs_first_and_changes_no_key(tmp_path):
    ran = Ran()
    wanted = after(step("second"), step("first"))
    assert wanted == step("second")
    assert run(wanted, tmp_path, watch=ran).value == "second"
    assert ran == ["step(name='first')", "step(name='second')"]


def test_what_has_its_value_waits_for_nothing(tmp_path):
    run(step("second"), tmp_path)
    ran = Ran()
    assert run(after(step("second"), step("first")), tmp_path, watch=ran).value == "second"
    assert ran == []


def test_what_waits_for_a_failure_is_skipped_and_says_so(tmp_path):
    outcome = run(after(step("second"), boom()), tmp_path)
    assert isinstance(outcome, Skipped)
    assert [cause.message for cause in outcome.because] == ["boom"]


@pytest.mark.parametrize("travel", [lambda e: e, lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy])
def test_every_mention_of_an_expression_counts(tmp_path, travel):
    """The first mention waits for nothing, one below an equal expression does."""
    wanted = travel(pair(pair(step("last"), 1), pair(pair(after(step("last"), step("first")), 1), 2)))
    ran = Ran()
    run(wanted, tmp_path, watch=ran)
    assert ran[:2] == ["step(name='first')", "step(name='last')"]


def test_what_is_returned_waits_too(tmp_path):
    ran = Ran()
    assert run(returning("second"), tmp_path, watch=ran).value == "second"
    assert ran == ["returning(name='second')", "step(name='before')", "step(name='second')"]


def test_waiting_for_nothing_is_the_expression_itself():
    made = step("a")
    assert after(made) is made


def test_expressions_that_wait_for_each_other_are_refused(tmp_path):
    a, b = step("a"), step("b")
    for wanted in (pair(after(a, b), after(b, a)), after(a, pair(a, 1))):
        for use in (lambda found: run(found, tmp_path), lambda found: plan(found, store=tmp_path)):
            with pytest.raises(WaitsForItself, match=r"expressions wait for each other: .*step\(name='a'\) needs"):
                use(wanted)


def test_only_expressions_can_be_waited_for():
    with pytest.raises(TypeError, match=r"after\(expression, \*others\) takes expressions, and got 3"):
        after(step("a"), 3)


def test_a_chain_of_waits_is_planned_at_any_depth(tmp_path):
    found = step("0")
    for number in range(1, 3000):
        found = after(step(str(number)), found)
    assert len(plan(found, store=tmp_path).runs) == 3000
