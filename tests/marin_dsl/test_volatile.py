"""What is asked for anew in each run: impure operators, and labels by `recall`."""

from __future__ import annotations

import itertools

import pytest

from marin_dsl import Failed, Store, evaluate, op, plan, recall
from tests.marin_dsl.runs import Ran, run

_values = itertools.count()


@op(version="1", impure=True)
def reading(place: str = "a") -> int:
    return next(_values)


@op(version="1", impure=True)
def steady() -> int:
    return 7


@op(version="1")
def same(value):
    return value


@op(version="1")
def listed(value) -> list:
    return [value]


@op(version="1")
def twice(n: int) -> int:
    return 2 * n


@op(version="1")
def returning():
    return same(reading("inside"))


# ---- impure


def test_an_impure_call_is_made_once_in_each_run(tmp_path):
    first = run(same([reading(), reading()]), tmp_path).value
    assert first[0] == first[1]
    second = run(same([reading(), reading()]), tmp_path).value
    assert second[0] == second[1] != first[0]


def test_what_is_made_of_it_runs_only_when_its_value_is_another_one(tmp_path):
    ran = Ran()
    for _ in range(2):
        assert run(twice(same(steady())), tmp_path, watch=ran).value == 14
    assert ran == ["steady", "same(steady)", "twice(same)", "steady"]
    ran.clear()
    for _ in range(2):
        run(same(reading()), tmp_path, watch=ran)
    assert ran == ["reading(place='a')", "same(reading)"] * 2


def test_an_impure_call_in_what_an_operator_returned_is_made_anew_too(tmp_path):
    assert run(same(returning()), tmp_path).value != run(same(returning()), tmp_path).value


def test_a_result_that_a_pure_recipe_led_to_first_does_not_spare_the_impure_call(tmp_path):
    assert run(twice(same(7)), tmp_path).value == 14
    ran = Ran()
    for _ in range(2):
        assert run(twice(steady()), tmp_path, watch=ran).value == 14
    assert ran == ["steady", "steady"]


def test_a_plan_says_why_it_runs(tmp_path):
    run(same(reading()), tmp_path)
    lines = str(plan(same(reading()), store=tmp_path)).splitlines()
    reason = "it, or what it is made from, is asked for anew in each run"
    assert lines[1:] == [
        f"  run reading(place='a')  ({reason})",
        f"  run same(reading)  ({reason}; spared if its inputs come out equal)",
    ]


def test_being_impure_is_no_part_of_identity_and_travels(tmp_path):
    assert evaluate(reading("process"), store=tmp_path, workers=1).ok
    assert evaluate(reading("process"), store=tmp_path, workers=1).ok
    assert len(list((tmp_path / "results").rglob("*.json"))) == 2


# ---- recall


def test_a_label_is_recalled_without_its_recipe(tmp_path):
    run(same([1, 2]).named("numbers", "1.0"), tmp_path)
    run((same(3) + 4).named("sum", "1.0"), tmp_path)
    assert run(same(recall("numbers@1.0")), tmp_path).value == [1, 2]
    assert run(recall("numbers@1.0")[1] + recall("sum@1.0"), tmp_path).value == 9


def test_what_is_made_of_a_label_runs_again_when_the_label_moved(tmp_path):
    wanted = listed(recall("numbers@dev"))
    ran = Ran()
    for value in (1, 1, 2):
        run(same(value).named("numbers", "dev"), tmp_path)
        assert run(wanted, tmp_path, watch=ran).value == [value]
    assert ran == ["listed(recall)", "listed(recall)"]


def test_a_moving_label_of_an_impure_call_stands_for_its_last_value(tmp_path):
    for _ in range(2):
        last = run(reading("labelled").named("reading", "dev"), tmp_path).value
    assert run(recall("reading@dev"), tmp_path).value == last


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("numbers@2.0", "has no label numbers@2.0; of numbers it has the versions 1.0"),
        ("letters@1.0", "has no label letters@1.0; it has no label of the name letters"),
    ],
)
def test_a_label_that_is_not_there_is_a_failure_that_says_what_is(tmp_path, label, text):
    run(same(1).named("numbers", "1.0"), tmp_path)
    outcome = run(same(recall(label)).recover(attempted := recall(label)), tmp_path)
    assert text in outcome.because[0].message
    outcome = run(attempted, tmp_path)
    assert isinstance(outcome, Failed)
    assert text in outcome.message


def test_a_label_whose_value_is_lost_is_a_failure(tmp_path):
    store = Store(tmp_path)
    run(same("x" * 100_000).named("text", "1.0"), store)
    for blob in (tmp_path / "blobs").rglob("*"):
        if blob.is_file():
            blob.unlink()
    outcome = run(recall("text@1.0"), store)
    assert isinstance(outcome, Failed)
    assert "has lost the value of text@1.0; evaluate what it was made from again" in outcome.message


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("numbers", r"a label is written name@version, such as recall\('first-model@1.0'\)"),
        (3, "a label is written"),
        ("../x@1", "cannot be the name of a label"),
    ],
)
def test_what_is_no_label_is_refused(label, text):
    with pytest.raises(ValueError, match=text):
        recall(label)
