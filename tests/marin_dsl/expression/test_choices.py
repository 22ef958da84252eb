"""`when`, `recover`, `op.map`, `at_least`, and operators that return expressions."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import attrs
import numpy as np
import pytest

from marin_dsl import (
    Failed,
    Ok,
    Skipped,
    Store,
    at_least,
    attempt,
    encodable,
    evaluate,
    grid,
    op,
    plan,
    replicate,
    when,
)
from marin_dsl.operator.signature import WrongCall
from tests.marin_dsl.runs import Ran, run


@op(version="1")
def same(value):
    return value


@op(version="1")
def square(n: int, plus: int = 0) -> int:
    return n * n + plus


@op(version="1")
def add(a: int, b: int) -> int:
    return a + b


@op(version="1")
def boom(message: str = "boom") -> int:
    raise ValueError(message)


@op(version="1")
def numbers(n: int) -> list[int]:
    return list(range(n))


@op(version="1")
def down(n: int):
    return n if n == 0 else down(n - 1)


@op(version="1")
def count(n: int):
    return n if n == 0 else add(count(n - 1), 1)


@op(version="1")
def fibonacci(n: int):
    return n if n < 2 else add(fibonacci(n - 1), fibonacci(n - 2))


# ---- when


def test_what_makes_a_choice_remembers_the_line_that_it_was_written_in():
    one = at_least(1, [same(1)])
    assert one.origin[0] == __file__
    assert when(same(1), 2, 3).origin == (__file__, one.origin[1] + 2)
    assert same(1).recover(2).origin == (__file__, one.origin[1] + 3)
    assert same.map(same([1])).origin == (__file__, one.origin[1] + 4)


def test_only_the_branch_that_is_taken_runs(tmp_path):
    ran = Ran()
    assert run(when(same(1) > 0, square(3), boom()), tmp_path, watch=ran).value == 9
    assert run(when(same(1) > 1, boom(), square(4)), tmp_path, watch=ran).value == 16
    assert ran == ["same(value=1)", "square(n=3, plus=0)", "square(n=4, plus=0)"]


def test_a_branch_can_be_a_value_or_a_nest(tmp_path):
    assert run(when(same(0), 1, {"squares": [square(2), 5]}), tmp_path).value == {"squares": [4, 5]}
    assert run(when(True, "yes", boom()), tmp_path).value == "yes"


def test_a_choice_is_skipped_with_its_condition_or_its_branch(tmp_path):
    for wanted in (when(boom(), 1, 2), when(same(1), boom(), 2)):
        outcome = run(wanted, tmp_path)
        assert isinstance(outcome, Skipped)
        assert [cause.message for cause in outcome.because] == ["boom"]


def test_a_condition_without_a_truth_is_a_failure(tmp_path):
    outcome = run(when(same(np.zeros(2)), 1, 2), tmp_path)
    assert isinstance(outcome, Failed)
    assert "truth value of an array" in outcome.message


def test_a_condition_that_is_a_value_is_refused():
    with pytest.raises(TypeError, match=r"write `then if condition else otherwise`"):
        when(1, 2, 3)


def test_a_branch_that_is_no_value_is_refused_where_it_is_written():
    with pytest.raises(WrongCall, match=r"test_choices.py:\d+: when\(...\): `then` is no value: at `value\[0\]`"):
        when(same(1), [object()], 2)


def test_equal_choices_are_one_expression_and_the_branches_count():
    made = when(same(1), square(1), square(2))
    assert made == when(same(1), square(1), square(2))
    assert made != when(same(1), square(2), square(1))
    assert made != when(same(1), square(1), square(3))


def test_choices_nest_to_any_depth(tmp_path):
    found = same(0)
    for _ in range(2000):
        found = when(same(True), found, boom())
    assert run(found, tmp_path).value == 0


def test_a_plan_names_what_is_still_to_be_decided(tmp_path):
    wanted = when(same(1), square(3), square(4))
    before = plan(wanted, store=tmp_path)
    assert str(before).splitlines() == [
        "1 to run, 0 served; more may follow",
        "  run same(value=1)  (not evaluated before)",
        "  then what when(same, square, square) goes on with",
    ]
    run(same(1), tmp_path)
    assert str(plan(wanted, store=tmp_path)).splitlines() == [
        "1 to run, 1 served",
        "  run square(n=3, plus=0)  (not evaluated before)",
    ]


# ---- recover


def test_what_recovers_is_demanded_only_after_a_failure(tmp_path):
    ran = Ran()
    assert run(square(2).recover(square(7)), tmp_path, watch=ran).value == 4
    assert ran == ["square(n=2, plus=0)"]
    assert run(add(boom(), 1).recover(square(7)), tmp_path).value == 49
    assert run(boom().recover([1, square(1)]), tmp_path).value == [1, 1]


def test_a_failure_of_what_recovers_is_what_is_named(tmp_path):
    outcome = run(boom("first").recover(boom("second")), tmp_path)
    assert isinstance(outcome, Skipped)
    assert [cause.message for cause in outcome.because] == ["second"]


def test_what_was_recovered_is_tried_again_by_the_next_run_and_heals(tmp_path):
    switch = tmp_path / "mended"

    @op(version="1", name="tests.fragile")
    def fragile(path: str) -> str:
        if not switch.exists():
            raise OSError("not yet")
        return "whole"

    wanted = same(fragile("x").recover("broken"))
    assert run(wanted, tmp_path / "store").value == "broken"
    switch.touch()
    assert run(wanted, tmp_path / "store").value == "whole"


# ---- at_least


def test_those_that_succeeded_are_the_value_in_their_order(tmp_path):
    members = [square(1), boom(), square(3)]
    assert run(at_least(2, members), tmp_path).value == [1, 9]
    assert run(same(at_least(0, [boom()])), tmp_path).value == []
    assert run(at_least(1, grid(n=[1, 2])(square)), tmp_path).value == [1, 4]


def test_too_few_say_how_many_there_are_and_what_befell_another(tmp_path):
    outcome = run(at_least(2, [square(1), add(boom(), 1), boom("other")]), tmp_path)
    assert isinstance(outcome, Failed)
    assert outcome.message == (
        "1 of 3 expressions have a value, and at_least asks for 2; without one: boom(message='boom') failed "
        "(ValueError: boom)"
    )


@pytest.mark.parametrize(
    ("n", "members", "text"),
    [
        (1, [3], r"takes expressions, and got 3, which cannot fail"),
        (2, [square(1)], r"at_least\(2, ...\): there are 1 expressions, so n is from 0 to 1"),
        (-1, [square(1)], r"so n is from 0 to 1"),
        (True, [square(1)], r"a whole number, and not True"),
    ],
)
def test_wrong_uses_of_at_least_are_refused(n, members, text):
    with pytest.raises((TypeError, ValueError), match=text):
        at_least(n, members)


def test_large_values_pass_through_unread(tmp_path):
    store = Store(tmp_path)
    large = same(np.arange(100_000))
    found = run(at_least(1, [large, boom()]), store)
    assert (found.value[0] == np.arange(100_000)).all()
    chosen = run(when(same(1), {"large": large}, 0), store)
    assert (chosen.value["large"] == np.arange(100_000)).all()


# ---- map


def test_each_element_is_one_node(tmp_path):
    ran = Ran()
    assert run(square.map(numbers(3), plus=1), tmp_path, watch=ran).value == [1, 2, 5]
    assert ran == ["numbers(n=3)", "square(n=0, plus=1)", "square(n=1, plus=1)", "square(n=2, plus=1)"]


def test_an_element_more_is_one_node_more_wherever_it_is_inserted(tmp_path):
    ran = Ran()
    assert run(square.map(same([5, 7])), tmp_path, watch=ran).value == [25, 49]
    ran.clear()
    assert run(square.map(same([7, 6, 5, 5])), tmp_path, watch=ran).value == [49, 36, 25, 25]
    assert ran == ["same", "square(n=6, plus=0)"]


def test_the_call_of_an_element_is_the_call_with_that_literal(tmp_path):
    ran = Ran()
    run(square(5, plus=2), tmp_path)
    assert run(square.map(same([5]), plus=2), tmp_path, watch=ran).value == [27]
    assert ran == ["same"]


def test_other_arguments_can_be_expressions_and_are_demanded_for_elements_only(tmp_path):
    assert run(square.map(numbers(2), plus=square(3)), tmp_path).value == [9, 10]
    assert run(square.map(numbers(0), plus=boom()), tmp_path).value == []


def test_the_result_of_a_map_is_a_list_for_whoever_takes_it(tmp_path):
    assert run(same(square.map(square.map(numbers(3))))[2], tmp_path).value == 16


def test_a_literal_list_is_mapped_at_once_and_may_hold_expressions(tmp_path):
    assert run(square.map([2, square(2), 3]), tmp_path).value == [4, 16, 9]
    assert run(square.map(grid(n=[1, 2])(square)), tmp_path).value == [1, 1 * 16]
    assert run(square.map(range(3)), tmp_path).value == [0, 1, 4]


def test_a_failing_element_is_named_and_its_siblings_run(tmp_path):
    @op(version="1", name="tests.picky")
    def picky(n: int) -> int:
        if n == 1:
            raise ValueError("not one")
        return n

    outcome = run(picky.map(numbers(3)), tmp_path)
    assert isinstance(outcome, Skipped)
    assert outcome.summary == "tests.picky(n=1) failed (ValueError: not one)".replace("tests.", "")
    assert run(attempt(picky.map(numbers(2))), tmp_path).value.because[0].message == "not one"
    assert run(picky(2), tmp_path).value == 2


def test_large_elements_pass_by_digest(tmp_path):
    @op(version="1", name="tests.total")
    def total(values: np.ndarray) -> float:
        return float(values.sum())

    @op(version="1", name="tests.parts")
    def parts() -> list:
        return [np.ones(50_000), np.zeros(50_000)]

    assert run(total.map(parts()), tmp_path).value == [50_000.0, 0.0]


@pytest.mark.parametrize(
    ("items", "text"),
    [
        (same({"a": 1}), "square.map(items) takes a list, and the value of items is a dict; make a list of it"),
        (same(["a"]), "argument `n` is 'a' (a str); expected int"),
    ],
)
def test_items_that_do_not_fit_are_a_failure_that_says_so(tmp_path, items, text):
    outcome = run(square.map(items), tmp_path)
    assert isinstance(outcome, Failed)
    assert text in outcome.message


def test_wrong_uses_of_map_are_refused_where_they_are_written():
    with pytest.raises(WrongCall, match=r"test_choices.py:\d+: square\(...\): unexpected argument `add`"):
        square.map(numbers(3), add=1)
    with pytest.raises(WrongCall, match=r"argument `n` is 'a'"):
        square.map(["a"])
    with pytest.raises(
        TypeError, match=r"square.map\(items, ...\) takes a list or an expression of one, and got 'abc'"
    ):
        square.map("abc")


# ---- operators that return expressions


@op(version="1")
def nested(n: int):
    return {"sum": [add(n, 1), n], "again": replicate(square(n), 2)}


def test_evaluation_goes_on_with_what_an_operator_returns(tmp_path):
    assert run(nested(3), tmp_path).value == {"sum": [4, 3], "again": [9, 9]}
    assert run(add(nested(3)["sum"][0], 1), tmp_path).value == 5
    assert run(count(30), tmp_path).value == 30


def test_a_second_run_serves_the_value_without_calling_anything(tmp_path):
    run(count(5), tmp_path)
    ran = Ran()
    assert run(count(5), tmp_path, watch=ran).value == 5
    assert run(count(6), tmp_path, watch=ran).value == 6
    assert ran == ["count(n=6)", "add(b=1)"]


def test_equal_calls_inside_run_once(tmp_path):
    ran = Ran()
    assert run(fibonacci(12), tmp_path, watch=ran).value == 144
    assert len([title for title in ran if title.startswith("fibonacci")]) == 13


def test_a_recursion_of_any_depth_is_evaluated(tmp_path):
    assert run(count(1200), tmp_path).value == 1200


@pytest.mark.long
def test_a_recursion_10000_deep_is_evaluated(tmp_path):
    assert run(count(10_000), tmp_path).value == 10_000


@op(version="1")
def endless(n: int):
    return add(endless(n), 1)


def test_what_refers_to_itself_is_a_failure_that_shows_the_circle(tmp_path):
    outcome = run(endless(1), tmp_path)
    assert isinstance(outcome, Failed)
    assert outcome.message == "its value depends on itself: endless(n=1) needs add(b=1) needs endless(n=1)"
    assert run(same(endless(1)).recover("mended"), tmp_path).value == "mended"


@op(version="1")
def fails_inside(n: int):
    return [add(n, 1), boom(f"inside {n}")]


def test_what_failed_in_a_returned_expression_is_named(tmp_path):
    outcome = run(same(fails_inside(1)), tmp_path)
    assert isinstance(outcome, Skipped)
    assert [cause.message for cause in outcome.because] == ["inside 1"]
    ran = Ran()
    assert run(fails_inside(1), tmp_path, keep_failures=True, watch=ran).because == outcome.because
    assert ran == []
    assert "went on with what failed with ValueError" in str(plan(fails_inside(1), store=tmp_path))


@op(version="1")
def grown(n: int):
    return same(np.full(100_000, n))


def test_large_literals_of_a_returned_expression_travel_through_the_store(tmp_path):
    assert evaluate(grown(3), store=tmp_path, workers=1).value.sum() == 300_000


def test_a_script_that_recurses_runs_in_processes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            from marin_dsl import evaluate, op

            @op
            def add(a: int, b: int) -> int:
                return a + b

            @op
            def count(n: int):
                return n if n == 0 else add(count(n - 1), 1)

            if __name__ == "__main__":
                print(evaluate(count(4), store="store", workers=1).value)
                print(evaluate(count(5), store="store").value)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["4", "5"], done.stderr


def test_the_outcome_of_every_root_is_there_whatever_is_found_on_the_way(tmp_path):
    outcomes = evaluate(count(2), fails_inside(1), when(count(1), nested(1)["sum"], 0), store=tmp_path, debug=True)
    assert [type(outcome) for outcome in outcomes] == [Ok, Skipped, Ok]


@encodable(name="choices:Touchy")
@attrs.frozen
class Touchy:
    """Cannot be added to anything."""

    def __radd__(self, other):
        error = ValueError("no")
        error.add_note("ask for less")
        raise error


def test_notes_on_an_exception_stay_with_the_failure_of_an_inline_node(tmp_path):
    assert run(same(1) + Touchy(), tmp_path).notes == ("ask for less",)
