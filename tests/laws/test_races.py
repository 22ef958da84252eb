"""L20: any interleaving of executors of one call commits it once; the loser changes nothing, however late it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl import Store, op
from marin_dsl.encoding import encode, format_digest
from marin_dsl.expression.keys import recipe_key
from marin_dsl.store import StoredValue
from marin_dsl.worker import execute
from marin_dsl.worker.task import Task
from tests.laws.interleaving import Action, InMemory, Stepped

LARGE = "x" * 70_000  # a blob of its own, beside a manifest that lies in the record
RUNS = []


@op(version="1")
def agreeing(n: int) -> dict:
    """Gives the same whoever runs it."""
    RUNS.append(n)
    return {"n": n, "text": LARGE}


@op(version="1")
def disagreeing(n: int) -> dict:
    """Gives something else each time."""
    RUNS.append(n)
    return {"run": len(RUNS), "text": LARGE + str(len(RUNS))}


def task(files, number, operator=agreeing):
    """A call as one of several runs works on it."""
    store, run = Store("unused"), f"20261202T120000Z-{number:09x}"
    store.files = Stepped(files)
    expression = operator(3)
    call = recipe_key(expression.identity, expression.payload, [])
    nothing = format_digest(bytes(32))
    return Task(store, operator, expression.payload, (), call, "call", run, nothing, nothing, False)


def result_of(files, call):
    return files.read(f"results/{call.hex()[:2]}/{call.hex()[2:]}.json")


def interleaved(turns, tasks, *, killed=()):
    """Run executors of one call in the given order of turns; their answers, and the record in the end."""
    RUNS.clear()
    files, call = tasks[0].store.files.files, tasks[0].call
    actions = [Action(lambda given=given: execute(given, lambda event: None)) for given in tasks]
    record = None
    for turn in turns:
        if not actions[turn].over:
            actions[turn].step()
        now = result_of(files, call)
        assert record is None or now == record, "a result that was there has been changed"
        record = now
    for index, action in enumerate(actions):
        if index in killed:
            action.kill()
        else:
            action.finish()
        now = result_of(files, call)
        assert record is None or now == record
        record = now
    return [action.result for action in actions if action.result is not None], record


turns = st.lists(st.integers(0, 2), max_size=60)


@given(turns=turns, operator=st.sampled_from([agreeing, disagreeing]))
def test_l20_any_interleaving_commits_once_and_all_answer_with_what_was_committed(turns, operator):
    files = InMemory()
    tasks = [task(files, number, operator) for number in range(3)]
    answers, record = interleaved(turns, tasks)
    assert record is not None
    store = Store("unused")
    store.files = files
    value = StoredValue.from_record(store.result(tasks[0].call)["value"])
    assert [answer.stored for answer in answers] == [value] * 3
    conflicts = files.names(f"conflicts/{tasks[0].call.hex()}")
    assert len(conflicts) == (0 if operator is agreeing else len(RUNS) - 1), "what disagrees is kept as evidence"
    assert encode(store.get(value))


@given(turns=turns, killed=st.sets(st.integers(0, 2), max_size=2))
def test_l20_executors_that_die_anywhere_stop_nobody(turns, killed):
    files = InMemory()
    tasks = [task(files, number) for number in range(3)]
    answers, record = interleaved(turns, tasks, killed=killed)
    assert record is not None
    assert len(answers) >= 3 - len(killed)
    assert {format_digest(answer.stored.digest) for answer in answers} == {format_digest(answers[0].stored.digest)}
    assert files.names("conflicts") == []


@pytest.mark.parametrize("operator", [agreeing, disagreeing])
def test_l20_an_executor_paused_before_any_operation_finds_what_another_one_committed(operator):
    steps = 0
    while True:
        files = InMemory()
        late, other = task(files, 0, operator), task(files, 1, operator)
        RUNS.clear()
        action = Action(lambda late=late: execute(late, lambda event: None))
        for _ in range(steps):
            if not action.over:
                action.step()
        if action.over:
            break
        done = execute(other, lambda event: None)
        record = result_of(files, late.call)
        assert action.finish().stored == done.stored
        assert result_of(files, late.call) == record
        steps += 1
    assert steps >= 4
