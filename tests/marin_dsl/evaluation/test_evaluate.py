"""Evaluation as a user meets it: what runs, what is served, why, and what is left after trouble."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import attrs
import numpy as np
import pytest

from marin_dsl import (
    Failed,
    Ok,
    Skipped,
    Store,
    attempt,
    encodable,
    evaluate,
    grid,
    op,
    plan,
    provenance,
)
from marin_dsl.evaluation import Interrupted
from marin_dsl.labels import LabelConflict
from marin_dsl.store import StoreUnavailable
from marin_dsl.worker import worker
from tests.marin_dsl.runs import Watcher


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def run(*roots, store, **settings):
    watcher = Watcher()
    return evaluate(*roots, store=store, debug=True, watch=watcher, **settings), watcher


@op(version="1")
def corpus(name: str) -> str:
    return name * 2


@op(version="1")
def train(text: str, *, lr: float, seed: int = 0) -> dict:
    if lr > 1:
        raise ValueError(f"diverged at lr {lr}")
    return {"loss": lr + seed, "weights": np.full(20_000, lr), "name": text, "history": [lr, [seed]]}


@op(version="1")
def table(runs: list) -> list:
    return [run if isinstance(run, float | int) else type(run).__name__ for run in runs]


@op(version="1")
def double(array: np.ndarray) -> np.ndarray:
    return array * 2


def test_one_root_gives_an_outcome_and_several_or_a_grid_give_a_tuple(store):
    assert run(corpus("a"), store=store)[0].value == "aa"
    outcomes, _ = run(corpus("a"), corpus("b"), store=store)
    assert [outcome.value for outcome in outcomes] == ["aa", "bb"]
    runs = grid(lr=[0.1, 5.0], seed=[0, 1])(lambda lr, seed: train(corpus("a"), lr=lr, seed=seed))
    outcomes, watcher = run(runs, store=store)
    assert [type(outcome) for outcome in outcomes] == [Ok, Ok, Failed, Failed]
    assert watcher.ran == 4
    assert run(store=store)[0] == ()


def test_a_root_that_is_no_expression_is_refused(store):
    with pytest.raises(TypeError, match=r"3 is no expression; call an operator \(@op\) to build one"):
        evaluate(3, store=store)


# Projections and arithmetic


def test_projections_of_large_values_read_no_leaf(store):
    made = train("x", lr=0.5)
    run(made, store=store)
    for path in Path(store.url).rglob("*"):
        if path.is_file() and path.stat().st_size == 160_000:
            path.write_bytes(b"\0" * 160_000)  # whoever reads it will notice
    found, _ = run(made["loss"], made["history"][1][0], made["name"], store=store)
    assert [outcome.value for outcome in found] == [0.5, 0, "x"]


def test_a_chain_of_projections_passes_a_large_array_on(store):
    made = attempt(train("x", lr=0.5)).field("value")["weights"]
    found, watcher = run(double(made), double(double(made)[:10]), store=store)
    assert found[0].value.tolist() == [1.0] * 20_000
    assert found[1].value.tolist() == [2.0] * 10
    assert watcher.ran == 3


def test_a_key_that_is_not_there_is_a_failure_of_that_node_only(store):
    made = train("x", lr=0.5)
    missing = made["lost"]
    found, _ = run(missing, table([missing]), attempt(missing), made["loss"], store=store)
    assert (found[0].kind, found[0].exception, found[0].message) == ("raised", "KeyError", "'lost'")
    assert "train" in found[0].operator
    assert found[1].summary == "train['lost'] failed (KeyError: 'lost')"
    assert found[2].value == found[0]
    assert found[3].value == 0.5


def test_arithmetic_works_on_large_arrays_and_on_what_comes_out_of_it(store):
    weights = train("x", lr=0.5)["weights"]
    literal = np.arange(20_000.0)
    made = (0.25 * weights + weights * literal) - literal / 2
    assert run(made, store=store)[0].value.tolist() == [0.125] * 20_000
    below = double(attempt(made).field("value"))
    assert run(below, store=store)[0].value.tolist() == [0.25] * 20_000
    assert run((made + made)[3], store=store)[0].value == 0.25
    assert run(-abs(made[0]), store=store)[0].value == -0.125
    assert run(made[0] < 1, store=store)[0].value in (True, np.True_)


@op(version="1")
def pages(n: int) -> dict:
    return {"text": "x" * 100_000, "data": np.arange(30_000), "n": n, "pair": ("y" * 70_000, b"z" * 70_000)}


@encodable
@attrs.frozen
class Loud:
    text: str = attrs.field(converter=str)

    @property
    def first(self) -> str:
        return self.text[:1]


@op(version="1")
def loud() -> Loud:
    return Loud("q" * 100_000)


def test_comparisons_and_fields_look_at_content_and_not_at_handles(store):
    one, two = pages(1), pages(2)
    questions = [
        one["text"].eq(two["text"]),
        one["pair"].eq(two["pair"]),
        one["data"].field("shape"),
        one["data"].field("size"),
        one["data"][2:4],
        one["pair"][1][0],
        loud().field("first"),
        loud().field("text"),
    ]
    found, _ = run(*questions, store=store)
    assert [np.asarray(outcome.value).tolist() for outcome in found] == [
        True, True, [30_000], 30_000, [2, 3], ord("z"), "q", "q" * 100_000,
    ]  # fmt: skip


# Served, and why not


def test_a_second_evaluation_runs_nothing_and_starts_no_dask(tmp_path):
    (tmp_path / "experiment.py").write_text(
        "from marin_dsl import op\n@op\ndef f(n: int) -> int:\n    return n + 1\nx = f(f(f(1)))\n"
    )
    code = (
        "import sys, experiment, marin_dsl; seen = []\n"
        "out = marin_dsl.evaluate(experiment.x, store='store', watch=seen.append)\n"
        "print(out.value, seen[-1]['ran'], 'distributed' in sys.modules, 'dask' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": f"{Path('src').absolute()}:."}
    lines = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert lines == [["4", "3", "True", "True"], ["4", "0", "False", "False"]]


def test_changing_a_leaf_runs_its_ancestors_and_says_why(store):
    def experiment(lr):
        arms = [train(corpus("a"), lr=rate)["loss"] for rate in (lr, 0.3)]
        return table(arms).named("arms", "1.0dev")

    run(experiment(0.1), store=store)
    assert str(plan(experiment(0.2), store=store)).splitlines() == [
        "2 to run, 2 served",
        "  run train(lr=0.2, seed=0)  (lr 0.1 → 0.2)",
        "  run table  (input runs[0] changed: train['loss']; spared if its inputs come out equal)",
    ]
    _, watcher = run(experiment(0.2), store=store)
    assert watcher.titles("running")[0] == "train(lr=0.2, seed=0)"
    assert watcher.ran == 2
    reasons = store.last(f"runs/{watcher.of('planned')[0]['run']}/start")["reasons"]
    assert "lr 0.1 → 0.2" in reasons.values()


def test_reasons_tell_a_failure_from_a_lost_result(store, tmp_path):
    made = train("x", lr=5.0)
    run(made, corpus("a"), store=store)
    assert "(tried again: it failed with ValueError)" in str(plan(made, store=store))
    for path in Path(store.url, "results").rglob("*.json"):
        path.unlink()
    assert "it has no result: an earlier run was interrupted, or the result was deleted" in str(
        plan(corpus("a"), store=store)
    )
    assert "not evaluated before" in str(plan(corpus("b"), store=store))
    assert str(plan(made, store=store, keep_failures=True)) == "0 to run, 0 served, 1 failures kept"


def test_planning_writes_nothing_not_even_a_folder(tmp_path):
    plan(corpus("a"), store=tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


# Labels


def experiment(lr: float, name: str = "1.0"):
    return train(corpus("a"), lr=lr).named("first-model", name)


def test_a_changed_recipe_under_a_label_is_reported_and_the_label_stays_until_accepted(store):
    _, watcher = run(experiment(0.1), store=store)
    assert watcher.of("drift") == []
    outcome, watcher = run(experiment(0.2), store=store)
    assert outcome.value["loss"] == 0.2
    assert watcher.of("drift")[0]["label"] == "first-model@1.0"
    assert watcher.of("drift")[0]["lines"] == ["train(lr=0.2, seed=0): lr 0.1 → 0.2"]
    _, watcher = run(experiment(0.2), store=store)
    assert watcher.of("drift"), "it is said each time until somebody decides"
    assert watcher.ran == 0
    _, watcher = run(experiment(0.2), store=store, drift="accept")
    assert watcher.of("drift") == []
    _, watcher = run(experiment(0.2), store=store)
    assert watcher.of("drift") == []
    _, watcher = run(experiment(0.1), store=store)
    assert watcher.of("drift")[0]["lines"] == ["train(lr=0.1, seed=0): lr 0.2 → 0.1"]


def test_a_version_that_ends_in_dev_moves_by_itself(store):
    run(experiment(0.1, "1.0dev"), store=store)
    _, watcher = run(experiment(0.2, "1.0dev"), store=store)
    assert watcher.of("drift") == []


def test_a_failed_root_moves_no_label(store):
    run(experiment(0.1), store=store)
    run(experiment(5.0), store=store, drift="accept")
    _, watcher = run(experiment(0.2), store=store)
    assert watcher.of("drift")[0]["lines"] == ["train(lr=0.2, seed=0): lr 0.1 → 0.2"]


def test_a_drift_of_many_leaves_prints_twenty_lines(store):
    run(table([corpus(str(n)) for n in range(50)]).named("many", "1"), store=store)
    _, watcher = run(table([corpus(str(n)) for n in range(50, 100)]).named("many", "1"), store=store)
    assert len(watcher.of("drift")[0]["lines"]) == 21
    assert watcher.of("drift")[0]["lines"][-1] == "… and 30 more"


def test_a_drift_of_an_inline_root_is_told(store):
    run(train("a", lr=0.1), train("a", lr=0.2), store=store)
    run(train("a", lr=0.1)["loss"].named("loss", "1"), store=store)
    _, watcher = run(train("a", lr=0.2)["loss"].named("loss", "1"), store=store)
    assert watcher.of("drift")[0]["lines"] == ["train(text='a', lr=0.2, seed=0): lr 0.1 → 0.2"]


@pytest.mark.parametrize(
    "roots",
    [
        lambda: (experiment(0.1), experiment(0.2)),
        lambda: (table([experiment(0.1)["loss"], experiment(0.2)["loss"]]),),
        lambda: (table([train(corpus("a"), lr=0.1), experiment(0.1)]), experiment(0.2)),
    ],
)
def test_one_label_for_two_recipes_is_refused_with_both_places(roots, store):
    with pytest.raises(LabelConflict, match=r"first-model@1.0 names two different recipes in one run: ") as caught:
        run(*roots(), store=store)
    assert len(re.findall(rf"{re.escape(__file__)}:\d+", str(caught.value))) == 2
    assert not Path(store.url).exists()


# Trouble


def test_failures_are_kept_on_request(store):
    run(train("x", lr=5.0), store=store)
    outcome, watcher = run(train("x", lr=5.0), store=store, keep_failures=True)
    assert outcome.message == "diverged at lr 5.0"
    assert watcher.ran == 0
    assert watcher.of("failed")[0]["how"] == "kept"
    outcome, watcher = run(table([train("x", lr=5.0)]), store=store, keep_failures=True)
    assert isinstance(outcome, Skipped)
    assert "diverged at lr 5.0" in outcome.summary


def test_a_store_that_breaks_in_the_middle_stops_the_run_and_nothing_is_half_written(store):
    @op(version="1")
    def breaking(n: int) -> int:
        raise StoreUnavailable("store x: cannot write y: the disk is full", store.url)

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        run(table([breaking(1), corpus("a")]), store=store)
    assert run(corpus("a"), store=store)[0].value == "aa"


def test_a_store_in_which_nothing_can_be_written_is_one_message_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="a part of the path is a file"):
        run(corpus("a"), store=Store(tmp_path / "file" / "store"))


def test_the_event_log_and_the_end_of_a_run_are_recorded(store):
    _, watcher = run(table([train("x", lr=5.0), corpus("a")]), corpus("b"), store=store)
    identity = watcher.of("planned")[0]["run"]
    end = store.last(f"runs/{identity}/end")
    assert end["counts"] == {"served": 0, "run": 3, "kept": 0, "skipped": 1, "open": 0}
    assert sorted(end["outcomes"].values()) == ["Ok", "Skipped"]
    events = [json.loads(line) for line in store.files.read(f"runs/{identity}/events.jsonl").decode().splitlines()]
    assert [event["event"] for event in events if event["event"] in ("ok", "failed", "skipped")] == [
        event["event"] for event in watcher if event["event"] in ("ok", "failed", "skipped")
    ]


MARIN = "from marin_dsl.command_line import main; main(prog_name='marin')"
SLOW = """
    import sys, time
    from pathlib import Path
    from marin_dsl import context, op

    @op(version="1")
    def quick(n: int) -> int:
        with Path("ran.txt").open("a") as log:
            log.write(f"quick {n}\\n")
        return n

    @op(version="1")
    def slow(parts: list) -> int:
        Path("started.txt").touch()
        while not Path("go.txt").exists():
            context().check()
            time.sleep(0.05)
        return sum(parts)

    @op(version="1")
    def stuck(parts: list) -> int:
        Path("started.txt").touch()
        while not Path("go.txt").exists():
            time.sleep(0.1)  # never asks whether it was cancelled
        return sum(parts)

    careful = slow([quick(n) for n in range(3)])
    careless = stuck([quick(n) for n in range(3)])
"""


def ended(process):
    """What a process printed until it ended of its own accord; one that does not is killed with all that it began."""
    try:
        return process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"it did not end: {process.communicate()}")


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("careless", []),
        pytest.param("careful", [], marks=pytest.mark.long),
        pytest.param("careless", ["--workers", "2"], marks=pytest.mark.long),
    ],
)
def test_an_interrupt_ends_what_would_last_for_ever_and_the_next_run_goes_on_from_there(tmp_path, target, options):
    (tmp_path / "slow.py").write_text(textwrap.dedent(SLOW))
    command = [sys.executable, "-c", MARIN, "run", f"slow:{target}", "--store", "store", *options]
    environment = os.environ | {"PYTHONPATH": f"{Path('src').absolute()}:."}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "started.txt").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    output, _ = ended(process)  # no operator was told to go on
    assert process.returncode == 130, output
    assert "interrupted: what is finished stays" in output
    assert "Traceback" not in output
    (tmp_path / "go.txt").touch()
    again = subprocess.run(
        [*command, "--debug"] if not options else command, cwd=tmp_path, env=environment, capture_output=True,
        text=True, check=False, timeout=60,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
    assert sorted((tmp_path / "ran.txt").read_text().split("\n")) == ["", "quick 0", "quick 1", "quick 2"]


@pytest.mark.long
def test_trouble_of_the_store_ends_a_run_though_a_thread_is_stuck_for_ever(tmp_path):
    (tmp_path / "slow.py").write_text(
        textwrap.dedent(SLOW)
        + "from marin_dsl.store import StoreUnavailable\n@op(version='1')\ndef full() -> int:\n"
        + "    time.sleep(0.5)\n    url = str(Path('store').absolute())\n"
        + "    raise StoreUnavailable('store s: cannot write x: the disk is full', url)\n"
        + "both = slow([stuck([1]), full()])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", MARIN, "run", "slow:both", "--store", "store"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": f"{Path('src').absolute()}:."},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    _, error = ended(process)
    assert process.returncode == 3
    assert error == "marin: store s: cannot write x: the disk is full\n"


def test_what_failed_under_a_committed_root_is_tried_again_unless_failures_are_kept(tmp_path):
    mended = tmp_path / "mended"

    @op(version="1", name="needs.a.file")
    def read(place: str) -> int:
        return len(Path(place).read_text())

    @op(version="1", name="counts.what.there.is")
    def count(found: list) -> int:
        return sum(outcome.ok for outcome in found)

    root = count([attempt(read(str(mended))), attempt(read(__file__))]).named("count", "1.0")
    store = tmp_path / "store"
    outcome, first = run(root, store=store)
    assert (outcome.value, first.ran) == (1, 3)
    kept = run(root, store=store, keep_failures=True)[1]
    assert kept.ran == 0
    again = run(root, store=store)[1]
    assert again.ran == 1
    planned = again.of("planned")[0]["plan"]
    assert "tried again: it failed with FileNotFoundError" in planned.reasons.values()
    mended.write_text("now it is there")
    outcome, healed = run(root, store=store)
    assert (outcome.value, healed.ran) == (2, 2)
    assert run(root, store=store)[1].ran == 0


def test_results_that_took_a_while_are_on_the_disk_before_they_are_told(store, monkeypatch):
    synced, commit = [], Store.commit
    monkeypatch.setattr(
        Store, "commit", lambda *given, lasting, **named: synced.append(lasting) or commit(*given, **named)
    )
    run(corpus("a"), store=store)
    monkeypatch.setattr(worker, "LASTING", 0.0)
    run(corpus("b"), store=store)
    assert synced == [False, True]


def test_an_interrupt_while_the_workers_start_is_told_and_recorded(tmp_path, monkeypatch):
    def interrupted(*given, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["marin_dsl.evaluation.evaluate"], "Cluster", interrupted)
    seen = []
    with pytest.raises(Interrupted):
        evaluate(double(np.arange(3)), store=tmp_path, watch=lambda event: seen.append(event["event"]))
    assert seen == ["planned", "interrupted"]
    store = Store(tmp_path)
    (run,) = store.files.names("runs")
    assert store.files.size(f"runs/{run}/cancelled") == 0
    assert store.recipe(double(np.arange(3)).key) is not None, "what was to be done is recorded"


@op(version="1")
def stumbling(path: str) -> str:
    if not Path(path).exists():
        Path(path).touch()
        raise ValueError("not yet")
    return "done"


@op(version="1")
def going_on(path: str, after: str = ""):
    return [attempt(stumbling(path))]


@op(version="1")
def named(path: str) -> str:
    return path


@pytest.mark.parametrize("with_input", [False, True])
@pytest.mark.parametrize("settings", [{"debug": True}, {}])
def test_what_failed_under_what_an_operator_went_on_with_is_tried_again(store, tmp_path, with_input, settings):
    path = str(tmp_path / "there")
    wanted = going_on(named(path) if with_input else path)
    dependent = table([wanted[0]])
    first = evaluate(wanted, dependent, store=store, **settings)
    assert first[0].value[0].message == "not yet"
    assert evaluate(wanted, store=store, keep_failures=True, **settings).value[0].message == "not yet"
    assert "it has no result" not in str(plan(wanted, store=store))
    second = evaluate(wanted, dependent, store=store, **settings)
    assert second[0].value[0].value == "done"
    assert (first[1].value, second[1].value) == (["Failed"], ["Ok"])
    assert store.files.names("conflicts") == []
    assert str(plan(wanted, dependent, store=store)).startswith("0 to run"), "what is mended stays"
