"""The commands that look after stores: verify what is in one, free room in it, and copy labels to another."""

from __future__ import annotations

import sys

import click

from marin_dsl.command_line.completion import complete_labels
from marin_dsl.command_line.endings import FAILED, OK, complaints
from marin_dsl.command_line.options import Amount, json_option, opened, store_option
from marin_dsl.command_line.printing import Printer, document
from marin_dsl.quantities import memory
from marin_dsl.store.collection import GRACE, collect
from marin_dsl.store.copy import LabelDiverged, LabelUnknown
from marin_dsl.store.copy import copy as copy_labels
from marin_dsl.store.verify import verify as verify_store

_STYLES = {"damaged": "red", "gone": "red", "stray": "yellow", "open": "dim"}
_SHOWN, _DAY = 40, 86400.0


@click.command(short_help="hash every blob again, and read every record")
@json_option
@store_option
def verify(as_json: bool, store: str | None) -> None:
    """Hash every blob again and check every record; exits with 1 when something is damaged, gone or stray.

    Nothing is changed: what is damaged is a miss when it is read, and is then computed anew.

    Example: marin verify
    """
    with complaints():
        found = opened(store)
        seen = verify_store(found)
    if as_json:
        counts = {"blobs": seen.blobs, "bytes": seen.bytes, "records": seen.records, "unused": seen.unused}
        document("verify", found.url, sound=seen.sound, **counts, findings=seen.findings)
    else:
        printer = Printer()
        serious = [finding for finding in seen.findings if finding.kind != "open"]
        for finding in serious[:_SHOWN]:
            printer.line((f"{finding.kind:<8}", _STYLES[finding.kind]), finding.path)
            printer.line("        ", (finding.message, "dim"))
        if len(serious) > _SHOWN:
            printer.line(f"… and {len(serious) - _SHOWN:,} more")
        counted = f"{seen.blobs:,} blobs ({memory(seen.bytes)}), {seen.records:,} records, {seen.unused:,} blobs unused"
        result = ("sound", "green") if seen.sound else (f"{len(serious):,} findings", "red")
        printer.line(result, f"  {counted}")
    sys.exit(OK if seen.sound else FAILED)


@click.command(short_help="free the room of what nobody can want any more")
@click.option("--apply", is_flag=True, help="Do it; otherwise it is only told what would be done.")
@click.option(
    "--grace",
    "days",
    type=Amount(min=0),
    default=GRACE / _DAY,
    show_default=True,
    metavar="DAYS",
    help="Keep whatever is younger.",
)
@json_option
@store_option
def gc(apply: bool, days: float, as_json: bool, store: str | None) -> None:
    """Move what no label, pinned run or recent work wants to the trash, and remove what has been there for long.

    Without --apply nothing is changed. It is safe beside running evaluations.

    Example: marin gc
    """
    with complaints():
        found = opened(store)
        done = collect(found, grace=days * _DAY, dry=not apply)
    if as_json:
        document(
            "gc",
            found.url,
            dry=done.dry,
            swept=[entry.path for entry in done.swept],
            emptied=[entry.path for entry in done.emptied],
            restored=done.restored,
            kept=[
                {"reason": reason, "files": tally.files, "bytes": tally.bytes} for reason, tally in done.kept.items()
            ],
        )
    else:
        printer = Printer()
        for line in str(done).splitlines():
            printer.line(line)
        if done.dry and (done.swept or done.emptied):
            printer.line(("nothing was changed; marin gc --apply does it", "bold"))


@click.group(short_help="move what labels stand for between stores")
def store() -> None:
    """Move what labels stand for between stores."""


@store.command(short_help="copy labels with all that they stand for")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.argument("labels", metavar="[NAME@VERSION]...", nargs=-1, shell_complete=complete_labels)
@json_option
def copy(source: str, target: str, labels: tuple[str, ...], as_json: bool) -> None:
    """Copy labels with all that they stand for, from one store to another; without a label, all of them.

    What the target has is not moved again, and a copy that was interrupted goes on from there. Exits with 1 when
    something that belongs to a label is missing in FROM.

    Example: marin store copy .marin elsewhere first-model@1.0
    """
    with complaints(LabelUnknown, LabelDiverged):
        found = opened(target)
        origin = opened(source)
        copied = copy_labels(origin, found, list(labels) or None)
    if as_json:
        document("store copy", found.url, source=origin.url, copied=[copied])
    elif not copied.labels:
        Printer().line(f"store {origin.url} has no labels; nothing was copied")
    else:
        printer = Printer()
        printer.line(f"{', '.join(copied.labels)} to {found.url}")
        printer.line(f"{copied.records:,} records and {copied.blobs:,} blobs ({memory(copied.bytes)}) moved")
        for what in copied.missing:
            printer.line(("missing ", "red"), what)
    sys.exit(FAILED if copied.missing else OK)
