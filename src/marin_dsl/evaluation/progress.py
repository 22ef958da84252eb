"""What a person sees while an evaluation runs: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from marin_dsl.evaluation.estimate import remaining
from marin_dsl.evaluation.events import (
    CodeDrifted,
    Conflicted,
    Drifted,
    Elsewhere,
    Event,
    Finished,
    Interrupted,
    Logged,
    Retried,
    Same,
    Settled,
    Started,
    event_of,
)
from marin_dsl.evaluation.state import Active, State
from marin_dsl.expression.display import printable
from marin_dsl.planning import Plan
from marin_dsl.quantities import duration, short_digest

SHOWN_REASONS = 20
"""Reasons that are printed one by one before the rest is counted."""

SHOWN_NODES = 200
"""Nodes that get a line each; of a larger run only failures do after that, and the others are counted."""

SHOWN_RUNNING = 10
SUMMARY_SECONDS = 30.0


class Report:
    """Watches an evaluation and writes what happens to a console.

    On a terminal the running nodes are shown live with their elapsed time and progress, below the lines that were
    printed; anything an operator prints appears above the view and does not tear it. Elsewhere there is one line for
    each node that gets its outcome, and when there is none for a while, a line that says how far the run is.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.state = State()
        self._live: Live | None = None
        self._began = self._said = time.monotonic()

    @classmethod
    def to(cls, stream: TextIO) -> Report:
        """A report that writes to a stream."""
        return cls(Console(file=stream, highlight=False))

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take an event of an evaluation."""
        found = event_of(event)
        if found is not None:
            self.state = self.state.after(found)
            if "plan" in event:
                self._tell_plan(event["plan"], event["store"])
            self._tell(found)
        silent = time.monotonic() - self._said >= SUMMARY_SECONDS
        if silent and self._live is None and self.state.started is not None and self.state.ending is None:
            self._say(f"  [dim]{escape(self._head)}[/]")

    def close(self) -> None:
        """Take the live view off the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def _crowded(self) -> bool:
        return len(self.state.settled) > SHOWN_NODES

    def _tell_plan(self, plan: Plan, store: str) -> None:
        self._say(f"[bold]{plan.counts}[/]  [dim]store {escape(store)}[/]")
        for key, name, _ in plan.runs[:SHOWN_REASONS]:
            self._say(f"  [cyan]run[/] {escape(name)}  [dim]{escape(plan.reasons.get(key, ''))}[/]")
        if len(plan.runs) > SHOWN_REASONS:
            self._say(f"  [dim]… and {len(plan.runs) - SHOWN_REASONS:,} more[/]")

    def _tell(self, event: Event) -> None:
        match event:
            case Started():
                self._tell_start(event)
            case Logged():
                for line in event.content.splitlines():
                    self._say(f"  [dim]│ {escape(event.title)}:[/] {escape(line)}")
            case Retried():
                after = f"attempt {event.attempt} after {duration(event.seconds)}"
                self._say(f"  [yellow]↻[/] {escape(event.title)}  {escape(event.reason)}  [dim]{after}[/]")
            case Settled() if event.event == "failed" or not self._crowded:
                self._say(_settled_line(event))
            case Settled() if len(self.state.settled) == SHOWN_NODES + 1:
                self._say("  [dim]… from here on only failures are shown one by one[/]")
            case Elsewhere():
                self._say(f"  [dim]… {escape(event.title)} is being worked on by {escape(event.by)}[/]")
            case Conflicted():
                kept = f"kept is {short_digest(event.kept)}" if event.kept else "another value is kept"
                self._say(f"  [red]≠ {escape(event.title)}[/]  came to {escape(event.found)}; {kept} (marin doctor)")
            case Drifted():
                self._tell_drift(event)
            case CodeDrifted():
                self._say(f"[yellow]{escape(event.headline)}; served: {escape(event.title)}[/]")
                self._tell_code(event.code)
            case Same():
                why = f"{event.by}, {event.since}: {event.why}"
                self._say(f"  [green]≡[/] {escape(event.title)} stands for {escape(event.old)}  [dim]{escape(why)}[/]")
            case Interrupted():
                self.close()
                self._say("[yellow]interrupted: what is finished stays, and the next run goes on from there[/]")
            case Finished():
                self.close()
                self._say(f"[bold]{self._summary(event)}[/] in {duration(time.monotonic() - self._began)}")

    def _tell_start(self, event: Started) -> None:
        dashboard = f", dashboard {event.dashboard}" if event.dashboard else ""
        self._say(f"[dim]running {event.place}{dashboard}[/]")
        if self.console.is_terminal:
            self._live = Live(get_renderable=self._view, console=self.console, refresh_per_second=4, transient=True)
            self._live.start()

    def _tell_drift(self, event: Drifted) -> None:
        headline = event.headline or f"{event.label} was recorded for another recipe ({event.since})"
        does = "and stays; --accept moves it, --use-recorded serves what it stands for:"
        if event.policy == "use-recorded":
            does = "and what it stands for is served:"
        self._say(f"[yellow]{escape(headline)} {does}[/]")
        for line in event.lines:
            self._say(f"  [yellow]≠[/] {escape(line)}")
        self._tell_code(event.code)

    def _tell_code(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._say(f"    [dim]{escape(line)}[/]")

    def _summary(self, event: Finished) -> str:
        found = self.state.counts
        parts = [f"{event.ran:,} node{'' if event.ran == 1 else 's'} run", f"{found['served']:,} served"]
        others = {"failed": len(self.state.failed), "failures kept": found["kept"], "skipped": found["skipped"]}
        return ", ".join(parts + [f"{number:,} {what}" for what, number in others.items() if number])

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        encoding = self.console.encoding
        shown = printable(line).encode(encoding, "backslashreplace").decode(encoding)
        self.console.print(shown, soft_wrap=True, emoji=False)

    @property
    def _head(self) -> str:
        """Where the run is, in one line."""
        state = self.state
        total, done = sum(state.operators.values()), len(state.settled)
        parts = [f"{done:,} of {max(total, done):,} done", f"{len(state.running)} running"]
        if state.failed:
            parts.append(f"{len(state.failed):,} failed")
        left = remaining(state, time.time())
        about = f", about {duration(left)} left" if left is not None else ""
        return f"{', '.join(parts)}  {duration(time.monotonic() - self._began)}{about}"

    def _view(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", max_width=self.console.width // 2)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        running = list(self.state.running.values())
        for call in running[:SHOWN_RUNNING]:
            elapsed = duration(max(0.0, time.time() - call.since))
            table.add_row(Text("▸", "cyan"), Text(printable(call.title)), elapsed, _bar(call), _described(call))
        more = [Text(f"  … and {len(running) - SHOWN_RUNNING} more", "dim")] if len(running) > SHOWN_RUNNING else []
        return Group(Text(self._head, "bold", no_wrap=True, overflow="ellipsis"), table, *more)


def _settled_line(event: Settled) -> str:
    title, reason = escape(event.title), escape(event.reason or "")
    if event.event == "skipped":
        return f"  [yellow]–[/] {title}  [dim]skipped: {reason}[/]"
    if event.event == "failed":
        if event.how == "kept":
            return f"  [red]✗[/] {title}  [dim]kept from an earlier run:[/] {reason}"
        return f"  [red]✗ {title}[/]  {reason}"
    if event.how == "cutoff":
        return f"  [green]=[/] {title}  [dim]its inputs came out equal; served[/]"
    took = duration(event.seconds) if event.seconds is not None else ""
    return f"  [green]✓[/] {title}  [dim]{took}[/]"


def _bar(call: Active) -> RenderableType:
    if call.progress is None:
        return ""
    done, total = call.progress["done"], call.progress["total"]
    numbers = isinstance(done, int | float) and isinstance(total, int | float)
    return ProgressBar(total=total, completed=done, width=12) if numbers and total > 0 else ""


def _described(call: Active) -> Text:
    if call.progress is None:
        return Text("")
    facts = "  ".join(f"{name} {_fact(value)}" for name, value in call.progress["facts"].items())
    return Text(printable(f"{_fact(call.progress['done'])}/{_fact(call.progress['total'])}  {facts}").rstrip())


def _fact(value: Any) -> str:
    """A fact for eyes.

    >>> _fact(12345.678), _fact(0.123456), _fact(7), _fact("warm-up")
    ('12,346', '0.1235', '7', 'warm-up')
    """
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"
    return str(value)
