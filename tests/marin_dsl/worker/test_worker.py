"""One call in a worker: what it may do, how it may fail, what is kept of it."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from marin_dsl import Failed, File, Store, attempt, context, encodable, evaluate, op, provenance
from marin_dsl.store import StoreUnavailable
from marin_dsl.worker.context import Cancelled


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


def run(expression, store, **settings):
    roots = expression if isinstance(expression, list) else [expression]
    return evaluate(*roots, store=store, debug=True, **settings)


class Odd(Exception):
    def __init__(self) -> None:
        super().__init__("odd")
        self.payload = lambda: None

    def __str__(self) -> str:
        raise ValueError("no text")


@op(version="1")
def raising(kind: str) -> int:
    context().log("about to fail")
    raise {
        "ValueError": ValueError("a\nmessage"),
        "SystemExit": SystemExit(3),
        "MemoryError": MemoryError(),
        "Odd": Odd(),
        "surrogate": ValueError("broken \udc80 text"),
        "group": ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
        "generator": GeneratorExit(),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "exception", "message"),
    [
        ("ValueError", "ValueError", "a\nmessage"),
        ("SystemExit", "SystemExit", "3"),
        ("MemoryError", "MemoryError", ""),
        ("Odd", f"{Odd.__module__}.Odd", "(its message cannot be shown: ValueError in __str__)"),
        ("surrogate", "ValueError", "broken \udc80 text"),
        ("group", "ExceptionGroup", "several (2 sub-exceptions)"),
        ("generator", "GeneratorExit", ""),
    ],
)
def test_whatever_an_operator_raises_is_its_failure(store, kind, exception, message):
    outcome = run(raising(kind), store)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.exception, outcome.message) == ("raised", exception, message)
    assert outcome.output == ("about to fail",)
    assert "test_worker.py" in outcome.traceback
    assert "signature.py" not in outcome.traceback, "the frames that called the operator are ours"
    assert outcome.attempts == 1
    assert run(raising(kind), store).attempts == 2, "a failure is tried again"
    kept = run(raising(kind), store, keep_failures=True)
    assert kept == outcome
    assert kept.attempts == 2
    assert run(attempt(raising(kind)), store).value == outcome


_turned_back = 0.0


@op(version="1")
def turning_the_clock_back(fails: bool) -> int:
    global _turned_back
    _turned_back += 3600.0
    if fails:
        raise ValueError("in the past")
    return 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_clock_that_is_set_back_meanwhile_makes_no_call_and_no_run_end_before_it_began(store, monkeypatch, fails):
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - _turned_back)
    run(turning_the_clock_back(fails), store)
    call = turning_the_clock_back(fails).key
    provenance = (store.last_failure(call) if fails else store.result(call))["provenance"]
    assert 0 <= provenance["seconds"] < 60
    assert provenance["started"] <= provenance["ended"]
    (name,) = store.files.names("runs")
    assert 0 <= store.last(f"runs/{name}/end")["seconds"] < 60


class Textless(Exception):
    """Its text ends the process, or interrupts it."""

    def __str__(self) -> str:
        raise self.args[0]


class Noted(Exception):
    """Its notes are not what they should be."""

    @property
    def __notes__(self) -> Any:
        raise RuntimeError("no notes")


def noted(notes: Any) -> Exception:
    error = ValueError("noted")
    error.__notes__ = notes
    return error


@op(version="1")
def indescribable(kind: str) -> int:
    raise {
        "exit": lambda: Textless(SystemExit(3)),
        "interrupt": lambda: Textless(KeyboardInterrupt()),
        "property": lambda: Noted("noted"),
        "number": lambda: noted(5),
        "object": lambda: noted(["good", Textless(SystemExit(3))]),
    }[kind]()


@pytest.mark.parametrize("settings", [{}, {"timeout": 60}])
@pytest.mark.parametrize(
    ("kind", "message", "notes"),
    [
        ("exit", "(its message cannot be shown: SystemExit in __str__)", ()),
        ("interrupt", "(its message cannot be shown: KeyboardInterrupt in __str__)", ()),
        ("property", "noted", ()),
        ("number", "noted", ()),
        ("object", "noted", ("good", "(it cannot be shown: SystemExit in __str__)")),
    ],
)
def test_an_exception_that_cannot_be_described_is_a_failure_like_any_other(store, settings, kind, message, notes):
    failed, other = run([indescribable(kind).with_(**settings), inner(1)], store)
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message, failed.notes) == ("raised", message, notes)
    assert "in indescribable" in failed.traceback
    assert other.value == 1


def test_a_cancellation_of_something_else_is_a_failure_of_the_operator(store):
    @op(version="1")
    def elsewhere() -> int:
        raise Cancelled("another run was cancelled")

    failed, other = run([elsewhere(), inner(1)], store)
    assert (failed.kind, failed.message) == ("raised", "another run was cancelled")
    assert other.value == 1


@op(version="1")
def inner(n: int) -> int:
    return n


@op(version="1")
def returning(kind: str) -> Any:
    return {
        "lambda": {"model": [lambda: 1]},
        "generator": (n for n in range(3)),
        "object": {"deep": {"list": [1, object()]}},
        "path": Path("/tmp"),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "lambda",
            "at `['model'][0]`: the function `returning.<locals>.<lambda>` cannot be imported",
        ),
        (
            "generator",
            "the result of returning cannot be stored: a generator can be read only once; pass list(...) of it",
        ),
        ("object", "the result of returning cannot be stored: at `['deep']['list'][1]`: a object has no encoding"),
        ("path", "names a place, not data; pass `File.of(path)`"),
    ],
)
def test_a_result_that_is_no_value_says_which_part(store, kind, text):
    outcome = run(returning(kind), store)
    assert isinstance(outcome, Failed)
    assert outcome.kind == "unstorable"
    assert text in outcome.message


@op(version="1")
def measuring(n: int, note: Any) -> int:
    context().observe("seconds", 1.5 + n)
    context().observe("curve", np.arange(20_000))
    context().observe("note", note)
    for step in range(3):
        context().log(f"step {step}\nsecond line of {step}")
        context().progress(step, 3, loss=np.float32(0.5), rate=0.1, name="x")
    return n


def test_observations_and_log_lines_are_kept_and_are_no_part_of_the_value(store):
    outcome = run(measuring(1, "a"), store)
    record = store.result(store.call_of(measuring(1, "a").key))
    assert record["output"] == [f"{what} {step}" for step in range(3) for what in ("step", "second line of")]
    assert set(record["observations"]) == {"seconds", "curve", "note"}
    assert outcome.digest == run(inner(1), store).digest
    assert record["provenance"]["seconds"] >= 0
    assert record["provenance"]["peak_memory"] > 1 << 20
    assert record["inputs"] == []


def test_an_observation_that_is_no_value_says_so(store):
    @op(version="1")
    def observing() -> int:
        context().observe("model", object())
        return 1

    outcome = run(observing(), store)
    assert outcome.kind == "unstorable"
    assert "the observation `model` of observing cannot be stored: a object has no encoding" in outcome.message


def test_progress_and_log_take_whatever_numbers_and_text_there_are(store):
    @op(version="1")
    def telling() -> int:
        context().progress(np.int64(1), np.float32(2), loss=np.float32(0.5), flag=True, other=Path("x"))
        context().log("broken \udc80")
        context().log(3)
        return 1

    events = []
    assert run(telling(), store, watch=events.append).value == 1
    found = next(event["content"] for event in events if event["event"] == "progress")
    assert found == {"done": 1, "total": 2.0, "facts": {"loss": 0.5, "flag": True, "other": "x"}}
    assert all(type(value) in (int, float, bool, str) for value in (found["done"], *found["facts"].values()))
    assert [event["content"] for event in events if event["event"] == "log"] == ["broken \\udc80", "3"]


@op(version="1")
def scratching(n: int, fails: bool = False) -> tuple:
    folder = context().scratch
    assert list(folder.iterdir()) == []
    assert context().scratch == folder
    (folder / "data.txt").write_text("content" * n)
    if fails:
        raise ValueError(str(folder))
    return File.of(folder / "data.txt"), str(folder)


def test_scratch_is_empty_private_and_gone_afterwards_and_files_of_it_are_kept(store, tmp_path):
    file, place = run(scratching(3), store).value
    assert file.read_text() == "content" * 3
    assert not Path(place).exists()
    failed = run(scratching(4, fails=True), store)
    assert failed.exception == "ValueError"
    assert not Path(failed.message).exists()
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


@op(version="1")
def counting_attempts(until: int) -> int:
    kept = context().kept
    assert kept is context().kept is context().gang.scratch
    attempts = len(list(kept.iterdir())) + 1
    (kept / str(attempts)).touch()
    if attempts < until:
        raise ValueError(f"attempt {attempts}")
    return attempts


@pytest.mark.parametrize("isolate", [False, True])
def test_what_an_attempt_keeps_the_next_one_finds_until_there_is_a_result(store, tmp_path, isolate):
    expression = counting_attempts(3).with_(isolate=isolate)
    assert [run(expression, store).message for _ in range(2)] == ["attempt 1", "attempt 2"]
    assert run(expression.with_(isolate=not isolate), store).value == 3
    assert list((tmp_path / "store" / "scratch").iterdir()) == []


@op(version="1")
def drawing(n: int) -> list:
    return context().rng().random(n).tolist()


def test_random_numbers_come_from_the_call_and_nothing_else(tmp_path):
    first, second = (run(drawing(3), tmp_path / name).value for name in "ab")
    assert first == second
    assert run(drawing(4), tmp_path / "a").value[:3] != first


@op(version="1")
def load(array, text: str, same) -> list:
    return [float(array.sum()), len(text), array is same, bool(array.flags.writeable)]


def test_large_arguments_travel_as_blobs_and_equal_ones_come_as_two(store):
    array = np.ones(50_000)
    assert run(load(array, "x" * 100_000, array), store).value == [50_000.0, 100_000, False, False]
    assert any(path.stat().st_size == 400_000 for path in Path(store.url).rglob("*") if path.is_file())


def test_a_literal_that_changed_after_the_call_is_refused(store):
    array = np.ones(1 << 17)
    made, sibling = load(array, "", 1), inner(5)
    inline = inner(1) + array
    array[0] = 7
    refused, other, third = evaluate(made, sibling, inline, store=store, debug=True)
    assert other.value == 5
    for outcome in (refused, third):
        assert isinstance(outcome, Failed)
        assert "a large value (1048576 bytes) changed after it became part of an expression" in outcome.message
    assert refused.kind == "unstorable"
    assert store.last_failure(store.call_of(made.key))["failure"]["kind"] == "unstorable"


def test_a_file_that_changed_after_the_call_is_refused(store, tmp_path):
    place = tmp_path / "data.txt"
    place.write_text("before")
    file = File.of(place)
    made = reading(file)
    place.write_text("after!")
    assert "changed after it became part of an expression" in run(made, store).message
    place.write_text("before")
    assert run(made, store).value == "before"
    place.unlink()
    (tmp_path / "empty").touch()
    assert run(reading(File.of(tmp_path / "empty")), store).value == ""


@op(version="1")
def reading(file: File) -> str:
    return file.read_text()


def test_an_interrupt_stops_the_run_and_the_trouble_of_the_store_does(store):
    @op(version="1")
    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(interrupted(), store)

    @op(version="1")
    def broken() -> int:
        raise StoreUnavailable("store x: cannot write y: the disk is full", store.url)

    with pytest.raises(StoreUnavailable, match="the disk is full"):
        run([broken(), inner(1)][0], store)


def test_printing_is_no_harm(store, capsys):
    @op(version="1")
    def loud(n: int) -> int:
        print("from the operator")
        print("to stderr", file=sys.stderr)
        return n

    assert run(loud(3), store).value == 3
    assert "from the operator" in capsys.readouterr().out


@encodable
@attrs.frozen
class Strict:
    n: Any = None

    def __attrs_post_init__(self) -> None:
        if isinstance(self.n, int) and self.n > 3:
            raise ValueError("n must be at most 3")


def test_an_argument_whose_class_refuses_the_value_of_an_expression_is_a_failure(store):
    @op(version="1")
    def strict(value: Strict) -> int:
        return value.n

    assert run(strict(Strict(inner(3))), store).value == 3
    outcome = run(strict(Strict(inner(4))), store)
    assert outcome.kind == "lost"
    assert "n must be at most 3" in outcome.message


def test_context_outside_of_an_evaluation_is_a_stand_in():
    current = context()
    current.log("x")
    current.progress(1, 2, loss=0.5)
    current.observe("a", 1)
    current.check()
    assert current.scratch.is_dir()
    assert re.fullmatch(r"[0-9.]+", str(current.rng().random()))
    current.close()
    assert not current.scratch.exists()


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


def test_what_a_person_calls_a_node_is_no_part_of_any_value(store, tmp_path):
    plain, titled = raising("ValueError"), raising("ValueError").with_(title="my arm")
    assert run(titled, store).operator == "my arm"
    below = [attempt(inner(found)) for found in (plain, titled)]
    values = [run(made, tmp_path / str(index)).digest for index, made in enumerate(below)]
    assert values[0] == values[1]
