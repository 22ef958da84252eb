"""The command that tells two experiments apart."""

from __future__ import annotations

from collections.abc import Sequence

import click

from marin_dsl.command_line.completion import complete_subjects
from marin_dsl.command_line.endings import complaints
from marin_dsl.command_line.options import json_option, opened, store_option
from marin_dsl.command_line.printing import Part, Printer, document
from marin_dsl.lineage import NotRecorded
from marin_dsl.lineage.comparison import Comparison, Side, compare, paired
from marin_dsl.lineage.difference import leaves
from marin_dsl.lineage.history import moment
from marin_dsl.lineage.subject import SubjectMissing, subjects
from marin_dsl.quantities import duration, short_digest

_SHOWN = 20
_NAME = "TARGET|NAME@VERSION|DIGEST|RUN"


@click.command(short_help="how two experiments differ: recipe, code, environment, result")
@click.argument("old", metavar=f"OLD({_NAME})", shell_complete=complete_subjects)
@click.argument("new", metavar=f"NEW({_NAME})", shell_complete=complete_subjects)
@click.option("--lines", type=click.IntRange(min=1), default=_SHOWN, show_default=True, help="Lines of each part.")
@json_option
@store_option
def diff(old: str, new: str, lines: int, store: str | None, as_json: bool) -> None:
    """Tell how two experiments differ: recipe, code, environment and result.

    Labels, digests and runs are compared from records alone; a run stands for its roots.

    Example: marin diff first-model@1.0 gallery.first_model:again
    """
    with complaints(SubjectMissing, NotRecorded):
        found = opened(store)
        compared = [compare(found, *pair) for pair in paired(subjects(found, old), subjects(found, new))]
        if as_json:
            document("diff", found.url, differences=compared)
            return
        printer = Printer()
        for number, each in enumerate(compared):
            if number:
                printer.line()
            _tell(printer, each, lines)


def _tell(printer: Printer, found: Comparison, limit: int) -> None:
    for sign, style, side in (("-", "red", found.old), ("+", "green", found.new)):
        printer.line((f"{sign} ", style), (side.name, "bold"), f"  {_told(side)}", cut=True)
    if found.old.recipe == found.new.recipe:
        printer.line()
        printer.line("the recipes are equal")
    else:
        printer.section("recipe", list(leaves(list(found.recipe), limit)))
    _tell_code(printer, found, limit)
    printer.section("environment", _few([f"{it.name}  {it.old} → {it.new}" for it in found.environment], limit))
    if found.unread:
        printer.section("result", [found.unread])
    elif found.old.digest == found.new.digest:
        printer.section("result", [f"equal  {short_digest(found.new.digest or '')}"])
    else:
        printer.section("result", _few([str(it) for it in found.result], limit))


def _told(side: Side) -> str:
    run = f"  run {side.run}, {moment(side.started)}" if side.run else ""
    note = f"  “{side.note}”" if side.note else ""
    took = f"  {duration(side.seconds)}" if side.seconds is not None else ""
    return f"{side.title}  {short_digest(side.recipe)}{took}{run}{note}"


def _tell_code(printer: Printer, found: Comparison, limit: int) -> None:
    """The changed code of each operator, shortened."""
    if not found.code:
        return
    printer.line()
    printer.line(("code", "bold"))
    for change in found.code:
        hidden = f"  (both have version {change.version})" if change.version else ""
        printer.line("  ", (change.operator, "bold"), hidden)
        if not change.patch:
            printer.line("    ", ("the code of one of them was not recorded", "dim"))
        for line in _few(change.patch.splitlines(), max(limit, 3)):
            printer.line("    ", _coloured(line))


def _coloured(line: str) -> Part:
    return (line, {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], ""))


def _few(lines: Sequence[str], most: int) -> list[str]:
    return [*lines[:most], *([f"… and {len(lines) - most:,} more"] if len(lines) > most else [])]
