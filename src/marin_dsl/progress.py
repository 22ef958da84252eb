"""What a person sees while an evaluation runs: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from marin_dsl.plan import Plan
from marin_dsl.quantities import duration

SHOWN_REASONS = 20
"""Reasons that are printed one by one before the rest is counted."""


class Report:
    """Watches an evaluation and writes what happens to a console.

    On a terminal the running nodes are shown live with their elapsed time and progress, below the lines that were
    printed; anything an operator prints appears above the view and does not tear it. Elsewhere each event is one line.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._running: dict[str, _Running] = {}
        self._settled: set[str] = set()
        self._done = self._failed = self._total = 0
        self._live: Live | None = None
        self._began = time.monotonic()

    @classmethod
    def to(cls, stream: TextIO) -> Report:
        """A report that writes to a stream."""
        return cls(Console(file=stream, highlight=False))

    def __call__(self, event: dict[str, Any]) -> None:
        """Take an event of an evaluation."""
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            handler(event)
        if self._live is not None:
            self._live.update(self._view())

    def close(self) -> None:
        """Take the live view off the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _on_planned(self, event: dict[str, Any]) -> None:
        plan: Plan = event["plan"]
        self._total = len(plan.runs)
        self._say(f"[bold]{plan.counts}[/]  [dim]store {escape(event['store'])}[/]")
        for key, name, _ in plan.runs[:SHOWN_REASONS]:
            self._say(f"  [cyan]run[/] {escape(name)}  [dim]{escape(plan.reasons.get(key, ''))}[/]")
        if len(plan.runs) > SHOWN_REASONS:
            self._say(f"  [dim]… and {len(plan.runs) - SHOWN_REASONS} more[/]")

    def _on_started(self, event: dict[str, Any]) -> None:
        dashboard = f", dashboard {event['dashboard']}" if event["dashboard"] else ""
        self._say(f"[dim]running {event['place']}{dashboard}[/]")
        if self.console.is_terminal:
            self._live = Live(self._view(), console=self.console, refresh_per_second=4, transient=True)
            self._live.start()

    def _on_running(self, event: dict[str, Any]) -> None:
        if event["call"] in self._settled:
            return  # the news of the start came later than the outcome
        self._running[event["call"]] = _Running(event["title"])
        if self._live is None:
            self._say(f"  [cyan]…[/] {escape(event['title'])}")

    def _on_progress(self, event: dict[str, Any]) -> None:
        running = self._running.get(event["call"])
        if running is not None:
            running.progress = event["content"]

    def _on_log(self, event: dict[str, Any]) -> None:
        self._say(f"  [dim]│ {escape(event['title'])}:[/] {escape(event['content'])}")

    def _on_ok(self, event: dict[str, Any]) -> None:
        self._settle(event["call"])
        if event["how"] == "cutoff":
            self._say(f"  [green]=[/] {escape(event['title'])}  [dim]its inputs came out equal; served[/]")
            self._total -= 1
            return
        self._done += 1
        self._say(f"  [green]✓[/] {escape(event['title'])}  [dim]{duration(event['seconds'])}[/]")

    def _settle(self, call: str) -> None:
        self._settled.add(call)
        self._running.pop(call, None)

    def _on_failed(self, event: dict[str, Any]) -> None:
        self._settle(event["call"])
        if event["how"] == "kept":
            self._say(
                f"  [red]✗[/] {escape(event['title'])}  [dim]kept from an earlier run:[/] {escape(event['reason'])}"
            )
            return
        self._failed += 1
        self._say(f"  [red]✗ {escape(event['title'])}[/]  {escape(event['reason'])}")

    def _on_skipped(self, event: dict[str, Any]) -> None:
        self._total -= 1
        self._say(f"  [yellow]–[/] {escape(event['title'])}  [dim]skipped: {escape(event['reason'])}[/]")

    def _on_drift(self, event: dict[str, Any]) -> None:
        label, since = escape(event["label"]), event["since"]
        self._say(f"[yellow]{label} was recorded for another recipe ({since}) and stays; --accept moves it:[/]")
        for line in event["lines"]:
            self._say(f"  [yellow]≠[/] {escape(line)}")

    def _on_interrupted(self, event: dict[str, Any]) -> None:
        self.close()
        self._say("[yellow]interrupted: what is finished stays, and the next run goes on from there[/]")

    def _on_finished(self, event: dict[str, Any]) -> None:
        self.close()
        found = event["counts"]
        parts = [f"{event['ran']} node{'' if event['ran'] == 1 else 's'} run", f"{found['served']} served"]
        others = {"failed": self._failed, "failures kept": found["kept"], "skipped": found["skipped"]}
        parts += [f"{number} {what}" for what, number in others.items() if number]
        self._say(f"[bold]{', '.join(parts)}[/] in {duration(time.monotonic() - self._began)}")

    def _say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, emoji=False)

    def _view(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for running in self._running.values():
            table.add_row(Text("▸", "cyan"), Text(running.title), duration(running.elapsed), running.described)
        waiting = max(0, self._total - self._done - self._failed - len(self._running))
        head = f"{self._done} done, {len(self._running)} running, {waiting} waiting"
        failed = f", {self._failed} failed" if self._failed else ""
        return Group(Text(f"{head}{failed}  {duration(time.monotonic() - self._began)}", "bold"), table)


class _Running:
    def __init__(self, title: str) -> None:
        self.title, self.began = title, time.monotonic()
        self.progress: dict[str, Any] | None = None

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def described(self) -> str:
        if self.progress is None:
            return ""
        facts = "  ".join(f"{name} {_fact(value)}" for name, value in self.progress["facts"].items())
        return f"{self.progress['done']:g}/{self.progress['total']:g}  {facts}".rstrip()


def _fact(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
