"""The descent from the roots: what is looked at, and what follows from an outcome."""

from __future__ import annotations

from typing import Any

import pytest

from marin_dsl import Failed, Store, attempt, evaluate, op, plan, provenance
from marin_dsl.expression import Expression
from marin_dsl.planning import plan_of
from marin_dsl.planning.node import Node
from marin_dsl.planning.resolution import Resolution


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


@op(version="1")
def f(value: Any, other: Any = None) -> Any:
    return value


@op(version="1")
def fail(value: Any) -> Any:
    raise ValueError("no")


def resolution(*roots: Expression, store: Store, **settings) -> Resolution:
    return Resolution(roots, store, **settings)


def hows(found: Resolution) -> dict[str, str | None]:
    return {node.title: node.how for node in found.nodes.values()}


def test_what_has_no_open_inputs_is_ready_and_the_rest_waits(tmp_path):
    found = resolution(f(f(1), f(2)), store=Store(tmp_path))
    assert {node.title for node in found.ready} == {"f(value=1)", "f(value=2)"}
    assert found.counts() == {"served": 0, "run": 2, "kept": 0, "skipped": 0, "open": 1}
    assert [node.waiting for node in found.nodes.values()] == [2, 0, 0]


def test_an_input_that_is_used_twice_is_waited_for_once(tmp_path):
    store = Store(tmp_path)
    leaf = f(1)
    found = resolution(f(leaf, leaf), store=store)
    node = found.ready.popleft()
    found.finish(node, store.put(1))
    assert [ready.title for ready in found.ready] == ["f(f)"]


def test_a_failure_decides_everything_below_it_at_once(tmp_path):
    store = Store(tmp_path)
    broken = fail(1)
    made = [broken]
    for _ in range(5_000):
        made.append(f(made[-1], made[len(made) // 2]))
    found = resolution(made[-1], f(attempt(broken)), store=store)
    found.finish(found.ready.popleft(), Failed("raised", "ValueError", "no", operator="x"))
    assert found.counts()["skipped"] == 5_000
    assert [node.title for node in found.ready] == ["f(attempt(fail))"]
    assert {cause.operator for node in found.nodes.values() for cause in node.because} == {"fail(value=1)"}
    assert len(found.decided) == 5_001


def test_a_hit_ends_the_descent_and_lower_nodes_are_not_known(tmp_path):
    store = Store(tmp_path)
    root = f(f(f(1)))
    evaluate(root, store=store, debug=True)
    assert hows(resolution(root, store=store)) == {"f(f)": "hit"}
    assert str(plan(root, f(2), store=store)).splitlines() == [
        "1 to run, 1 served",
        "  run f(value=2)  (not evaluated before)",
    ]


def test_a_result_whose_value_is_gone_is_no_hit(tmp_path):
    store = Store(tmp_path)
    root = f("x" * 5_000)
    evaluate(root, store=store, debug=True)
    for path in (tmp_path / "blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    assert list(hows(resolution(root, store=store)).values()) == ["run"]
    assert evaluate(root, store=store, debug=True).value == "x" * 5_000


def test_kept_failures_are_outcomes_without_running(tmp_path):
    store = Store(tmp_path)
    root = f(fail(1))
    evaluate(root, store=store, debug=True)
    found = resolution(root, store=store, keep_failures=True)
    assert hows(found) == {"f(fail)": "skipped", "fail(value=1)": "kept"}
    assert plan_of(found, {}).counts == "0 to run, 0 served, 1 failures kept, 1 skipped"
    assert [node.title for node in resolution(root, store=store).ready] == ["fail(value=1)"]


def test_a_plan_lists_inputs_before_what_needs_them(tmp_path):
    made = plan(f(f(f(1), 2), f(3)), store=Store(tmp_path))
    titles = [title for _, title, _ in made.runs]
    assert titles.index("f(value=1)") < titles.index("f(other=2)") < titles.index("f(f)")
    assert [undecided for _, title, undecided in made.runs if title in ("f(value=1)", "f(value=3)")] == [False, False]


def test_a_node_without_outcome_is_not_done(tmp_path):
    node = Node(f(1))
    assert not node.done
    assert node.outcome() is None
    assert node.blamed() == ()
    assert not node.inline
    assert Node(f(1)["a"]).inline
    node.stored(Store(tmp_path).put(3))
    assert node.done
    assert node.digest == node.value.digest


def test_titles_of_what_is_served_are_a_sequence_like_a_tuple(tmp_path):
    store = Store(tmp_path)
    evaluate(f(1), f(2), store=store, debug=True)
    hits = plan(f(1), f(2), store=store).hits
    assert hits == ("f(value=1)", "f(value=2)")
    assert (len(hits), hits[1], hits[:1], repr(hits[1:])) == (2, "f(value=2)", ("f(value=1)",), "('f(value=2)',)")
    assert hash(hits) == hash(("f(value=1)", "f(value=2)"))
    assert hits != ["f(value=1)", "f(value=2)"]
