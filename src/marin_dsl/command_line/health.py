"""The command that looks for what is wrong with a store and its surroundings."""

from __future__ import annotations

import sys

import click

from marin_dsl.command_line.endings import FAILED, OK, complaints
from marin_dsl.command_line.options import json_option, opened, store_option
from marin_dsl.command_line.printing import Printer, document
from marin_dsl.lineage.health import checks

_MARKS = {"good": ("✓", "green"), "note": ("·", "yellow"), "bad": ("✗", "red")}


@click.command(short_help="what is wrong, and what to do about it")
@click.option("--scheduler", metavar="ADDRESS", help="Look at the workers of that Dask scheduler, too.")
@json_option
@store_option
def doctor(scheduler: str | None, as_json: bool, store: str | None) -> None:
    """Look for what is wrong with the store and around it, with advice; exits with 1 when something is.

    Example: marin doctor
    """
    with complaints():
        found = opened(store)
        looked = list(checks(found, scheduler=scheduler))
    if as_json:
        document("doctor", found.url, checks=looked)
    else:
        printer = Printer()
        for check in looked:
            printer.line(_MARKS[check.level], f" {check.name:<11}{check.text}")
            for item in check.items:
                printer.line(" " * 13, (item, "dim"), cut=True)
            if check.advice:
                printer.line(" " * 13, ("→ ", "bold"), check.advice)
    sys.exit(FAILED if any(check.level == "bad" for check in looked) else OK)
