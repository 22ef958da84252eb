"""Equivalence: a recipe that was written anew stands for an old result."""

from __future__ import annotations

import pytest

from marin_dsl import Store, evaluate, op, plan, provenance
from marin_dsl.expression.annotations import Label
from marin_dsl.labels import CannotStandFor, equivalence, same, undo
from marin_dsl.lineage.inspection import inspect
from marin_dsl.lineage.subject import subjects
from marin_dsl.store.copy import copy
from marin_dsl.store.verify import verify

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})
    CALLS.clear()


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "store")
    evaluate(old(), store=found, debug=True)
    CALLS.clear()
    return found


@op(version="1", excludes=[CALLS])
def corpus(name: str) -> str:
    CALLS.append("corpus")
    return name


@op(version="1", excludes=[CALLS])
def train(text: str, rate: float) -> dict:
    CALLS.append("train")
    return {"text": text, "rate": rate}


@op(version="2", excludes=[CALLS])
def fit(text: str, learning_rate: float) -> dict:
    CALLS.append("fit")
    return {"text": text, "rate": learning_rate}


@op(version="1", excludes=[CALLS])
def alone(rate: float) -> dict:
    CALLS.append("alone")
    return {"text": "a", "rate": rate}


@op(version="1")
def loss(model: dict) -> float:
    return model["rate"]


def old():
    return train(corpus("a"), 0.1).named("model", "1.0")


def new():
    return fit(corpus("b"), 0.1)


def run(root, store, **settings):
    told = []
    outcome = evaluate(root, store=store, debug=True, watch=told.append, **settings)
    return outcome, [event for event in told if event["event"] in ("same", "drift")]


@pytest.mark.parametrize("made", [new, lambda: alone(0.5)])
@pytest.mark.parametrize("name", ["model@1.0", Label("model", "1.0"), old().key])
def test_the_new_recipe_is_served_the_old_result_and_says_why(store, made, name):
    said = same(store, name, made(), why="only renamed")
    outcome, (told,) = run(made(), store)
    assert outcome.value == {"text": "a", "rate": 0.1}
    assert CALLS == []
    assert (told["why"], told["by"], told["since"]) == ("only renamed", said.by, said.since)
    assert told["old"] == said.old
    assert equivalence(store, made().key) == said
    assert run(loss(made()), store)[0].value == 0.1
    assert CALLS == []


def test_it_costs_no_look_up(store):
    same(store, "model@1.0", new(), why="renamed")

    def looks(root):
        found: list[str] = []
        read = store.files.read
        store.files.read = lambda path: found.append(path) or read(path)
        plan(root, store=store)
        store.files.read = read
        return len(found)

    assert looks(new()) == looks(train(corpus("a"), 0.1))


def test_the_new_recipe_under_the_label_is_no_drift(store):
    drifted = new().named("model", "1.0")
    same(store, "model@1.0", drifted, why="renamed")
    assert [event["event"] for event in run(drifted, store, drift="strict")[1]] == ["same"]


@pytest.mark.parametrize("made", [new, lambda: alone(0.5)])
def test_what_was_said_can_be_taken_back(store, made):
    same(store, "model@1.0", made(), why="renamed")
    undone = undo(store, made(), why="it was not")
    assert (undone.undone, undone.why) == (True, "it was not")
    assert equivalence(store, made().key) is None
    assert run(made(), store)[1] == []
    assert CALLS != []
    with pytest.raises(CannotStandFor, match=r"nobody has said that sha256:.* stands for something; there is"):
        undo(store, made())


def test_a_recipe_with_another_result_is_refused_with_both_digests(store):
    evaluate(fit(corpus("b"), 0.2), store=store, debug=True)
    with pytest.raises(
        CannotStandFor,
        match=r"has a result of its own, sha256:\w+, which is not that of model@1.0, sha256:\w+: they are not the same"
        r"; marin diff model@1.0 sha256:\w+ tells",
    ):
        same(store, "model@1.0", fit(corpus("b"), 0.2), why="hope")
    outcome, told = run(fit(corpus("b"), 0.2), store)
    assert (outcome.value["rate"], told) == (0.2, [])


def test_a_recipe_that_came_to_the_same_keeps_its_own_result(store):
    made = fit(corpus("a"), 0.1)
    evaluate(made, store=store, debug=True)
    same(store, "model@1.0", made, why="renamed")
    assert run(made, store)[1] == []
    undo(store, made)
    CALLS.clear()
    run(made, store)
    assert CALLS == []


@pytest.mark.parametrize(
    ("name", "made", "why", "message"),
    [
        ("model@1.0", new(), " ", "say why the new recipe stands for the old result"),
        ("model@2.0", new(), "x", "model@2.0 is not in store .*, so nothing can stand for it"),
        (new().key, new(), "x", "sha256:.* has no result in store .*, so nothing can stand for it"),
        ("model@1.0", new().key, "x", "no record of sha256:.*; name the new recipe by its target"),
        ("model@1.0", new()["rate"], "x", "is a part or a combination of other values and is never stored itself"),
        ("model@1.0", old(), "x", "is the recipe of model@1.0 itself: there is nothing that it could stand for"),
        (old().key, old().key, "x", "is the recipe of sha256:.* itself: there is nothing that it could stand for"),
    ],
)
def test_what_cannot_stand_for_something_says_why(store, name, made, why, message):
    with pytest.raises(CannotStandFor, match=message):
        same(store, name, made, why=why)


def test_a_label_of_a_part_can_be_stood_for(store):
    evaluate(old()["rate"].named("rate", "1"), store=store, debug=True)
    same(store, "rate@1", loss(new()), why="the same number")
    assert run(loss(new()), store)[0].value == 0.1
    assert CALLS == []


def test_the_store_stays_sound_and_can_be_asked_and_copied(store, tmp_path):
    same(store, "model@1.0", new(), why="renamed")
    evaluate(loss(new()).named("loss", "1"), store=store, debug=True)
    assert verify(store).sound
    (subject,) = subjects(store, "loss@1")
    assert inspect(store, subject).inputs[0].title == "fit(learning_rate=0.1)"
    there = Store(tmp_path / "there")
    copy(store, there)
    assert run(loss(new()), there)[0].value == 0.1
    assert run(new(), there)[1][0]["why"] == "renamed"
    assert undo(there, new()).old == "model@1.0"
    assert equivalence(there, new().key) is None
