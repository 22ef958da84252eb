"""The evidence of a page: read from the records of its evaluation."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from marin_dsl import Store, attempt, context, digest, evaluate, grid, op, provenance
from marin_dsl.pages import Curves, Page, Prose, Series
from marin_dsl.pages.collect import collect

PLACE = {
    "python": "3.11", "implementation": "CPython", "platform": "here", "processor": "one", "cores": 2,
    "memory": 2**34, "packages": {"attrs": "25"}, "commit": "abc", "patch": "", "untracked": ["x"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: PLACE)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


@op(version="1")
def train(lr: float) -> dict:
    context().observe("seconds", np.array([0.5, 1.0, lr]))
    context().observe("flops", 1e9)
    if lr > 1:
        raise ValueError("diverged")
    return {"loss": [3.0, 2.0, lr]}


@op(version="1")
def after(run: Any) -> Any:
    return run


@op(version="1")
def write(runs: list, extra: Any = None, title: str = "A page") -> Page:
    series = [
        Series(
            f"arm {position}", "arms", np.arange(3), np.arange(3), np.arange(3.0), source=("runs", position, "value")
        )
        for position in range(len(runs))
    ]
    return Page(title, "What?", "That.", "So.", (Prose("Text", "More."), Curves("Loss", "All.", series)))


def page_of(store: Store, *, lrs: tuple = (0.1, 5.0), title: str = "A page", label: str | None = "a-page", **how):
    runs = grid(lr=lrs)(lambda lr: attempt(train(lr)["loss"]))
    made = write(runs, attempt(after(train(5.0))), title)
    made = made.named(label, "1.0") if label else made
    outcome = evaluate(made, store=store, debug=True, target="here.py:page", **how)
    return made, outcome.value


def test_every_node_is_there_with_its_status_reason_and_cost(store):
    made, page = page_of(store)
    evidence = collect(store, page, made.key)
    nodes = {node.title: node for node in evidence.nodes}
    assert evidence.root == digest(made)
    assert evidence.label == "a-page@1.0"
    assert evidence.target == "here.py:page"
    assert evidence.commit == "abc"
    assert evidence.dirty is True
    assert evidence.packages == {"attrs": "25"}
    assert evidence.environment["Memory"] == "16.0 GiB"
    assert evidence.elapsed > 0
    good, bad, skipped = nodes["train(lr=0.1)"], nodes["train(lr=5.0)"], nodes["after(train)"]
    assert (good.status, good.served, good.reason, good.flops) == ("ok", False, "not evaluated before", 1e9)
    assert good.seconds >= 0
    assert good.peak_memory > 0
    assert good.arguments == (("lr", "0.1"),)
    assert (bad.status, bad.error.exception, bad.error.message, bad.error.attempts) == (
        "failed",
        "ValueError",
        "diverged",
        1,
    )
    assert bad.error.where.startswith("pages/test_collect.py:")
    assert bad.error.where.endswith("in train")
    assert (skipped.status, skipped.blamed) == ("skipped", (bad.key,))
    assert nodes["attempt(after)"].status == "inline"
    assert set(nodes["write(title='A page')"].depends_on) <= {node.key for node in evidence.nodes}


def test_curves_get_the_seconds_that_their_source_observed(store):
    made, page = page_of(store)
    seconds = collect(store, page, made.key).seconds
    assert list(seconds) == [("runs", 0, "value")], "the arm that failed has no result to have observed something"
    assert seconds["runs", 0, "value"].tolist() == [0.5, 1.0, 0.1]


def test_what_was_served_says_which_run_computed_it(store):
    first, _ = page_of(store)
    run = store.result(store.call_of(train(0.1).key))["provenance"]["run"]
    made, page = page_of(store, lrs=(0.1, 0.2, 5.0))
    nodes = {node.title: node for node in collect(store, page, made.key).nodes}
    assert nodes["train(lr=0.1)"].served
    assert nodes["train(lr=0.1)"].reason == f"served: computed by run {run}"
    assert not nodes["train(lr=0.2)"].served
    assert first.key != made.key


def test_a_page_of_a_second_evaluation_tells_the_same(store):
    made, page = page_of(store)
    before = collect(store, page, made.key)
    again, same = page_of(store, keep_failures=True)
    after_again = collect(store, same, again.key)
    assert attrs.evolve(after_again, seconds={}) == attrs.evolve(before, seconds={})


def test_a_page_without_a_label_has_none(store):
    made, page = page_of(store, label=None)
    assert collect(store, page, made.key).label == ""


def test_a_page_that_was_never_evaluated_is_said_so(store):
    made = write([])
    with pytest.raises(LookupError, match="has no record of the expression"):
        collect(store, write.function([]), made.key)
