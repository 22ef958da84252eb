"""What a person sees: plain lines in a file, a live view on a terminal."""

from __future__ import annotations

import io
import re
import time
from typing import Any

import pytest
from rich.console import Console

from marin_dsl import context, evaluate, op, provenance
from marin_dsl.evaluation.progress import Report
from marin_dsl.planning import Plan


@pytest.fixture(autouse=True)
def _quick_environment(monkeypatch):
    monkeypatch.setattr(provenance, "environment", lambda project: {"python": "3"})


@op(version="1")
def work(text: Any) -> Any:
    context().log(f"[bold]{text}[/bold] :heart:\nsecond")
    context().progress(1, 2, loss=0.123456, name="x")
    return text


@op(version="1")
def fail(text: Any) -> Any:
    raise ValueError(f"[red]{text}[/red]\nmore")


def lines(*roots, store="memory://progress", **settings) -> list[str]:
    stream = io.StringIO()
    evaluate(*roots, store=store, debug=True, watch=Report.to(stream), **settings)
    assert "\x1b" not in stream.getvalue()
    return stream.getvalue().splitlines()


def test_each_event_is_a_line_and_markup_of_others_is_text(tmp_path):
    shown = lines(work("[i]:smile:"), work(fail("x")), store=tmp_path)
    assert shown[0] == f"3 to run, 0 served  store {tmp_path}"
    assert "  run work(text='[i]:smile:')  not evaluated before" in shown
    assert "running in this thread" in shown
    assert sum("work(text='[i]:smile:')" in line for line in shown) == 4, "planned, two lines logged, done"
    assert "  │ work(text='[i]:smile:'): [bold][i]:smile:[/bold] :heart:" in shown
    assert "  │ work(text='[i]:smile:'): second" in shown
    assert any(re.fullmatch(r"  ✓ work\(text='\[i\]:smile:'\)  \d+ ms", line) for line in shown)
    assert any(line.startswith("  ✗ fail(text='x')  ValueError: [red]x[/red]") for line in shown)
    assert any(line.startswith("  – work(fail)  skipped: fail(text='x') failed") for line in shown)
    assert re.fullmatch(r"2 nodes run, 0 served, 1 failed, 1 skipped in (\d+ ms|[\d.]+ s)", shown[-1])


def test_a_second_run_says_that_nothing_ran(tmp_path):
    lines(work("a"), fail("x"), store=tmp_path)
    shown = lines(work("a"), fail("x"), store=tmp_path, keep_failures=True)
    assert shown[0].startswith("0 to run, 1 served, 1 failures kept")
    assert any("kept from an earlier run:" in line for line in shown)
    assert shown[-1].startswith("0 nodes run, 1 served, 1 failures kept in ")


def test_many_reasons_are_counted(tmp_path):
    shown = lines(*(work(n) for n in range(30)), store=tmp_path)
    assert "  … and 10 more" in shown


def terminal() -> tuple[Report, io.StringIO]:
    stream = io.StringIO()
    return Report(Console(file=stream, force_terminal=True, width=70, highlight=False)), stream


def planned(report: Report, runs: int, **known: Any) -> None:
    plan = Plan((), tuple((bytes([n]), f"node {n}", False) for n in range(min(runs, 3))), (), (), (), {})
    event = {"event": "planned", "plan": plan, "store": "s", "run": "r", "nodes": runs, "operators": {"f": runs}}
    report(event | known)
    report({"event": "started", "place": "here", "dashboard": "http://x"})


def settled(report: Report, name: str, event: str = "ok", **known: Any) -> None:
    record = {"event": event, "at": time.time(), "call": name, "recipe": name, "title": f"node {name}", "operator": "f"}
    report({**record, "how": "run", "seconds": 10.0, "reason": "no", **known})


def view(report: Report, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(report._view())
    return console.file.getvalue()


def test_a_terminal_shows_what_is_running_with_its_progress_and_is_left_clean():
    report, stream = terminal()
    planned(report, 3)
    began = time.time() - 75.2
    report({"event": "running", "call": "a", "title": "node [0]", "at": began})
    report({"event": "running", "call": "b", "title": "y" * 200, "at": began})
    content = {"done": 1, "total": 4, "facts": {"loss": 0.512345}}
    report({"event": "progress", "call": "a", "title": "node [0]", "content": content})
    text = view(report)
    assert "0 of 3 done, 2 running  " in text
    assert re.search(r"▸  node \[0\] +1 min 15 s  ━+ +1/4  loss 0.5123\n", text)
    assert all(len(line) <= 100 for line in text.splitlines())
    settled(report, "a")
    settled(report, "b", "failed")
    assert "2 of 3 done, 0 running, 1 failed  " in view(report)
    assert "▸" not in view(report)
    report.close()
    report.close()
    assert report._live is None
    assert stream.getvalue().count("\x1b[?25l") == stream.getvalue().count("\x1b[?25h"), "the cursor is shown again"


def test_of_many_running_nodes_some_are_shown_and_the_rest_is_counted():
    report, _ = terminal()
    planned(report, 30)
    for number in range(25):
        report({"event": "running", "call": str(number), "title": f"node {number}", "at": time.time()})
    assert "… and 15 more" in view(report)
    report.close()


def test_news_of_a_start_that_comes_after_the_outcome_is_no_running_node():
    report, _ = terminal()
    planned(report, 1)
    before = time.time() - 1
    settled(report, "a")
    report({"event": "running", "call": "a", "title": "node", "at": before})
    report({"event": "progress", "call": "a", "title": "node", "content": {"done": 1, "total": 4, "facts": {}}})
    assert report.state.running == {}
    report.close()


def test_a_call_that_will_be_tried_again_says_so_and_is_not_running_meanwhile():
    report, stream = terminal()
    planned(report, 1)
    report({"event": "running", "call": "a", "title": "node", "at": 1.0})
    report(
        {
            "event": "retry",
            "call": "a",
            "title": "node",
            "attempt": 2,
            "kind": "raised",
            "reason": "OSError: no",
            "seconds": 2.0,
            "at": 2.0,
        }
    )
    assert report.state.running == {}
    report({"event": "running", "call": "a", "title": "node", "at": 4.0})
    assert list(report.state.running) == ["a"]
    report.close()
    assert "node  OSError: no" in stream.getvalue()
    assert "attempt 2 after 2.0 s" in stream.getvalue()


def test_unknown_events_are_no_trouble():
    report, _ = terminal()
    report({"event": "something new"})
    report({"event": "tick"})
    report({"event": "ok", "title": "something of it is missing"})
    report.close()


def test_the_time_that_is_left_is_told_from_earlier_runs_and_then_from_this_one():
    report, _ = terminal()
    planned(report, 5)
    assert "left" not in view(report), "nothing is known of f"
    report.close()
    report, _ = terminal()
    planned(report, 5, durations={"f": 60.0})
    assert "about 5 min 0 s left" in view(report)
    settled(report, "a")
    assert "about 40 s left" in view(report)
    for name in "bc":
        report({"event": "running", "call": name, "title": name, "at": time.time() - 5})
    assert "about 15 s left" in view(report), "two at once, each half done"
    report.close()


def test_a_large_run_in_a_pipe_is_a_few_lines_and_all_of_its_failures(monkeypatch):
    stream = io.StringIO()
    report = Report.to(stream)
    planned(report, 1000)
    for number in range(900):
        settled(report, str(number), "failed" if number in (5, 500) else "ok")
    shown = stream.getvalue().splitlines()
    assert len(shown) < 220
    assert sum("✗ node" in line for line in shown) == 2
    assert "  … from here on only failures are shown one by one" in shown
    monkeypatch.setattr("marin_dsl.evaluation.progress.SUMMARY_SECONDS", 0.0)
    report({"event": "tick"})
    assert re.match(
        r"  900 of 1,000 done, 0 running, 2 failed  (\d+ ms|[\d.]+ s), about 16 min 40 s left", last(stream)
    )


def last(stream: io.StringIO) -> str:
    return stream.getvalue().splitlines()[-1]


def test_a_call_that_is_tried_again_or_worked_on_elsewhere_is_told_in_a_line():
    stream = io.StringIO()
    report = Report(Console(file=stream, width=100, highlight=False))
    planned(report, 2)
    report(
        {
            "event": "retry",
            "call": "c",
            "title": "fetch(n=1)",
            "attempt": 2,
            "kind": "raised",
            "reason": "ConnectionError: no answer",
            "seconds": 0.5,
        }
    )
    report({"event": "elsewhere", "call": "c", "title": "train(seed=0)", "by": "host, process 12"})
    assert "  ↻ fetch(n=1)  ConnectionError: no answer  attempt 2 after 0.50 s" in stream.getvalue().splitlines()
    assert "  … train(seed=0) is being worked on by host, process 12" in stream.getvalue().splitlines()


@op(version="1")
def steering(text: str) -> str:
    context().log(f"log {text}")
    raise ValueError(f"error {text}")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_what_an_operator_says_steers_no_terminal_and_fits_every_encoding(tmp_path, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    outcome = evaluate(
        steering("\x1b[2J \udcff é"), store=tmp_path, debug=True, watch=Report(Console(file=stream, highlight=False))
    )
    assert outcome.message == "error \x1b[2J \udcff é"
    stream.flush()
    shown = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    accent = "\\xe9" if encoding == "ascii" else "é"
    assert f": log  [2J \\udcff {accent}\n" in shown
    assert f"ValueError: error  [2J   {accent}\n" in shown
    assert "\x1b" not in shown


def test_what_is_skipped_names_what_failed_and_not_what_was_skipped_in_between(tmp_path):
    shown = lines(work(work(work(fail("x")))), store=tmp_path)
    skipped = [line for line in shown if "skipped: " in line]
    assert len(skipped) == 3
    assert {line.partition("skipped: ")[2] for line in skipped} == {"fail(text='x') failed"}
