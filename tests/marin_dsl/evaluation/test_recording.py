"""When expressions are recorded: with their results, or as soon as those may be long in coming."""

import os
import time

import pytest

from marin_dsl import Failed, Store, evaluate, op
from marin_dsl.evaluation.evaluation import Interrupted
from marin_dsl.store.files import place
from marin_dsl.store.heartbeat import SHORT

LATELY = {}
"""What operators saw of the store while they ran."""


@pytest.fixture
def store(tmp_path) -> Store:
    LATELY.clear()
    LATELY["store"] = Store(tmp_path / "store")
    return LATELY["store"]


def names(store: Store, key: bytes) -> int:
    """Under how many names the record of an expression is on the disk; 0 when there is none."""
    path = store.files.local(place("recipes", key, ".json"))
    return path.stat().st_nlink if path.exists() else 0


def look(kind: str, number: int) -> None:
    LATELY[kind, number] = os.listdir(LATELY["store"].files.local("recipes"))


@op(version="1")
def short(number: int) -> int:
    look("short", number)
    return number


@op(version="1")
def long(number: int) -> int:
    look("long", number)
    time.sleep(SHORT + 0.01)
    return number


@op(version="1")
def failing(number: int) -> int:
    if number > 1:
        raise ValueError("no")
    return number


@op(version="1")
def interrupted(number: int) -> int:
    if number > 1:
        raise KeyboardInterrupt
    return number


@op(version="1")
def more(number: int) -> int:
    return number + 1


def test_short_calls_without_inputs_are_one_file_with_what_came_of_them(store):
    calls = [short(number) for number in range(4)]
    assert [outcome.value for outcome in evaluate(*calls, store=store, debug=True)] == [0, 1, 2, 3]
    # Of the first nobody knew that it would be short.
    assert [names(store, call.key) for call in calls] == [1, 2, 2, 2]
    assert LATELY["short", 1] == LATELY["short", 0] != []
    for call in calls:
        assert store.recipe(call.key)["title"] == store.result(call.key)["title"]
        assert store.call_of(call.key) == call.key


def test_the_expression_of_a_long_call_is_recorded_when_it_begins(store):
    calls = [long(number) for number in range(3)]
    evaluate(*calls, store=store, debug=True)
    assert [names(store, call.key) for call in calls] == [1, 1, 1]
    assert [len(LATELY["long", number]) for number in range(3)] == [1, 2, 3]


def test_calls_with_inputs_are_recorded_before_anything_runs(store):
    root = more(short(1))
    evaluate(root, store=store, debug=True)
    assert root.key.hex()[:2] in LATELY["short", 1]
    assert store.call_of(root.key) not in (None, root.key)


def test_the_expression_of_a_call_that_failed_is_recorded(store):
    calls = [failing(number) for number in range(4)]
    outcomes = evaluate(*calls, store=store, debug=True)
    assert [isinstance(outcome, Failed) for outcome in outcomes] == [False, False, True, True]
    assert all(store.recipe(call.key) is not None for call in calls)


def test_what_was_wanted_is_recorded_when_the_evaluation_is_interrupted(store):
    calls = [interrupted(number) for number in range(5)]
    with pytest.raises(Interrupted):
        evaluate(*calls, store=store, debug=True)
    assert [names(store, call.key) for call in calls] == [1, 2, 1, 1, 1]


@op(version="1")
def usually_short(number: int) -> int:
    if number == 2:
        deadline = time.monotonic() + 20
        while LATELY["store"].recipe(LATELY["call"]) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return -1 if LATELY["store"].recipe(LATELY["call"]) is None else number
    return number


def test_the_expression_of_a_call_that_turns_out_to_be_long_is_recorded_while_it_runs(store):
    evaluate(usually_short(0), store=store)
    LATELY["call"] = usually_short(2).key
    outcomes = evaluate(*(usually_short(number) for number in range(3, 40)), usually_short(2), store=store)
    assert [outcome.value for outcome in outcomes] == [*range(3, 40), 2]


def test_the_expression_of_a_result_that_somebody_else_has_made_is_recorded(store):
    first = short(1)
    evaluate(first, store=store, debug=True)
    evaluate(short(2), store=store, debug=True)
    store.files.remove(place("recipes", first.key, ".json"))
    store.files.remove(place("results", first.key, ".json"))

    @op(name="rival", version="1")
    def rival(number: int) -> int:
        evaluate(first, store=LATELY["store"], debug=True)
        LATELY["store"].files.remove(place("recipes", first.key, ".json"))
        return number

    outcomes = evaluate(rival(1), first, store=store, debug=True)
    assert [outcome.value for outcome in outcomes] == [1, 1]
    assert store.recipe(first.key) is not None


def test_a_damaged_record_of_an_expression_is_written_anew_with_the_result(store):
    evaluate(short(0), short(1), store=store, debug=True)
    wanted = short(2)
    store.files.replace(place("recipes", wanted.key, ".json"), (b"garbage",))
    evaluate(wanted, store=store, debug=True)
    assert store.recipe(wanted.key)["title"] == "short(number=2)"
