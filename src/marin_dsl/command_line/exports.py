"""The commands that give an experiment away as a folder, and take one in."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from marin_dsl.command_line.endings import FAILED, OK, USAGE, complaints, stop
from marin_dsl.command_line.options import json_option, named, store_option, subject_argument
from marin_dsl.command_line.options import opened as opened_store
from marin_dsl.command_line.printing import Printer, document
from marin_dsl.lineage.export import ExportRefused, import_experiment
from marin_dsl.lineage.export import export as export_experiment
from marin_dsl.lineage.subject import SubjectMissing, subjects
from marin_dsl.quantities import memory
from marin_dsl.store.copy import LabelDiverged


@click.command(short_help="write an experiment into a folder, to give it away")
@subject_argument
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--values",
    type=click.Choice(["all", "root", "none"]),
    default="all",
    show_default=True,
    help="Which results are in it; their digests are in any case.",
)
@json_option
@store_option
def export(subject: str, folder: Path, values: Any, store: str | None, as_json: bool) -> None:
    """Write all that is recorded of an experiment into a new folder, with a README of how to run it again.

    Exits with 1 when something that belongs to it is missing in the store.

    Example: marin export first-model@1.0 first-model
    """
    with complaints(SubjectMissing, ExportRefused), _disk(folder):
        found = opened_store(store)
        done = export_experiment(found, subjects(found, subject), folder, values)
    if as_json:
        document("export", found.url, exported=[done])
    else:
        printer = Printer()
        printer.line((str(folder), "bold"), f"  {done.files:,} files, {memory(done.bytes)}")
        _tell_missing(printer, done.missing)
    sys.exit(FAILED if done.missing else OK)


@click.command("import", short_help="take an exported experiment into a store")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@json_option
@store_option
def import_(folder: Path, store: str | None, as_json: bool) -> None:
    """Take an exported experiment into a store; every file is verified before anything is written.

    Exits with 1 when something that belongs to it is not there.

    Example: marin import exported --store another
    """
    with complaints(ExportRefused, LabelDiverged), _disk(folder):
        found = named(store)
        done = import_experiment(folder, found)
    if as_json:
        document("import", found.url, imported=[done])
    else:
        printer = Printer()
        what = ", ".join(done.labels) or "an experiment without a label"
        printer.line((what, "bold"), f"  {done.records:,} records and {done.blobs:,} blobs ({memory(done.bytes)})")
        _tell_missing(printer, done.missing)
    sys.exit(FAILED if done.missing else OK)


def _tell_missing(printer: Printer, missing: tuple[str, ...]) -> None:
    for what in missing:
        printer.line(("missing ", "red"), what)


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """Trouble with the folder is a message that names it."""
    try:
        yield
    except OSError as error:
        stop(f"{folder}: {error.strerror or error}; name another folder", USAGE)
