"""The commands about labels: what there is, what they stand for, moving them, adopting data, and equivalence."""

from __future__ import annotations

import fnmatch
from typing import Any

import click

from marin_dsl import labels
from marin_dsl.command_line.completion import complete_labels, complete_subjects
from marin_dsl.command_line.endings import USAGE, complaints, stop
from marin_dsl.command_line.options import json_option, opened, store_option
from marin_dsl.command_line.printing import Printer, document
from marin_dsl.encoding import format_digest
from marin_dsl.expression.annotations import Label
from marin_dsl.labels.pointing import NothingToPointAt, point
from marin_dsl.lineage.history import moment
from marin_dsl.lineage.subject import Subject, SubjectMissing, subjects
from marin_dsl.quantities import short_digest
from marin_dsl.store import Store

_MENDABLE = (SubjectMissing, labels.LabelFixed, labels.CannotAdopt, labels.CannotStandFor, NothingToPointAt)

_label_argument = click.argument("name", metavar="NAME@VERSION", shell_complete=complete_labels)
_why_option = click.option("--why", metavar="TEXT", default="", help="The reason, which is kept.")


@click.command(short_help="let a label stand for data that exists already")
@_label_argument
@click.argument("uri", metavar="URI")
@_why_option
@json_option
@store_option
def adopt(name: str, uri: str, why: str, as_json: bool, store: str | None) -> None:
    """Let a label stand for a file, a folder or the prefix of a bucket; the data is kept in the store.

    The data stays as it is. Adopting the same bytes again changes nothing; other bytes need another version, or one
    that ends in dev, which moves.

    Example: marin adopt settings@1.0 pyproject.toml --why archived
    """
    with complaints(*_MENDABLE):
        label, found = _written(name), opened(store)
        entry = labels.adopt(found, label.name, label.version, uri, why=why)
        _tell(found, label, entry, "adopt", as_json)


@click.command(short_help="say that a recipe stands for an old result")
@click.argument("names", metavar="OLD NEW", nargs=-1, required=True, shell_complete=complete_subjects)
@click.option("--undo", is_flag=True, help="Take back what was said of NEW (OLD can be left out).")
@_why_option
@json_option
@store_option
def same(names: tuple[str, ...], undo: bool, why: str, as_json: bool, store: str | None) -> None:
    """Say that NEW, a recipe that was written anew, stands for OLD, a label or a key that has a result.

    Evaluating NEW then serves that result, and says so. It is refused when NEW has another result.

    Example: marin same first-model@1.0 gallery.first_model:again --why renamed
    """
    with complaints(*_MENDABLE):
        if len(names) != 2 and not (undo and len(names) == 1):
            stop(f"{len(names)} names were given; write marin same OLD NEW --why TEXT, or --undo NEW", USAGE)
        found = opened(store)
        subject = _one(found, names[-1])
        new = subject.recipe if subject.expression is None else subject.expression
        if new is None:
            stop(f"{names[-1]} is no recipe; name the new recipe by its target, its label or its key", USAGE)
        said = labels.undo(found, new, why=why) if undo else labels.same(found, _old(found, names[0]), new, why=why)
        if as_json:
            content = {name: getattr(said, name) for name in ("new", "old", "value", "why", "by", "since", "undone")}
            document("same", found.url, **content)
        else:
            does = "no longer stands for" if said.undone else "stands for"
            Printer().line((names[-1], "bold"), f"  {does} {said.old}  value {short_digest(said.value)}  {said.why}")


def _old(store: Store, name: str) -> Label | bytes:
    subject = _one(store, name)
    if subject.expression is None and subject.label is not None:
        return subject.label
    key = subject.recipe or subject.call
    if key is None:
        stop(f"{name} is a value; name the label or the key of what has it as its result", USAGE)
    return key


@click.group(short_help="labels: what there is, what they stand for, and moving them")
def label() -> None:
    """Labels: what there is, what they stand for, and moving them."""


@label.command("list", short_help="the labels of a store")
@click.argument("pattern", metavar="[PATTERN]", required=False)
@json_option
@store_option
def list_labels(pattern: str | None, as_json: bool, store: str | None) -> None:
    """List labels and what they stand for; of a pattern (* and ?) those whose name, or name@version, matches.

    Example: marin label list "first-*"
    """
    with complaints(*_MENDABLE):
        found = opened(store)
        entries = [(known, labels.current(found, known)) for known in labels.known(found) if _matches(known, pattern)]
    listed = [(known, entry) for known, entry in entries if entry is not None]
    if as_json:
        document("label list", found.url, labels=[_said(known, entry) for known, entry in listed])
        return
    printer = Printer()
    width = max((len(str(known)) for known, _ in listed), default=0)
    for known, entry in listed:
        said = f"  adopted from {entry.adopted}" if entry.adopted is not None else ""
        why = f"  {entry.why}" if entry.why else ""
        value, recipe = (short_digest(format_digest(each)) for each in (entry.value.digest, entry.recipe))
        since = f"  {moment(entry.since)}  value {value}  recipe {recipe}{said}{why}"
        printer.line((f"{known!s:<{width}}", "bold"), since, cut=True)
    if not listed:
        printer.line(f"store {found.url} has no label", f" like {pattern}" if pattern else "s")


def _matches(known: Label, pattern: str | None) -> bool:
    return pattern is None or any(fnmatch.fnmatchcase(text, pattern) for text in (known.name, str(known)))


@label.command(short_help="what a label stands for")
@_label_argument
@json_option
@store_option
def show(name: str, as_json: bool, store: str | None) -> None:
    """Show what a label stands for, since when and why, and what was last evaluated under it.

    Example: marin label show first-model@1.0
    """
    with complaints(*_MENDABLE):
        found, known = _known(store, name)
        entry = labels.current(found, known)
        if entry is None:
            stop(f"{known} was evaluated and came to no value yet; marin label log {known} tells more", USAGE)
        _tell(found, known, entry, "label show", as_json)


@label.command(short_help="let a label stand for something else")
@_label_argument
@click.argument("subject", metavar="TARGET|NAME@VERSION|DIGEST", shell_complete=complete_subjects)
@_why_option
@json_option
@store_option
def move(name: str, subject: str, why: str, as_json: bool, store: str | None) -> None:
    """Let a label stand for something that has a value; one whose version does not end in dev needs a reason.

    Example: marin label move first-model@dev gallery.first_model:page
    """
    with complaints(*_MENDABLE):
        known, found = _written(name), opened(store)
        entry = point(found, known, _one(found, subject), why=why)
        _tell(found, known, entry, "label move", as_json)


@label.command(short_help="what happened to a label")
@_label_argument
@json_option
@store_option
def log(name: str, as_json: bool, store: str | None) -> None:
    """Tell what a label stood for and what was evaluated under it, the latest first.

    Example: marin label log first-model@1.0
    """
    with complaints(*_MENDABLE):
        found, known = _known(store, name)
        happened = labels.log(found, known)
        if as_json:
            document("label log", found.url, label=str(known), log=happened)
        else:
            tell_log(known, happened)


def tell_log(known: Label, happened: list[labels.Happening]) -> None:
    """Print what happened to a label."""
    printer = Printer()
    printer.line((str(known), "bold"))
    for found in happened:
        by = f"  by {found.by}" if found.by else f"  {found.target}" if found.target else ""
        adopted = f"  adopted from {found.adopted}" if found.adopted is not None else ""
        what = (f"{found.kind:<10}", "bold" if found.kind == "stands for" else "dim")
        run = f"  run {found.run}" if found.run else ""
        said = f"{run}{by}{adopted}{f'  {found.why}' if found.why else ''}"
        printer.line("  ", moment(found.at), "  ", what, f"  {short_digest(found.recipe)}{said}", cut=True)


def _tell(store: Store, known: Label, entry: labels.Entry, command: str, as_json: bool) -> None:
    """Say what a label stands for."""
    said = _said(known, entry)
    if as_json:
        document(command, store.url, **said)
        return
    printer = Printer()
    printer.line((str(known), "bold"), "  moves by itself" if known.moves else "")
    rest = {name: str(said[name]) for name in ("recipe", "value", "since", "by", "run", "adopted", "why") if said[name]}
    for line in printer.pairs([*rest.items(), ("entry", str(entry.number))]):
        printer.line("  ", line)


def _said(known: Label, entry: labels.Entry) -> dict[str, Any]:
    said = {name: getattr(entry, name) for name in ("number", "since", "by", "why", "run", "adopted")}
    digests = {"recipe": format_digest(entry.recipe), "value": format_digest(entry.value.digest)}
    return {"label": str(known), "moves": known.moves, **digests, **said}


def _written(name: str) -> Label:
    try:
        return labels.read_label(name)
    except ValueError as error:
        stop(str(error), USAGE)


def _known(store: str | None, name: str) -> tuple[Store, Label]:
    known, found = _written(name), opened(store)
    subjects(found, name)  # says what there is instead when there is no such label
    return found, known


def _one(store: Store, name: str) -> Subject:
    found = subjects(store, name)
    if len(found) != 1:
        stop(f"{name} stands for {len(found)} expressions; name one of them", USAGE)
    return found[0]
