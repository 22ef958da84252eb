"""What is handed to a cluster next."""

from __future__ import annotations

import attrs
import pytest

from marin_dsl import Store, evaluate, op
from marin_dsl.evaluation.dispatch import FEWEST_UNDER_WAY, LARGEST_BATCH, Dispatch
from marin_dsl.outcome import Attempt
from marin_dsl.worker.task import Task


@op(version="1")
def quick(n: int) -> int:
    return n


@op(version="1")
def slow(n: int) -> int:
    return n


@op(version="1")
def total(parts: list) -> int:
    return sum(parts)


def task(number: int, operator=quick, **settings) -> Task:
    call = number.to_bytes(32, "big")
    made = operator(number).with_(**settings)
    return Task(
        Store("memory://dispatch"), operator, (), (), call, "t", "run", "", "", False, annotations=made.annotations
    )


def numbers(batches) -> list[list[int]]:
    return [[int.from_bytes(found.call, "big") for found in batch.tasks] for batch in batches]


def filled(count: int, seconds: float | None = None, **settings) -> Dispatch:
    dispatch = Dispatch()
    for number in range(count):
        dispatch.add(task(number, **settings), {}, 0)
    if seconds is not None:
        dispatch.took(task(0), seconds)
    return dispatch


def test_calls_of_unknown_duration_go_one_by_one_and_no_more_than_keep_a_cluster_busy():
    dispatch = filled(100)
    assert numbers(dispatch.due(2)) == [[number] for number in range(FEWEST_UNDER_WAY)]
    assert list(dispatch.due(2)) == []


def test_what_came_back_makes_room_for_the_next():
    dispatch = filled(100)
    first, *_ = list(dispatch.due(2))
    dispatch.done(first)
    assert numbers(dispatch.due(2)) == [[FEWEST_UNDER_WAY]]


def test_a_larger_cluster_is_given_more():
    assert len(list(filled(100).due(40))) == 80


def test_quick_calls_go_together_and_each_thread_gets_some():
    batches = numbers(filled(100, 0.001).due(4))
    assert len(batches[0]) == 25
    assert sorted(number for batch in batches for number in batch) == list(range(100))
    assert max(map(len, numbers(filled(10_000, 0.0001).due(1)))) == LARGEST_BATCH


@pytest.mark.parametrize("seconds", [0.1, 5.0])
def test_slow_calls_go_one_by_one(seconds):
    assert set(map(len, numbers(filled(100, seconds).due(2)))) == {1}


def test_one_slow_call_counts_at_once_and_quick_ones_by_and_by():
    dispatch = filled(1000, 0.001)
    dispatch.took(task(0), 1.0)
    assert len(next(dispatch.due(2)).tasks) == 1
    for _ in range(30):
        dispatch.took(task(0), 0.001)
    assert len(next(dispatch.due(2)).tasks) == LARGEST_BATCH


def test_a_batch_is_of_one_operator_and_one_priority():
    dispatch = Dispatch()
    for number in range(30):
        dispatch.add(task(number, quick if number % 2 else slow), {}, number // 10)
    for operator in (quick, slow):
        dispatch.took(task(0, operator), 0.0001)
    batches = list(dispatch.due(1))
    assert {len({(found.operator.name, batch.priority) for found in batch.tasks}) for batch in batches} == {1}
    assert [batch.priority for batch in batches] == sorted((batch.priority for batch in batches), reverse=True)


@pytest.mark.parametrize("settings", [{"isolate": True}, {"timeout": 60}, {"hosts": 2}])
def test_what_has_a_process_or_a_time_of_its_own_goes_alone(settings):
    assert set(map(len, numbers(filled(100, 0.0001, **settings).due(2)))) == {1}


def test_what_failed_before_goes_alone():
    dispatch = Dispatch()
    dispatch.took(task(0), 0.0001)
    for number in range(100):
        history = (Attempt("killed", "Killed", "9", "here", "", 0.0),)
        dispatch.add(attrs.evolve(task(number), history=history), {}, 0)
    assert set(map(len, numbers(dispatch.due(2)))) == {1}


def test_a_resource_that_is_taken_keeps_no_others_from_being_handed_out():
    dispatch = Dispatch()
    for number in range(100):
        dispatch.add(task(number), {"GPU": 1}, 10)
    list(dispatch.due(2))
    dispatch.add(task(1000), {}, 0)
    assert numbers(dispatch.due(2)) == [[1000]]


def test_nothing_is_left_after_clearing():
    dispatch = filled(100)
    dispatch.clear()
    assert list(dispatch.due(2)) == []


def test_hundreds_of_quick_calls_in_batches_give_their_values_and_events(tmp_path):
    events: list[dict] = []
    wanted = total([quick(number) for number in range(400)])
    assert evaluate(wanted, store=tmp_path, watch=events.append).value == sum(range(400))
    running = [event["title"] for event in events if event["event"] == "running"]
    assert len(running) == len(set(running)) == 401


def test_a_batch_holds_calls_of_one_urgency_only():
    dispatch = Dispatch()
    dispatch.took(task(0), 0.0001)
    for number in range(40):
        dispatch.add(task(number), {}, number % 2)
    handed = list(dispatch.due(1))
    urgency = [(batch.priority, number % 2) for batch in handed for number in numbers([batch])[0]]
    assert urgency == [(1, 1)] * 20 + [(0, 0)] * 20
    assert any(len(batch.tasks) > 1 for batch in handed)


@pytest.mark.parametrize("settings", [{"isolate": True}, {"timeout": 5}, {"hosts": 2}])
def test_a_call_with_a_process_or_a_time_of_its_own_is_in_no_batch_of_others(settings):
    dispatch = Dispatch()
    dispatch.took(task(0), 0.0001)
    for number in range(20):
        dispatch.add(task(number, **(settings if number % 4 == 3 else {})), {}, 0)
    batches = numbers(dispatch.due(1))
    assert [batch for batch in batches if any(number % 4 == 3 for number in batch)] == [[3], [7], [11], [15], [19]]
    assert [0, 1, 2] in batches
