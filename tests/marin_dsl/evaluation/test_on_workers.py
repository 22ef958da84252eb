"""What the workers of a cluster do with batches of calls."""

from __future__ import annotations

import pytest

from marin_dsl import Failed, evaluate, op
from marin_dsl.evaluation import executors, on_workers
from marin_dsl.evaluation.on_workers import INSIDE, Inside, execute_inside
from marin_dsl.worker.context import Cancelled


@op(version="1")
def f(n: int) -> int:
    return n


@pytest.mark.parametrize("error", [OSError("no room for a scratch folder"), Cancelled("the run was cancelled")])
def test_what_befalls_one_call_of_a_batch_is_no_answer_of_the_others(monkeypatch, error):
    def execute(task, emit):
        if task == "second":
            raise error
        return f"answer of the {task}"

    monkeypatch.setattr(on_workers, "execute", execute)
    monkeypatch.setitem(INSIDE, "batch", Inside(("first", "second", "third"), lambda events: None))  # type: ignore
    execute_inside("batch")
    assert INSIDE["batch"].answers == ["answer of the first", error, "answer of the third"]


@pytest.mark.parametrize("settings", [{"debug": True}, {}])
def test_a_call_that_a_worker_cannot_even_begin_with_is_lost_and_the_rest_goes_on(tmp_path, settings):
    evaluate(f(0), store=tmp_path, debug=True)
    (tmp_path / "scratch").unlink(missing_ok=True)
    (tmp_path / "scratch").write_text("in the way")
    failed, other = evaluate(f(1).with_(isolate=True), f(2), store=tmp_path, **settings)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.exception) == ("lost", "FileExistsError")
    assert str(tmp_path / "scratch") in failed.message
    assert other.value == 2


def test_a_cancellation_of_the_run_from_elsewhere_is_an_outcome_without_a_cluster_too(tmp_path, monkeypatch):
    def execute(task, emit):
        raise Cancelled("the run was cancelled")

    monkeypatch.setattr(executors, "execute", execute)
    failed = evaluate(f(3), store=tmp_path, debug=True)
    assert (failed.kind, failed.message) == ("lost", "the run was cancelled")
