"""Drift of recipes: what each policy does about it, and what is said."""

from __future__ import annotations

import pickle

import pytest

from marin_dsl import Ok, Store, evaluate, op, plan, provenance, recall
from marin_dsl.evaluation import evaluation
from marin_dsl.expression.annotations import Label
from marin_dsl.labels import DriftRefused, current, entries, move
from marin_dsl.lineage.history import runs
from marin_dsl.store.files import place
from marin_dsl.store.records import write_record

CALLS: list[object] = []


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})
    CALLS.clear()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@op(version="1", excludes=[CALLS])
def corpus(text: str) -> str:
    CALLS.append(text)
    return text * 2


@op(version="1", excludes=[CALLS])
def train(text: str, rate: float) -> dict:
    CALLS.append(rate)
    return {"text": text, "rate": rate}


@op(name="test.score", excludes=[CALLS])
def score(model: dict) -> float:
    return model["rate"] + 1


@op(name="test.score", excludes=[CALLS])
def score_anew(model: dict) -> float:
    return model["rate"] + 2


def experiment(rate, version="1.0", text="a"):
    return train(corpus(text), rate).named("model", version)


def run(*roots, store, **settings):
    told = []
    outcome = evaluate(*roots, store=store, debug=True, watch=told.append, **settings)
    return outcome, [event for event in told if event["event"] == "drift"]


def test_what_is_recorded_is_served_in_the_place_of_a_drifted_root_and_nothing_runs(store):
    run(experiment(0.1), store=store)
    CALLS.clear()
    outcome, (told,) = run(experiment(0.2), store=store, drift="use-recorded")
    assert outcome.value["rate"] == 0.1
    assert CALLS == []
    assert told["policy"] == "use-recorded"
    assert told["lines"] == ["train(rate=0.2): rate 0.1 → 0.2"]
    assert current(store, Label("model", "1.0")).recipe == experiment(0.1).key
    newest = next(iter(runs(store)))
    assert newest.drift == "use-recorded", "a run that served something else says so"


def test_other_roots_are_evaluated_beside_one_that_is_served(store):
    run(experiment(0.1), store=store)
    CALLS.clear()
    outcomes, _ = run(experiment(0.2), experiment(0.3, "2.0"), store=store, drift="use-recorded")
    assert [outcome.value["rate"] for outcome in outcomes] == [0.1, 0.3]
    assert CALLS == [0.3]
    assert current(store, Label("model", "2.0")).recipe == experiment(0.3).key
    assert len(entries(store, Label("model", "1.0"))) == 1


def test_a_recorded_value_that_is_lost_is_a_failure_and_nothing_runs(store):
    big = experiment(0.1, text="a" * 5000)
    run(big, store=store)
    stored = current(store, Label("model", "1.0")).value
    store.files.remove(f"blobs/{stored.digest.hex()[:2]}/{stored.digest.hex()[2:]}")
    CALLS.clear()
    outcome, _ = run(experiment(0.2), store=store, drift="use-recorded")
    assert "has lost the value of model@1.0; evaluate what it was made from again" in outcome.message
    assert CALLS == []


def test_without_drift_every_policy_evaluates(store):
    for number, policy in enumerate(("advise", "accept", "use-recorded", "strict")):
        outcome, told = run(experiment(0.1, f"{number}.0"), store=store, drift=policy)
        assert outcome.value["rate"] == 0.1
        assert told == []
        assert run(experiment(0.1, f"{number}.0"), store=store, drift=policy)[1] == []


def test_a_strict_run_fails_before_anything_runs_and_writes_nothing(store):
    run(experiment(0.1), store=store)
    CALLS.clear()
    files = sorted(store.files.names("runs"))
    with pytest.raises(
        DriftRefused,
        match=r"(?s)drift, so nothing was run:\nmodel@1.0 was recorded for another recipe \(.*\)\n"
        r"  ≠ train\(rate=0.2\): rate 0.1 → 0.2\naccept moves the label, use-recorded serves what it stands for; or",
    ) as raised:
        run(experiment(0.2), store=store, drift="strict")
    assert CALLS == []
    assert sorted(store.files.names("runs")) == files
    (found,) = pickle.loads(pickle.dumps(raised.value)).drifts
    assert (str(found.label), found.root) == ("model@1.0", experiment(0.2).key)


def test_a_plan_tells_drift_and_follows_the_policy(store):
    run(experiment(0.1), store=store)
    assert "  ≠ train(rate=0.2): rate 0.1 → 0.2" in str(plan(experiment(0.2), store=store))
    assert plan(experiment(0.2), store=store, drift="use-recorded").counts == "0 to run, 0 served"
    assert plan(experiment(0.2), store=store, drift="accept").counts == "1 to run, 1 served"
    assert plan(experiment(0.1), store=store, drift="strict").drifts == ()
    with pytest.raises(DriftRefused):
        plan(experiment(0.2), store=store, drift="strict")


@pytest.mark.parametrize("ask", [plan, evaluate])
def test_a_policy_that_is_none_names_those_there_are(ask, store):
    with pytest.raises(ValueError, match="drift='maybe': expected one of 'advise', 'accept', 'use-recorded', 'strict'"):
        ask(experiment(0.1), store=store, drift="maybe")


def test_changed_code_is_told_by_a_unified_diff(store):
    run(score(train("a", 1.0)).named("score", "1"), store=store)
    _, (told,) = run(score_anew(train("a", 1.0)).named("score", "1"), store=store)
    assert told["lines"] == ["score(train): code of test_drift.score, test_drift.score_anew changed"]
    assert '-    return model["rate"] + 1' in told["code"]
    assert '+    return model["rate"] + 2' in told["code"]


def test_a_version_that_moves_is_no_drift_and_keeps_its_history(store):
    for rate in (0.1, 0.2, 0.1):
        _, told = run(experiment(rate, "1dev"), store=store, drift="strict")
        assert told == []
    assert [found.recipe for found in entries(store, Label("model", "1dev"))] == [
        experiment(rate).key for rate in (0.1, 0.2, 0.1)
    ]
    assert evaluate(recall("model@1dev"), store=store, debug=True).value["rate"] == 0.1


def test_a_label_that_somebody_else_recorded_meanwhile_stays_and_that_is_told(store, monkeypatch):
    original = evaluation.Evaluation._run_missing

    def overtaken(self, start):
        original(self, start)
        other = experiment(0.9)
        move(store, other.label, other.key, store.put({"rate": 0.9}), self.id)

    monkeypatch.setattr(evaluation.Evaluation, "_run_missing", overtaken)
    outcome, (told,) = run(experiment(0.1), store=store)
    assert isinstance(outcome, Ok)
    assert told["label"] == "model@1.0"
    (entry,) = entries(store, Label("model", "1.0"))
    assert entry.recipe == experiment(0.9).key


def test_whoever_accepts_is_obeyed_though_somebody_else_moved_the_label(store, monkeypatch):
    run(experiment(0.1), store=store)
    original = evaluation.Evaluation._run_missing

    def overtaken(self, start):
        original(self, start)
        move(store, Label("model", "1.0"), experiment(0.9).key, store.put({"rate": 0.9}), self.id)

    monkeypatch.setattr(evaluation.Evaluation, "_run_missing", overtaken)
    run(experiment(0.2), store=store, drift="accept")
    assert [entry.recipe for entry in entries(store, Label("model", "1.0"))] == [
        experiment(rate).key for rate in (0.1, 0.9, 0.2)
    ]


@pytest.mark.parametrize("policy", ["advise", "accept", "use-recorded"])
def test_what_was_done_about_drift_is_in_a_run_though_nothing_ran(store, policy):
    run(experiment(0.1), store=store)
    run(train(corpus("a"), 0.2), store=store)  # so that all is there already
    before = [found.run for found in runs(store)]
    run(experiment(0.2), store=store, drift=policy, note="a decision")
    latest = next(runs(store))
    assert latest.run not in before
    assert (latest.drift, latest.ran, latest.note, latest.state) == (policy, 0, "a decision", "ok")
    accepted = entries(store, Label("model", "1.0"))[1:]
    assert [entry.run for entry in accepted] == ([latest.run] if policy == "accept" else [])


def test_what_was_done_about_drift_of_code_is_in_a_run_though_nothing_ran(store, monkeypatch):
    root = experiment(0.1)
    run(root, store=store)
    record = store.result(store.call_of(root.key))
    changed = {**record, "operator": {**record["operator"], "code": "sha256:" + "0" * 64}}
    path = place("results", store.call_of(root.key), ".json")
    store.files.replace(path, (write_record(path, changed),))
    store.put_call(root.key, store.call_of(root.key), made_by=bytes(32))
    run(experiment(0.1), store=store, drift="accept")
    latest = next(runs(store))
    assert (latest.drift, latest.ran) == ("accept", 0)


def test_a_label_names_no_run_of_which_nothing_is_recorded(store):
    run(train(corpus("a"), 0.1), store=store)
    run(experiment(0.1), store=store, note="named later")  # nothing runs, and a label is given
    (entry,) = entries(store, Label("model", "1.0"))
    assert next(runs(store)).run == entry.run
    assert next(runs(store)).note == "named later"
    run(experiment(0.1), store=store)
    assert len(list(runs(store))) == 2  # nothing ran, and there was nothing to record
