"""Where a value came from, read from records alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marin_dsl
from marin_dsl import Store, attempt, context, digest, evaluate, grid, op, provenance, when
from marin_dsl.encoding import parse_digest
from marin_dsl.expression import walk
from marin_dsl.lineage import ancestors, at_path, became, below, blamed, dot, every, folded, origins, recorded, uses


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


@op(version="1")
def train(lr: float) -> dict:
    context().observe("seconds", np.array([1.0, 2.0]))
    if lr > 1:
        raise ValueError("diverged")
    return {"loss": lr}


@op(version="1")
def f(*parts: Any, **named: Any) -> Any:
    return len(parts)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def test_all_ancestors_are_found_with_what_became_of_them(store):
    root = f(train(0.1)["loss"], f(train(5.0)), attempt(train(5.0)), attempt(f(train(5.0))))
    wanted = f(train(0.1)["loss"], attempt(f(train(5.0))))
    evaluate(root, wanted, store=store, debug=True)
    found = ancestors(store, root.key)
    assert set(found) == {expression.key for expression in walk(root)}
    good, bad = found[train(0.1).key], found[train(5.0).key]
    assert good.result is not None
    assert good.record == good.result
    assert good.observation(store, "seconds").tolist() == [1.0, 2.0]
    assert good.observation(store, "flops") is None
    assert bad.failed.message == "diverged"
    assert found[train(0.1)["loss"].key].inline
    assert found[root.key].record is None
    assert ancestors(store, wanted.key)[wanted.key].result is not None


def test_what_was_skipped_blames_what_failed_and_not_what_was_attempted(store):
    root = f(attempt(train(5.0)), f(train(6.0)["loss"]), train(0.1))
    evaluate(root, store=store, debug=True)
    assert blamed(ancestors(store, root.key), root.key) == [train(6.0).key]


def test_a_path_among_arguments_leads_to_the_node_behind_projections(store):
    runs = grid(lr=[0.1, 0.2])(lambda lr: attempt(train(lr)))
    root = f(runs, 3, best={"run": train(0.2)["loss"]})
    evaluate(root, store=store, debug=True)
    found = ancestors(store, root.key)
    assert at_path(found, root.key, ("parts", 0, 1, "value")) == train(0.2).key
    assert at_path(found, root.key, ("named", "best", "run")) == train(0.2).key
    for path in (("parts", 0, 7, "value"), ("parts", 1), ("nothing",), ("parts", "x"), ("parts", 1, "x")):
        assert at_path(found, root.key, path) is None


def test_a_path_through_a_key_that_is_an_expression_leads_to_the_value(store):
    root = f(train(0.1)[f("loss")])
    evaluate(root, store=store, debug=True)
    assert at_path(ancestors(store, root.key), root.key, ("parts", 0)) == train(0.1).key


def test_an_expression_that_was_never_evaluated_is_said_so(store):
    with pytest.raises(LookupError, match=r"has no record of the expression sha256:[0-9a-f]{64}; evaluate it first"):
        ancestors(store, f(1).key)


def test_records_are_read_without_the_code_of_the_project(tmp_path):
    (tmp_path / "gone.py").write_text(
        "import attrs\nfrom marin_dsl import op, encodable\n"
        "@encodable\n@attrs.frozen\nclass Model:\n    n: int\n"
        "@op\ndef make(model: Model) -> Model:\n    return model\n"
        "root = make(make(Model(3)))\n"
    )
    code = (
        "import gone; from marin_dsl import evaluate, digest;"
        "evaluate(gone.root, store='store', debug=True); print(digest(gone.root))"
    )
    source = str(Path(marin_dsl.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": f"{source}:."}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "gone" not in sys.modules
    found = ancestors(Store(tmp_path / "store"), parse_digest(done.stdout.strip()))
    assert sorted(ancestor.recipe["title"] for ancestor in found.values()) == ["make", "make(make)"]


def test_lineage_leads_back_to_literals_with_matching_digests(store):
    root = f(f(f(1), f(2)), k=f(3))
    outcome = evaluate(root, store=store, debug=True)
    found = ancestors(store, root.key)
    assert found[root.key].result["value"]["digest"] == outcome.digest
    for ancestor in found.values():
        inputs = [found[key].result["value"]["digest"] for key in ancestor.references]
        assert ancestor.result["inputs"] == inputs
    assert digest(outcome.value) == outcome.digest


def test_origins_and_uses_are_each_others_mirror(store):
    one, two = train(0.1), train(0.2)
    root = f(f(one), f(one, two), f(two)["x"])
    other = f(f(one), 7)
    evaluate(root, other, store=store, debug=True)
    up = {branch.key: branch for branch in every(origins(store, root.key))}
    assert set(up) == {expression.key for expression in walk(root)}
    assert [found.key for found in up[f(one, two).key].references] == [one.key, two.key]
    down = {branch.key: branch for branch in every(uses(store, one.key))}
    assert set(down) == {one.key, f(one).key, f(one, two).key, root.key, other.key}
    assert {found.key for found in down[f(one).key].references} == {root.key, other.key}


def test_a_folded_lineage_refers_through_what_is_inline(store):
    root = f(attempt(train(0.1)["loss"]), train(0.1), train(0.2)["loss"] + 1)
    evaluate(root, store=store, debug=True)
    found = folded(origins(store, root.key))
    assert [branch.key for branch in found.references] == [train(0.1).key, train(0.2).key]
    assert not any(branch.inline for branch in every(found))


def test_what_became_of_each_is_read_from_records(store):
    root = f(train(5.0), train(0.1)["loss"])
    evaluate(root, store=store, debug=True)
    found = {branch.title: became(store, branch) for branch in every(origins(store, root.key))}
    statuses = {title: what.status for title, what in found.items()}
    assert statuses == {
        "f": "not evaluated",
        "train(lr=5.0)": "failed",
        "train(lr=0.1)": "ok",
        "train['loss']": "inline",
    }
    assert found["train(lr=0.1)"].digest.startswith("sha256:")


def test_a_chain_of_any_length_has_a_lineage(store):
    root = f(0)
    for _ in range(300):
        root = f(root)
    evaluate(root, store=store, debug=True)
    assert sum(1 for _ in every(origins(store, root.key))) == 301
    assert sum(1 for _ in every(uses(store, f(0).key))) == 301
    assert dot(origins(store, root.key)).count("->") == 300


def test_titles_with_quotes_are_text_in_a_graph(store):
    root = f(1).with_(title='a "quoted"\nbackslash \\ title')
    evaluate(root, store=store, debug=True)
    assert r'[label="a \"quoted\"\nbackslash \\ title"]' in dot(origins(store, root.key))


@pytest.mark.parametrize("ask", [origins, uses, recorded])
def test_nothing_is_made_up_about_what_is_not_recorded(store, ask):
    with pytest.raises(LookupError, match="evaluate it first"):
        ask(store, f(1).key)


@op(version="1")
def choose(n: int) -> Any:
    return f(train(0.3)) if n else train(5.0)


def test_what_an_operator_or_a_choice_went_on_with_is_a_part_of_the_lineage(store):
    root = f(choose(1), when(f(1), train(0.1), train(0.2)))
    evaluate(root, store=store, debug=True)
    up = {branch.key for branch in every(origins(store, root.key))}
    assert {f(train(0.3)).key, train(0.3).key, train(0.1).key} <= up
    not_taken = next(branch for branch in every(origins(store, root.key)) if branch.key == train(0.2).key)
    assert became(store, not_taken).status == "not evaluated"
    down = {branch.key for branch in every(uses(store, train(0.3).key))}
    assert down == {train(0.3).key, f(train(0.3)).key, choose(1).key, root.key}
    assert at_path(ancestors(store, root.key), root.key, ("parts", 1)) == train(0.1).key


def test_a_failure_of_what_an_operator_went_on_with_is_blamed(store):
    root = f(choose(0), train(7.0).recover(train(0.1)))
    evaluate(root, store=store, debug=True)
    assert blamed(ancestors(store, root.key), root.key) == [train(5.0).key]


def test_everything_below_is_met_once_and_what_is_unknown_is_left_out(store):
    leaf = f(1)
    root = f(f(leaf), f(leaf, 2))
    evaluate(root, store=store, debug=True)
    known = {root.key: store.recipe(root.key)}
    met = [key for key, _ in below(store, known)]
    assert sorted(met) == sorted(expression.key for expression in walk(root))
    store.files.remove(f"recipes/{leaf.key.hex()[:2]}/{leaf.key.hex()[2:]}.json")
    assert sorted([*(key for key, _ in below(store, known)), leaf.key]) == sorted(met)
