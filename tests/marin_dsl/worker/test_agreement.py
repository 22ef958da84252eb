"""Code that is not the same in all processes: edited while a run is under way, or set while running."""

import importlib
import itertools
import linecache
import pickle
import sys

import pytest

from marin_dsl import Failed, Store, evaluate, provenance
from marin_dsl.encoding import format_digest
from marin_dsl.worker import execute
from marin_dsl.worker.agreement import differs
from marin_dsl.worker.task import Task, packed

_numbers = itertools.count()
_TEXT = """
from marin_dsl import op

SCALE = 1
CACHE = {}

@op(isolate=True)
def apart(n: int) -> int:
    return n * SCALE

@op(isolate=True, version="1")
def declared(n: int) -> int:
    return n * SCALE

@op(isolate=True, excludes=[__name__ + ".SCALE"])
def without(n: int) -> int:
    return n * SCALE

@op
def inside(n: int) -> int:
    return n * SCALE

@op
def remembering(n: int) -> int:
    CACHE[n] = n
    return len(CACHE)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A module, and its file."""
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})
    name = f"agreed_{next(_numbers)}"
    file = tmp_path / f"{name}.py"
    file.write_text(_TEXT)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(name), file
    sys.modules.pop(name, None)


def run(expression, tmp_path):
    return evaluate(expression, store=tmp_path / "store", debug=True)


def test_a_file_that_is_edited_while_a_run_is_under_way_gives_no_result_under_the_old_code(project, tmp_path):
    module, file = project
    wanted = module.apart(7)
    file.write_text(_TEXT.replace("SCALE = 1", "SCALE = 1000"))
    outcome = run(wanted, tmp_path)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.exception, outcome.attempts) == ("lost", "marin_dsl.worker.agreement.OtherCode", 1)
    assert outcome.message == (
        f"the code of {module.__name__}.apart that a process of its own has loaded is not that which this run began "
        "with: a file was edited since, or something that the code reads was set in a module while running, which no "
        "other process sees. Run it again if a file was edited; else make what is set an argument, or say "
        "@op(excludes=['package.module.NAME']) if it makes no difference"
    )
    file.write_text(_TEXT)
    assert run(wanted, tmp_path).value == 7


def test_an_edit_without_a_meaning_while_a_run_is_under_way_stops_nothing(project, tmp_path):
    module, file = project
    wanted = module.apart(7)
    file.write_text("# moved down\n\n" + _TEXT.replace("def inside(n: int)", "def inside(m: int)"))
    assert run(wanted, tmp_path).value == 7


def test_what_is_set_while_running_is_not_lost_in_silence(project, tmp_path):
    module, _ = project
    module.SCALE = 3
    assert isinstance(run(module.apart(7), tmp_path), Failed)
    assert run(module.inside(7), tmp_path).value == 21
    assert run(module.declared(7), tmp_path).value == 7, "whose version is its identity is not asked"
    assert run(module.without(7), tmp_path).value == 7


def test_a_worker_that_has_other_code_lets_a_fresh_process_decide(project, tmp_path):
    """A cluster's worker, here this process: it loaded the module before an edit, or ran what fills a cache."""
    module, _ = project
    call, code = module.remembering(1), format_digest(module.remembering.code.digest)
    task = Task(
        Store(tmp_path / "store"), call.operator, call.payload, (), call.key, "remembering", "run", "", code, False
    )
    sent = packed(task)
    del sys.modules[module.__name__]
    there = importlib.import_module(module.__name__)
    there.CACHE["earlier"] = 1
    arrived = pickle.loads(sent)
    assert arrived.operator is there.remembering
    assert differs(arrived)
    assert not differs(task)
    answer = execute(arrived, lambda event: None)
    assert answer.failed is None
    assert task.store.get(answer.stored) == 1


def test_an_operator_of_a_notebook_came_with_the_task_and_runs_in_a_process_of_its_own(tmp_path, monkeypatch):
    """Its source is known in this process only, so that its code has another digest elsewhere."""
    text = "from marin_dsl import op\n\n@op(isolate=True)\ndef cell(n: int) -> int:\n    return n + 1\n"
    monkeypatch.setitem(linecache.cache, "<cell 1>", (len(text), None, text.splitlines(True), "<cell 1>"))
    names = {"__name__": "notebook_of_nobody"}
    exec(compile(text, "<cell 1>", "exec"), names)
    assert run(names["cell"](1), tmp_path).value == 2
