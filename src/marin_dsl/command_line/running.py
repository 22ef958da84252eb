"""The commands that evaluate: what would run, run it, and render what came out."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console

from marin_dsl.command_line.completion import complete_subjects
from marin_dsl.command_line.endings import FAILED, OK, USAGE, complaints, stop
from marin_dsl.command_line.options import (
    Amount,
    json_option,
    keep_failures_option,
    named,
    opened,
    store_option,
    targets_argument,
)
from marin_dsl.command_line.printing import document
from marin_dsl.encoding import format_digest
from marin_dsl.evaluation import evaluate as evaluate_roots
from marin_dsl.evaluation import plan as plan_roots
from marin_dsl.expression import Expression
from marin_dsl.expression.recipe import title
from marin_dsl.grids import contents
from marin_dsl.labels.drift import POLICIES, Policy, drifts
from marin_dsl.lineage import NotRecorded
from marin_dsl.lineage.subject import SubjectMissing, subjects
from marin_dsl.outcome import Failed, Ok, Outcome
from marin_dsl.planning import Plan
from marin_dsl.target import resolve

DRIFT = (
    click.option("--accept", is_flag=True, help="Drift: move the label; take values as made by the code as it is."),
    click.option("--use-recorded", is_flag=True, help="Drift: serve what the label stands for instead."),
    click.option("--strict", is_flag=True, help="Drift: fail with 1 before anything runs."),
)


def _drifting(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(DRIFT):
        command = option(command)
    return command


def _policy(settings: dict[str, Any]) -> Policy:
    """What is to be done about drift; the options for that leave the settings."""
    chosen = [policy for policy in POLICIES if settings.pop(policy.replace("-", "_"), False)]
    if len(chosen) > 1:
        stop(f"{' and '.join(f'--{policy}' for policy in chosen)} exclude each other; choose one of them", USAGE)
    return chosen[0] if chosen else "advise"


def _running(command: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.option("--workers", type=click.IntRange(min=1), help="Run in that many processes instead of threads."),
        click.option("--scheduler", metavar="ADDRESS", help="Run on an existing Dask scheduler."),
        click.option("--debug", is_flag=True, help="Run in one thread, so that a debugger stops inside operators."),
        *DRIFT,
        click.option("--note", default="", metavar="TEXT", help="What is to be remembered of this run."),
        keep_failures_option,
        click.option(
            "--verify-sample",
            metavar="PART",
            type=Amount(0.0, 1.0),
            default=0.0,
            help="Run this part (0 to 1) of what has results anew, and compare.",
        ),
        json_option,
        store_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(short_help="what would run, and why; nothing is run")
@targets_argument
@_drifting
@keep_failures_option
@json_option
@store_option
def plan(targets: tuple[str, ...], store: str | None, keep_failures: bool, as_json: bool, **options: bool) -> None:
    """Show what would run, and why; nothing is run and nothing written.

    Example: marin plan gallery.first_model:page
    """
    with complaints():
        policy, found = _policy(options), opened(store)
        planned = plan_roots(*map(resolve, targets), store=found, keep_failures=keep_failures, drift=policy)
        if as_json:
            document("plan", found.url, **_planned(planned))
        else:
            click.echo(str(planned))


def _planned(plan: Plan) -> dict[str, Any]:
    runs = [
        {"recipe": format_digest(key), "title": title, "reason": plan.reasons.get(key), "undecided": undecided}
        for key, title, undecided in plan.runs
    ]
    others = {"served": list(plan.hits), "kept": plan.kept, "skipped": plan.skipped, "deciding": plan.deciding}
    drift = [
        {"label": str(found.label), "since": found.entry.since, "lines": found.lines, "code": found.code}
        for found in plan.drifts
    ]
    return {"run": runs, **others, "drift": drift, "code_drift": [attrs.asdict(found) for found in plan.code]}


@click.command(short_help="evaluate, and say what became of it")
@targets_argument
@_running
def run(targets: tuple[str, ...], as_json: bool, **settings: Any) -> None:
    """Evaluate targets and print what became of them.

    Example: marin run gallery.first_model:page
    """
    with complaints():
        roots = [found for target in targets for found in contents(resolve(target))]
        store = named(settings["store"])
        outcomes = _evaluate(roots, targets, settings | {"store": store}, quiet=as_json)
        if as_json:
            document("run", store.url, outcomes=_outcomes(roots, outcomes))
        else:
            for outcome in outcomes:
                click.echo(repr(outcome))
    sys.exit(OK if _all_well(outcomes) else FAILED)


@click.command(short_help="render pages as HTML: of targets, of what is recorded, of a difference")
@click.argument(
    "targets", metavar="TARGET|NAME@VERSION|DIGEST...", nargs=-1, required=True, shell_complete=complete_subjects
)
@click.option("--diff", "as_difference", is_flag=True, help="Render how two things differ that are recorded.")
@_running
@click.option("--site", default="site", show_default=True, type=click.Path(path_type=Path), help="Folder of the pages.")
def page(
    targets: tuple[str, ...], site: Path, store: str | None, as_json: bool, as_difference: bool, **settings: Any
) -> None:
    """Render pages as static HTML, and print where they are.

    Targets are evaluated. Of a label, a digest or a run the records are shown: the page that it is, or else what it
    came to and how. With --diff there are two, and the page tells how they differ.

    Example: marin page gallery.first_model:page --site site
    """
    if as_difference or not all(":" in target.removeprefix("sha256:") for target in targets):
        _render_recorded(targets, site, store, as_json, as_difference)
        return
    from marin_dsl.pages.publish import NotAPage, publish

    with complaints(NotAPage):
        opened_store = named(store)
        expressions = [found for target in targets for found in contents(resolve(target))]
        recorded = drifts(opened_store, expressions) if settings["use_recorded"] else []
        outcomes = _evaluate(expressions, targets, settings | {"store": opened_store}, quiet=as_json)
        done = [(expression, found) for expression, found in zip(expressions, outcomes, strict=True) if _is_ok(found)]
        pages = [found.value for _, found in done]
        with _writing(site):
            recipes = {drift.root: drift.entry.recipe for drift in recorded}
            places = publish([expression for expression, _ in done], pages, site, opened_store, recipes)
        if as_json:
            document("page", opened_store.url, outcomes=_outcomes(expressions, outcomes), pages=list(map(str, places)))
        else:
            for place in places:
                click.echo(f"page: {place}")
    sys.exit(OK if _all_well(outcomes) else FAILED)


def _render_recorded(names: tuple[str, ...], site: Path, store: str | None, as_json: bool, as_difference: bool) -> None:
    from marin_dsl.pages.publish import publish_difference, publish_recorded

    with complaints(SubjectMissing, NotRecorded):
        found = opened(store)
        named = [subjects(found, name) for name in names]
        if as_difference and [len(each) for each in named] != [1, 1]:
            raise SubjectMissing(f"--diff takes two names that stand for one expression each, not {' '.join(names)}")
        with _writing(site):
            if as_difference:
                places = [publish_difference(named[0][0], named[1][0], site, found)]
            else:
                places = publish_recorded([subject for each in named for subject in each], site, found)
        if as_json:
            document("page", found.url, outcomes=[], pages=list(map(str, places)))
        else:
            for place in places:
                click.echo(f"page: {place}")


def _outcomes(roots: Sequence[Expression[Any]], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [_outcome(root, outcome) for root, outcome in zip(roots, outcomes, strict=True)]


def _outcome(root: Expression[Any], outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {
        "recipe": format_digest(root.key),
        "title": title(root),
        "label": str(root.label) if root.label is not None else None,
        "outcome": type(outcome).__name__.lower(),
    }
    if isinstance(outcome, Ok):
        return {**found, "digest": outcome.digest}
    if isinstance(outcome, Failed):
        return {**found, "kind": outcome.kind, "exception": outcome.exception, "message": outcome.message}
    return {**found, "because": list(outcome.because)}


def _is_ok(outcome: Outcome) -> bool:
    if not isinstance(outcome, Ok):
        click.echo(f"marin: there is no page: {outcome.summary}", err=True)
    return isinstance(outcome, Ok)


def _evaluate(roots: list[Any], targets: tuple[str, ...], settings: dict[str, Any], *, quiet: bool) -> tuple[Any, ...]:
    """Evaluate with a view of what happens; where standard output is for a document, on standard error."""
    from marin_dsl.evaluation.progress import Report

    report = Report(Console(highlight=False, stderr=quiet))
    drift = _policy(settings)
    try:
        found = evaluate_roots(*roots, **settings, drift=drift, watch=report, target=" ".join(targets))
    finally:
        report.close()
    click.get_current_context().meta[_CONFLICTS] = len(report.state.conflicts)
    return found if isinstance(found, tuple) else (found,)


_CONFLICTS = "marin_dsl.conflicts"


def _all_well(outcomes: Sequence[Outcome]) -> bool:
    """Whether all have values, and nothing came to another value than the one that is kept of it."""
    conflicts = click.get_current_context().meta.get(_CONFLICTS, 0)
    return not conflicts and all(isinstance(outcome, Ok) for outcome in outcomes)


@contextlib.contextmanager
def _writing(site: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        stop(f"cannot write pages to {site}: {error.strerror or error}; choose another folder with --site", USAGE)
