"""Laws of labels: L25 transparency, L26 drift."""

from __future__ import annotations

import math
import re
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_dsl import Ok, Store, evaluate, plan, provenance
from marin_dsl.expression import Expression, walk
from marin_dsl.expression.recipe import structure
from marin_dsl.labels import check_label, drifts, move
from marin_dsl.labels.drift import POLICIES
from marin_dsl.labels.equivalence import record_recipes
from marin_dsl.lineage.difference import differences, leaves, reasons
from tests.marin_dsl.programs import Step, build, pair, plain, programs, total

EXAMPLES = settings(deadline=None)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers(0, 3) | st.booleans() | st.floats(0, 3) | st.text(max_size=2), inner, max_size=3)
        | st.frozensets(st.integers(0, 3) | st.booleans() | st.floats(0, 3), max_size=3)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module", autouse=True)
def _quick_environment():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "environment", lambda project: {"python": "3"})
        yield


def difference(old: Expression, new: Expression) -> list:
    records = {found.key: structure(found) for found in walk(old, new)}
    return differences(old.key, new.key, records.get, records.get)


@EXAMPLES
@given(programs())
def test_nothing_differs_from_itself(program):
    for expression in build(program):
        assert difference(expression, expression) == []


@EXAMPLES
@given(programs(), programs())
def test_the_difference_is_empty_exactly_for_equal_keys(first, second):
    for old, new in zip(build(first), build(second), strict=False):
        assert (difference(old, new) == []) == (old == new)


@settings(EXAMPLES, max_examples=settings.default.max_examples * 6)
@given(VALUES, VALUES)
def test_the_difference_of_arguments_is_empty_exactly_for_equal_values(first, second):
    old, new = total([first]), total([second])
    assert (difference(old, new) == []) == (old == new)
    assert difference(total([first]), total([first])) == []


def test_nan_is_no_change():
    assert difference(total([math.nan, {"a": math.nan}]), total([math.nan, {"a": math.nan}])) == []


@EXAMPLES
@given(programs(), st.data())
def test_one_edited_leaf_is_one_line_however_deep(program, data):
    changed = data.draw(st.sampled_from([position for position, step in enumerate(program) if step.kind == "leaf"]))
    before, after = [*program], [*program]
    before[changed], after[changed] = Step("leaf", (), 1000), Step("leaf", (), 2000)
    for old, new in zip(build(before), build(after), strict=True):
        if old != new:
            assert list(leaves(difference(old, new))) == ["leaf(n=2000): n 1000 → 2000"]


@EXAMPLES
@given(programs(), st.data())
def test_applying_what_is_told_to_the_earlier_recipe_gives_the_later_one(program, data):
    places = [position for position, step in enumerate(program) if step.kind == "leaf"]
    edited = data.draw(st.sets(st.sampled_from(places), min_size=1))
    before = [Step("leaf", (), 1000 + n) if n in edited else step for n, step in enumerate(program)]
    after = [Step("leaf", (), 2000 + n) if n in edited else step for n, step in enumerate(program)]
    for old, new, index in zip(build(before), build(after), range(len(program)), strict=False):
        told = leaves(difference(old, new), limit=len(program))
        found = dict(re.fullmatch(r"leaf\(n=\d+\): n (\d+) → (\d+)", line).groups() for line in told)
        applied = [
            Step("leaf", (), int(found[str(step.constant)])) if str(step.constant) in found else step for step in before
        ]
        assert build(applied)[index] == new


@EXAMPLES
@given(programs(), programs())
def test_a_label_drifts_exactly_when_another_recipe_is_wanted_and_says_something(first, second):
    store, label = Store(f"memory://{uuid.uuid4().hex}"), check_label("root", "1.0")
    old, new = build(first)[-1], build(second)[-1]
    record_recipes(store, old)
    move(store, label, old.key, store.put(1))
    assert drifts(store, (old.named("root", "1.0"),)) == []
    found = drifts(store, (new.named("root", "1.0"),))
    assert (found == []) == (old == new)
    for drift in found:
        assert 1 <= len(drift.lines) <= 21
        assert drift.lines == tuple(leaves(difference(old, new)))


@EXAMPLES
@given(VALUES)
def test_a_value_that_is_not_equal_to_itself_is_no_drift(value):
    store, label = Store(f"memory://{uuid.uuid4().hex}"), check_label("root", "1.0")
    old, new = total([value, math.nan]), total([value, math.nan])
    record_recipes(store, old)
    move(store, label, old.key, store.put(1))
    assert drifts(store, (new.named("root", "1.0"),)) == []


def test_a_leaf_under_a_ladder_is_one_line_and_every_ancestor_has_a_reason():
    def ladder(n):
        left, right = total([n]), total([7])
        for _ in range(400):
            left, right = pair(left, right), pair(right, left)
        return left

    changes = difference(ladder(1), ladder(2))
    assert list(leaves(changes)) == ["total(bias=0): parts[0] 1 → 2"]
    found = reasons(changes)
    assert len(found) == len(set(walk(ladder(2))) - set(walk(ladder(1))))
    assert sum(reason.startswith("input") for reason in found.values()) == len(found) - 1


@settings(EXAMPLES, max_examples=settings.default.max_examples // 2)
@given(program=programs(), data=st.data())
def test_labels_change_no_value_and_no_plan(program, data, tmp_path_factory):
    roots = build(program)
    labelled = [root.named(f"root-{index}", "1.0") for index, root in enumerate(roots)]
    first, second = (Path(tmp_path_factory.mktemp(name)) for name in ("plain", "labelled"))
    assert plan(*labelled, store=first).runs == plan(*roots, store=first).runs
    one = evaluate(*roots, store=first, debug=True)
    other = evaluate(*labelled, store=second, debug=True, drift=data.draw(st.sampled_from(POLICIES)))
    one, other = (found if isinstance(found, tuple) else (found,) for found in (one, other))
    assert list(map(plain, one)) == list(map(plain, other))
    for root, outcome, again in zip(roots, one, other, strict=True):
        assert root in labelled
        if isinstance(outcome, Ok):
            assert outcome.digest == again.digest
