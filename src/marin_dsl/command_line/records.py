"""The commands that list what a store has recorded: failures, runs, and what happened to a label."""

from __future__ import annotations

import datetime
from typing import Any

import click

from marin_dsl import labels
from marin_dsl.command_line.completion import complete_subjects
from marin_dsl.command_line.endings import complaints
from marin_dsl.command_line.labelling import tell_log
from marin_dsl.command_line.options import json_option, opened, store_option
from marin_dsl.command_line.printing import Printer, document
from marin_dsl.evaluation import event_log
from marin_dsl.lineage import NotRecorded, every, origins
from marin_dsl.lineage.failures import FailedCall
from marin_dsl.lineage.failures import failures as recorded_failures
from marin_dsl.lineage.history import Run, moment, runs
from marin_dsl.lineage.subject import SubjectMissing, subjects
from marin_dsl.quantities import duration, short_digest
from marin_dsl.store import Store


@click.command(short_help="what failed, with its attempts")
@click.argument("subject", metavar="[TARGET|NAME@VERSION|DIGEST]", required=False, shell_complete=complete_subjects)
@click.option("--run", metavar="ID", help="Only those of one run; the end of its id is enough.")
@click.option("--traceback", is_flag=True, help="With the traceback and the last output of the latest attempt.")
@json_option
@store_option
def failures(subject: str | None, run: str | None, traceback: bool, as_json: bool, store: str | None) -> None:
    """List failures with their attempts, the latest first: all of them, or those under a target.

    Example: marin failures gallery.first_model:page --traceback
    """
    with complaints(SubjectMissing, NotRecorded):
        found = opened(store)
        calls = None if subject is None else _calls_under(found, subject)
        failed = recorded_failures(found, calls=calls, run=None if run is None else _run_like(found, run))
        if as_json:
            document("failures", found.url, failures=failed)
            return
        printer = Printer()
        for call in failed:
            _tell_failure(printer, call, traceback)
        if not failed:
            printer.line("no failures are recorded", f" under {subject}" if subject else f" in store {found.url}")


def _calls_under(store: Store, subject: str) -> list[bytes]:
    calls = dict[bytes, None]()
    for each in subjects(store, subject):
        if each.recipe is None:
            calls.update({key: None for key in (each.call,) if key is not None})
            continue
        for branch in every(origins(store, each.recipe)):
            call = None if branch.inline else store.call_of(branch.key)
            if call is not None:
                calls[call] = None
    return list(calls)


def _run_like(store: Store, run: str) -> str:
    """The id of the run that is meant: whole, or its beginning or end."""
    known = [name for name in event_log.runs(store) if name.startswith(run) or name.endswith(run)]
    if len(known) != 1:
        shown = ", ".join(known[-3:])
        some = f"{len(known)} runs are like {run}: {shown}" if known else f"store {store.url} has no run {run}"
        raise SubjectMissing(f"{some}; marin log lists them")
    return known[0]


def _tell_failure(printer: Printer, call: FailedCall, traceback: bool) -> None:
    last, times = call.last, len(call.attempts)
    again = f"{times} attempts, {last.kind}" if times > 1 else last.kind
    mended = ("  has a result by now", "green") if call.mended else ""
    printer.line(("✗ ", "red"), (call.title, "bold"), f"  {again}  {moment(last.started)}", mended)
    printer.line("    ", (last.summary, "red"))
    facts = [last.place, f"run {last.run}", f"{last.host}, process {last.pid}", f"call {short_digest(call.call)}"]
    printer.line("    ", ("  ".join(fact for fact in facts if fact), "dim"))
    if traceback:
        for line in last.output:
            printer.line("    │ ", line)
        printer.block(last.traceback, "    ", "dim")


@click.command(short_help="runs, or what happened to a label")
@click.argument("label", required=False, metavar="[NAME@VERSION]", shell_complete=complete_subjects)
@click.option("--runs", "as_runs", is_flag=True, help="List runs; without a label this is the default.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@json_option
@store_option
def log(label: str | None, as_runs: bool, limit: int, as_json: bool, store: str | None) -> None:
    """List runs, the newest first, or what happened to a label.

    Example: marin log --limit 5
    """
    with complaints(SubjectMissing):
        found = opened(store)
        wanted = None if label is None else _label(found, label)
        if wanted is not None and not as_runs:
            _log_label(found, wanted, limit, as_json)
        else:
            _log_runs(found, wanted, limit, as_json)


def _label(store: Store, name: str) -> Any:
    (subject,) = subjects(store, name) if "@" in name else (None,)
    if subject is None or subject.label is None:
        raise SubjectMissing(f"{name!r} is no label; write NAME@VERSION, or leave it out to list runs")
    return subject.label


def _log_label(store: Store, label: Any, limit: int, as_json: bool) -> None:
    happened = labels.log(store, label)[:limit]
    if as_json:
        document("log", store.url, label=str(label), log=happened)
        return
    tell_log(label, happened)


def _log_runs(store: Store, label: Any, limit: int, as_json: bool) -> None:
    wanted = None if label is None else str(label)
    matching = (run for run in runs(store) if wanted is None or wanted in [root["label"] for root in run.roots])
    found = [run for run, _ in zip(matching, range(limit), strict=False)]
    if as_json:
        document("log", store.url, runs=found)
        return
    printer = Printer()
    for run in found:
        _tell_run(printer, run)
    if not found:
        printer.line(
            f"store {store.url} has no runs", f" of {wanted}" if wanted else "", "; marin run TARGET makes one"
        )


_STATES = {"ok": "green", "failed": "red", "interrupted": "yellow", "running": "cyan", "lost": "red"}


def _tell_run(printer: Printer, run: Run) -> None:
    took = duration(run.seconds) if run.seconds is not None else _so_far(run)
    printer.line(
        (f"{run.state:<11}", _STATES[run.state]), (run.run, "bold"), f"  {moment(run.started)}  {took}  {_counted(run)}"
    )
    drift = f"  drift: {run.drift}" if run.drift != "advise" else ""
    kept = "  failures kept" if run.keep_failures else ""
    printer.line(" " * 11, (f"{run.target or run.command}{drift}{kept}", "dim"), cut=True)
    if run.note:
        printer.line(" " * 11, f"“{run.note}”", cut=True)


def _so_far(run: Run) -> str:
    """How long a run without an end has been at work, if it still is."""
    if run.state != "running":
        return "no end"
    began = datetime.datetime.fromisoformat(run.started)
    return f"for {duration((datetime.datetime.now(datetime.UTC) - began).total_seconds())} so far"


def _counted(run: Run) -> str:
    others = {
        "failed": run.failed,
        "failures kept": run.counts["kept"],
        "skipped": run.counts["skipped"],
        "open": run.counts["open"],
    }
    parts = [f"{run.ran:,} run", f"{run.counts['served']:,} served"]
    return ", ".join(parts + [f"{number:,} {what}" for what, number in others.items() if number])
