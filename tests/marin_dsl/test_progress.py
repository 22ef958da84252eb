"""What a person sees: plain lines in a file, a live view on a terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from marin_dsl import context, evaluate, op, provenance
from marin_dsl.plan import Plan
from marin_dsl.progress import Report, duration


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
    assert "  … work(text='[i]:smile:')" in shown
    assert "  │ work(text='[i]:smile:'): [bold][i]:smile:[/bold] :heart:" in shown
    assert any(re.fullmatch(r"  ✓ work\(text='\[i\]:smile:'\)  \d+ ms", line) for line in shown)
    assert any(line.startswith("  ✗ fail(text='x')  ValueError: [red]x[/red]") for line in shown)
    assert any(line.startswith("  – work(fail)  skipped: fail(text='x') failed") for line in shown)
    assert re.fullmatch(r"2 nodes run, 0 served, 1 failed, 1 skipped in \d+ ms", shown[-1])


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


def planned(report: Report, runs: int) -> None:
    plan = Plan((), tuple((bytes([n]), f"node {n}", False) for n in range(runs)), (), (), (), {})
    report({"event": "planned", "plan": plan, "store": "s", "run": "r"})
    report({"event": "started", "place": "here", "dashboard": "http://x"})


def test_a_terminal_shows_what_is_running_with_its_progress_and_is_left_clean():
    report, stream = terminal()
    planned(report, 3)
    report({"event": "running", "call": "a", "title": "node [0]"})
    report({"event": "running", "call": "b", "title": "y" * 200})
    report(
        {
            "event": "progress",
            "call": "a",
            "title": "node [0]",
            "content": {"done": 1, "total": 4, "facts": {"loss": 0.5}},
        }
    )
    view = Console(width=200, file=io.StringIO())
    view.print(report._view())
    text = view.file.getvalue()
    assert "0 done, 2 running, 1 waiting" in text
    assert "node [0]" in text
    assert "1/4  loss 0.5" in text
    report({"event": "ok", "call": "a", "title": "node [0]", "how": "run", "seconds": 1.5})
    report({"event": "failed", "call": "b", "title": "node 1", "how": "run", "reason": "no"})
    assert report._running == {}
    report.close()
    report.close()
    assert report._live is None
    assert stream.getvalue().count("\x1b[?25l") == stream.getvalue().count("\x1b[?25h"), "the cursor is shown again"


def test_news_of_a_start_that_comes_after_the_outcome_is_no_running_node():
    report, _ = terminal()
    planned(report, 1)
    report({"event": "ok", "call": "a", "title": "node", "how": "run", "seconds": None})
    report({"event": "running", "call": "a", "title": "node"})
    report({"event": "progress", "call": "a", "title": "node", "content": {"done": 1, "total": 4, "facts": {}}})
    assert report._running == {}
    report.close()


def test_unknown_events_are_no_trouble():
    report, _ = terminal()
    report({"event": "something new"})
    report({"event": "tick"})
    report.close()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.0123, "12 ms"), (0.9996, "1.0 s"), (1, "1.0 s"), (59.94, "59.9 s"), (59.96, "1 min 0 s"),
     (75, "1 min 15 s"), (119.9, "2 min 0 s"), (3700, "1 h 1 min"), (90061, "25 h 1 min")],
)  # fmt: skip
def test_durations_are_for_people(seconds, text):
    assert duration(seconds) == text
