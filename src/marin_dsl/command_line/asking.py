"""The commands that ask about one thing: what it is, why it runs, and what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import click

from marin_dsl.command_line.endings import USAGE, complaints, stop
from marin_dsl.command_line.options import json_option, keep_failures_option, opened, store_option, subject_argument
from marin_dsl.command_line.printing import MARKS, Part, Printer, document
from marin_dsl.encoding import format_digest
from marin_dsl.expression.display import tree
from marin_dsl.lineage import Became, Branch, NotRecorded, became, dot, folded, origins, outcomes, uses
from marin_dsl.lineage.environment import start_of
from marin_dsl.lineage.failures import Attempt
from marin_dsl.lineage.history import moment
from marin_dsl.lineage.inspection import Input, Inspection, inspect
from marin_dsl.lineage.subject import Subject, SubjectMissing, subjects
from marin_dsl.lineage.why import Why, why_before, why_now
from marin_dsl.quantities import duration, memory, short_digest
from marin_dsl.store import Store

SHOWN = 40
"""Lines of a list that are printed before the rest is counted."""


@click.command(short_help="what it is, and what became of it")
@subject_argument
@json_option
@store_option
def show(subject: str, store: str | None, as_json: bool) -> None:
    """Show what a thing is and what became of it, from its records.

    Named by a label or a digest (its first digits are enough), the project's code is not needed.

    Example: marin show first-model@1.0
    """
    with complaints(SubjectMissing, NotRecorded):
        found = opened(store)
        things = [inspect(found, each) for each in _evaluated(found, subject)]
        if as_json:
            document("show", found.url, things=things)
            return
        printer = Printer()
        for number, thing in enumerate(things):
            if number:
                printer.line()
            _tell(printer, thing)


def _evaluated(store: Store, name: str) -> tuple[Subject, ...]:
    """What a name stands for, if the store has records of any of it."""
    found = subjects(store, name)
    if not any(_is_recorded(store, each) for each in found):
        raise SubjectMissing(f"store {store.url} has no record of {name}: evaluate it first (marin run {name})")
    return found


def _is_recorded(store: Store, subject: Subject) -> bool:
    return subject.recipe is None or store.recipe(subject.recipe) is not None


def _tell(printer: Printer, thing: Inspection) -> None:
    printer.line(MARKS[thing.status], " ", (thing.title, "bold"), "  ", (thing.status, MARKS[thing.status][1]))
    for line in printer.pairs(list(_facts(thing))):
        printer.line("  ", line)
    if thing.because:
        printer.section("skipped because these failed", thing.because)
    printer.section("arguments", printer.pairs([(item.name, item.text) for item in (*thing.arguments, *thing.facts)]))
    printer.section("inputs", _few([_input(item) for item in thing.inputs], 20))
    printer.section("not seen by the identity of its code", thing.operator.unseen if thing.operator is not None else ())
    printer.section("value", thing.value.lines if thing.value is not None else ())
    printer.section("observations", printer.pairs(list(thing.observations.items())))
    printer.section("last lines of its output", thing.output)
    printer.section("failed attempts", [_attempt(found) for found in thing.failed])
    if thing.status == "failed":
        printer.line()
        printer.block(thing.failed[-1].traceback, "  ", "dim")


def _input(found: Input) -> str:
    status = "" if found.status == "ok" else f"  {found.status}"
    return f"{MARKS[found.status][0]} {found.title}{status}  {short_digest(found.recipe or found.digest or '')}"


def _facts(thing: Inspection) -> Iterator[tuple[str, str]]:
    """What is known of a thing, in the order to show it."""
    for name, text in (("label", thing.label), ("recipe", thing.recipe), ("call", thing.call)):
        if text is not None:
            yield name, text
    if thing.value is not None:
        parts = f", {thing.value.leaves} large parts" if thing.value.leaves else ""
        yield "value", thing.value.digest
        yield "size", f"{memory(thing.value.size)}{parts}"
    if thing.operator is not None:
        version = f"version {thing.operator.version}, " if thing.operator.version else ""
        code = f"code {short_digest(thing.operator.code)}" if thing.operator.code else "a part of the language"
        yield "operator", f"{thing.operator.name}  ({version}{code})"
    if thing.computed is not None:
        done = thing.computed
        peak = f", peak memory {memory(done.peak_memory)}" if done.peak_memory else ""
        where = f"on {done.host} (process {done.pid})"
        yield "computed", f"{moment(done.started)}, in {duration(done.seconds)}, {where}{peak}"
        yield "run", f"{done.run}  {done.target}"
        if done.note:
            yield "note", done.note
        if done.python:
            commit = f", commit {done.commit[:12]}" if done.commit else ""
            yield "with", f"Python {done.python}{commit}{' and uncommitted changes' if done.dirty else ''}"


def _attempt(found: Attempt) -> str:
    where = f"  ({found.place})" if found.place else ""
    return f"{found.number}  {moment(found.started)}  {found.kind}  {found.summary}{where}"


def _few(lines: list[str], most: int = SHOWN) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], f"… and {len(lines) - most + 1:,} more"]


@click.command(short_help="why it would run, or why it ran")
@subject_argument
@click.argument("node", required=False)
@keep_failures_option
@json_option
@store_option
def why(subject: str, node: str | None, store: str | None, keep_failures: bool, as_json: bool) -> None:
    """Say why each node would run, or else why it ran; NODE is a part of its title, or the beginning of its digest.

    Named by a label or a digest, it is told why things ran when they last did.

    Example: marin why gallery.first_model:page
    """
    with complaints(SubjectMissing, NotRecorded):
        found = opened(store)
        named = subjects(found, subject)
        roots = tuple(each.expression for each in named if each.expression is not None)
        now = why_now(roots, found, keep_failures=keep_failures) if roots else []
        keys = [each.recipe for each in named if each.recipe is not None]
        reasons = [each for each in now or why_before(keys, found) if _matches(each, node)]
        if as_json:
            document("why", found.url, reasons=reasons)
        elif not reasons:
            _stop_without_reasons(subject, node)
        else:
            _tell_reasons(Printer(), reasons, found, asked_now=bool(roots))


def _stop_without_reasons(subject: str, node: str | None) -> None:
    about = f"with {node!r} in its title or digest " if node else ""
    stop(f"nothing {about}under {subject} would run or has run; see the titles with: marin lineage {subject}", USAGE)


def _matches(reason: Why, node: str | None) -> bool:
    if not node:
        return True
    digits = node.removeprefix("sha256:")
    return node.lower() in reason.title.lower() or reason.recipe.removeprefix("sha256:").startswith(digits)


def _tell_reasons(printer: Printer, reasons: list[Why], store: Store, *, asked_now: bool) -> None:
    if reasons[0].when == "before" and asked_now:
        printer.line("nothing would run now: every value is there; this is why they were computed")
    run = ""
    for number, reason in enumerate(reasons):
        if number >= SHOWN:
            printer.line((f"… and {len(reasons) - SHOWN:,} more; name one: marin why ... NODE", "dim"))
            break
        if reason.run != run:
            run = reason.run
            start = {"started": "", "target": "", **start_of(store, run)}
            printer.line(("run ", "bold"), (run, "bold"), f"  {moment(start['started'])}  {start['target']}")
        spared = "; spared if its inputs come out equal" if reason.undecided else ""
        verb = "run " if reason.when == "now" else "ran "
        because = "" if reason.changes else f"  {reason.reason}"
        printer.line("  ", (verb, "cyan"), reason.title, (f"{because}{spared}", "dim"), cut=True)
        for line in _few(list(reason.changes)):
            printer.line("      ", (line, "yellow"))
    unseen = dict.fromkeys(sentence for reason in reasons for sentence in reason.unseen)
    printer.section("not seen by the identity of the code, so that an edit there runs nothing:", _few(list(unseen), 20))


@click.command(short_help="what it was made from, or what was made from it")
@subject_argument
@click.option("--up", "direction", flag_value="up", default="up", help="What it was made from. This is the default.")
@click.option("--down", "direction", flag_value="down", help="What was made from it, anywhere in the store.")
@click.option("--lines", type=click.IntRange(min=1), default=SHOWN, show_default=True, help="Lines of the tree.")
@click.option("--dot", "as_dot", is_flag=True, help="Print a graph for Graphviz.")
@json_option
@store_option
def lineage(subject: str, direction: str, lines: int, as_dot: bool, as_json: bool, store: str | None) -> None:
    """Show what a thing was made from, or what was made from it, from its records.

    The tree leaves projections, arithmetic and the like out; --json and --dot have them all.

    Example: marin lineage first-model@1.0
    """
    with complaints(SubjectMissing, NotRecorded):
        if as_json and as_dot:
            stop("--json and --dot are two forms of one answer; take one of them", USAGE)
        found = opened(store)
        down = direction == "down"
        roots = [_branch(found, each, down=down) for each in _evaluated(found, subject) if _is_recorded(found, each)]
        if as_json:
            document("lineage", found.url, direction=direction, lineages=[_recorded(found, root) for root in roots])
        elif as_dot:
            click.echo("\n".join(dot(root, down=down) for root in roots))
        else:
            printer = Printer()
            for root in map(folded, roots):
                for line in tree(root, lambda branch: _titled(found, branch), lines).splitlines():
                    printer.line(*_coloured(line), cut=True)


def _branch(store: Store, subject: Subject, *, down: bool) -> Branch:
    if subject.recipe is None:
        raise SubjectMissing(f"{subject.name} is no expression, so its lineage is not known; name a label or a recipe")
    return uses(store, subject.recipe) if down else origins(store, subject.recipe)


def _titled(store: Store, branch: Branch) -> str:
    found = became(store, branch)
    took = f"  {duration(found.seconds)}" if found.seconds is not None else ""
    status = f"  {found.status}" if found.status in ("failed", "not evaluated") else ""
    return f"{MARKS[found.status][0]} {branch.title}{status}{took}"


def _coloured(line: str) -> Iterable[Part]:
    """A line of a tree, with the sign of a failure in its colour."""
    before, sign, after = line.partition(MARKS["failed"][0])
    return (before, (sign, "red"), after) if sign else (line,)


def _recorded(store: Store, root: Branch) -> dict[str, Any]:
    return {"root": format_digest(root.key), "nodes": [_node(*each) for each in outcomes(store, root)]}


def _node(branch: Branch, found: Became) -> dict[str, Any]:
    return {
        "recipe": format_digest(branch.key),
        "title": branch.title,
        "operator": branch.recipe["operator"]["name"],
        "references": [format_digest(other.key) for other in branch.references],
        **attrs.asdict(found),
    }
