"""Stores that earlier versions wrote stay readable (L24): `old_stores/` holds them as they were written.

`first` (December 2026): results and failures know no history and no inputs, calls say not whether they are volatile,
labels name no value. Since then its class `experiment.Summary` has moved and got another name.
"""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from old_experiment import Conclusion, experiment

from marin_dsl import evaluate, plan, recall
from marin_dsl.command_line import main
from marin_dsl.store import Store
from marin_dsl.store.collection import collect
from marin_dsl.store.verify import verify

EXPECTED = {"summary": Conclusion(9999.5009765625, ("a", "ü")), "kind": "Failed"}
OLD = sorted((Path(__file__).parent / "old_stores").iterdir())


@pytest.fixture(params=OLD, ids=lambda place: place.name)
def old(request, tmp_path):
    shutil.copytree(request.param, tmp_path / "store")
    return Store(tmp_path / "store")


def marin(*words):
    result = CliRunner().invoke(main, [*words], prog_name="marin", catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_its_values_are_served_and_only_what_failed_is_tried_again(old):
    assert (
        plan(experiment, store=old).counts == "2 to run, 1 served"
    )  # the root is spared if the failure is the same again
    events = []
    outcome = evaluate(experiment, store=old, debug=True, watch=events.append)
    assert outcome.value == EXPECTED
    assert [event["ran"] for event in events if event["event"] == "finished"] == [1]
    assert not any(event["event"].endswith("drift") for event in events)


def test_its_failures_are_served_when_they_are_to_be_kept(old):
    events = []
    assert evaluate(experiment, store=old, debug=True, keep_failures=True, watch=events.append).value == EXPECTED
    assert [event["ran"] for event in events if event["event"] == "finished"] == [0]


def test_its_labels_are_recalled(old):
    assert evaluate(recall("fixture@1.0"), store=old, debug=True).value == EXPECTED


def test_every_question_about_it_is_answered(old):
    store = ("--store", old.url)
    assert "'kind': 'Failed'" in marin("show", "fixture@1.0", *store)
    assert "summarize" in marin("lineage", "fixture@1.0", *store)
    assert "no 3" in marin("failures", *store)
    assert "fixture@1.0" in marin("label", "list", *store)
    assert "marin run experiment:experiment" in marin("log", *store)
    assert json.loads(marin("diff", "fixture@1.0", "fixture@1.0", "--json", *store))
    marin("export", "fixture@1.0", f"{old.url}-exported", *store)
    assert "fixture@1.0" in marin("import", f"{old.url}-exported", "--store", f"{old.url}-imported")


def test_nothing_in_it_is_damaged_or_swept(old):
    assert verify(old).findings == ()
    assert [entry.path for entry in collect(old, grace=0).swept] == []
