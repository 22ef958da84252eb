"""The commands that evaluate: what would run, run it, and render what came out."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from marin_dsl.command_line.endings import FAILED, OK, USAGE, complaints, stop
from marin_dsl.evaluate import evaluate as evaluate_roots
from marin_dsl.evaluate import plan as plan_roots
from marin_dsl.grid import contents
from marin_dsl.outcome import Ok, Outcome
from marin_dsl.settings import Settings
from marin_dsl.store import Store
from marin_dsl.target import resolve


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--store", metavar="URL", help="Where results are kept. Default: $MARIN_STORE, else .marin/."),
        click.option("--keep-failures", is_flag=True, help="Serve recorded failures instead of trying again."),
        click.argument("targets", metavar="TARGET...", nargs=-1, required=True),
    ):
        command = option(command)
    return command


def _running(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--workers", type=click.IntRange(min=1), help="Run in that many processes instead of threads."),
        click.option("--scheduler", metavar="ADDRESS", help="Run on an existing Dask scheduler."),
        click.option("--debug", is_flag=True, help="Run in one thread, so that a debugger stops inside operators."),
        click.option("--accept", is_flag=True, help="Move a label whose recipe has changed to the new recipe."),
    ):
        command = option(command)
    return command


@click.command()
@_shared
def plan(targets: tuple[str, ...], store: str | None, keep_failures: bool) -> None:
    """Show what would run, and why; nothing is run and nothing written.

    Example: marin plan gallery.first_model:page
    """
    with complaints():
        click.echo(str(plan_roots(*map(resolve, targets), store=store, keep_failures=keep_failures)))


@click.command()
@_shared
@_running
def run(targets: tuple[str, ...], **settings: Any) -> None:
    """Evaluate targets and print what became of them.

    Example: marin run gallery.first_model:page
    """
    with complaints():
        outcomes = _evaluate([resolve(target) for target in targets], targets, settings)
        for outcome in outcomes:
            click.echo(repr(outcome))
    sys.exit(OK if all(isinstance(outcome, Ok) for outcome in outcomes) else FAILED)


@click.command()
@_shared
@_running
@click.option("--site", default="site", show_default=True, type=click.Path(path_type=Path), help="Folder of the pages.")
def page(targets: tuple[str, ...], site: Path, store: str | None, **settings: Any) -> None:
    """Evaluate pages, render them as static HTML, and print where they are.

    Example: marin page gallery.first_model:page --site site
    """
    from marin_dsl.pages.publish import NotAPage, publish

    with complaints(NotAPage):
        opened = Store(store or Settings.read().store)
        expressions = [found for target in targets for found in contents(resolve(target))]
        outcomes = _evaluate(expressions, targets, settings | {"store": opened})
        done = [(expression, found) for expression, found in zip(expressions, outcomes, strict=True) if _is_ok(found)]
        pages = [found.value for _, found in done]
        with _writing(site):
            for place in publish([expression for expression, _ in done], pages, site, opened):
                click.echo(f"page: {place}")
    sys.exit(OK if len(done) == len(outcomes) else FAILED)


def _is_ok(outcome: Outcome) -> bool:
    if not isinstance(outcome, Ok):
        click.echo(f"marin: there is no page: {outcome.summary}", err=True)
    return isinstance(outcome, Ok)


def _evaluate(roots: list[Any], targets: tuple[str, ...], settings: dict[str, Any]) -> tuple[Any, ...]:
    from marin_dsl.progress import Report

    report = Report()
    drift: Any = "accept" if settings.pop("accept") else "advise"
    try:
        found = evaluate_roots(*roots, **settings, drift=drift, watch=report, target=" ".join(targets))
    finally:
        report.close()
    return found if isinstance(found, tuple) else (found,)


@contextlib.contextmanager
def _writing(site: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        stop(f"cannot write pages to {site}: {error.strerror or error}; choose another folder with --site", USAGE)
