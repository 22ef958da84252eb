"""Options and arguments that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from marin_dsl.command_line.completion import complete_subjects, complete_targets
from marin_dsl.settings import Settings
from marin_dsl.store import Store

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Amount(click.FloatRange):
    """A number between bounds; `nan`, which no bound keeps out, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As any `click.ParamType` does."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


store_option: Decorator = click.option(
    "--store", metavar="URL", help="Where results are kept. Default: $MARIN_STORE, else .marin/."
)
json_option: Decorator = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document (see docs/commands.md)."
)
keep_failures_option: Decorator = click.option(
    "--keep-failures", is_flag=True, help="Serve recorded failures instead of trying again."
)
targets_argument: Decorator = click.argument(
    "targets", metavar="TARGET...", nargs=-1, required=True, shell_complete=complete_targets
)
subject_argument: Decorator = click.argument(
    "subject", metavar="TARGET|NAME@VERSION|DIGEST", shell_complete=complete_subjects
)


def named(url: str | None) -> Store:
    """The store that was named, or the default one; which records of it are damaged is told when the command ends."""
    store = Store(url or Settings.read().store)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(lambda: _tell_damaged(store))
    return store


_TOLD = 5
"""Damaged records that are named."""


def _tell_damaged(store: Store) -> None:
    found = sorted(store.damaged.items())
    for path, why in found[:_TOLD]:
        click.echo(f"marin: {store.url}/{path} counts as absent: {why}", err=True)
    if len(found) > _TOLD:
        click.echo(f"marin: and {len(found) - _TOLD} more; marin verify names all of them", err=True)


def opened(url: str | None) -> Store:
    """The same, if this version can read it.

    Raises:
        StoreUnavailable: it cannot be read.
    """
    store = named(url)
    store.check()
    return store
