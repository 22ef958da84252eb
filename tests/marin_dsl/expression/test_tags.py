"""Tags and replicates: what they repeat, what they are called, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from marin_dsl import Store, evaluate, op, replicate, tagged
from marin_dsl.expression.recipe import call_text, structure
from marin_dsl.lineage.difference import differences, leaves

COUNT = itertools.count()


@op(version="1")
def draw(low: int) -> int:
    return low + next(COUNT)


@op(version="1")
def fail(message: str) -> int:
    raise ValueError(message)


def test_each_replicate_is_run_once_and_served_afterwards():
    store = Store("memory://tags-tests")
    values = [found.value for found in evaluate(*replicate(draw(0), 3), store=store, debug=True)]
    assert len(set(values)) == 3
    again = [found.value for found in evaluate(*replicate(draw(0), 2), store=store, debug=True)]
    assert again == values[:2]


def test_a_tagged_call_is_told_from_the_untagged_one_by_people():
    found = tagged(draw(1), machine="a")
    assert call_text(found) == "draw(low=1) [machine='a']"
    outcome = evaluate(draw(tagged(fail("no"), machine="a")), store="memory://tags-tests", debug=True)
    assert outcome.summary == "fail(message='no') [machine='a'] failed (ValueError: no)"


def test_a_changed_fact_is_one_difference():
    old, new = tagged(draw(1), machine="a"), tagged(draw(1), machine="b")
    records = {found.key: structure(found) for found in (old, new)}
    changes = differences(old.key, new.key, records.get, records.get, lambda key, record: {})
    assert [(change.path, change.text) for change in changes] == [("facts.machine", "'a' → 'b'")]
    assert len(list(leaves(changes))) == 1


def test_what_cannot_be_tagged_or_repeated_is_refused():
    with pytest.raises(TypeError, match=r"tagged\(...\) takes an expression, and got 3"):
        tagged(3, a=1)
    with pytest.raises(TypeError, match=r"takes the facts that enter identity as keywords"):
        tagged(draw(1))
    with pytest.raises(TypeError, match=r"the fact `replicate` is the index of replicate\(expr, n\); use that"):
        tagged(draw(1), replicate=1)
    with pytest.raises(TypeError, match=r"a fact that <Expression .*> is tagged with is no value"):
        tagged(draw(1), other=draw(2))
    with pytest.raises(TypeError, match=r"replicate\(...\) takes an expression, and got 3"):
        replicate(3, 2)
    with pytest.raises(TypeError, match=r"repeats the call of an operator, and `add` is none"):
        replicate(draw(1) + 1, 2)
    for count in (-1, 2.0, True):
        with pytest.raises(ValueError, match=r"takes how many times as a whole number from 0 on, and got"):
            replicate(draw(1), count)


def test_a_large_fact_is_told_by_its_content():
    first, second = np.zeros(100_000), np.ones(100_000)
    assert tagged(draw(1), x=first) == tagged(draw(1), x=first.copy()) != tagged(draw(1), x=second)
    assert tagged(tagged(draw(1), x=first), y=1) == tagged(draw(1), y=1, x=first)


def test_replicates_of_replicates_are_all_distinct():
    keys = {inner.key for outer in replicate(draw(1), 3) for inner in [outer, *replicate(outer, 3)]}
    assert len(keys) == 12
