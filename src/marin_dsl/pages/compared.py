"""A page about two experiments: what changed from one to the other, and what that did to the numbers."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from marin_dsl.expression.recipe import shortened
from marin_dsl.lineage.comparison import Comparison, Side
from marin_dsl.lineage.difference import leaves, reasons
from marin_dsl.lineage.history import moment
from marin_dsl.lineage.results import ABSENT, ValueChange
from marin_dsl.pages.content import Cell, Column, Listing, Missing, Page, Section, Table
from marin_dsl.pages.evidence import Evidence
from marin_dsl.quantities import duration, short_digest

_ROWS, _LINES = 60, 400


def difference_page(found: Comparison) -> Page:
    """What differs between two experiments, as a page."""
    changed = list(leaves(list(found.recipe), _ROWS))
    return Page(
        title=f"{found.old.name} and {found.new.name}",
        question=f"What changed from {found.old.name} to {found.new.name}, and what did that do to the numbers?",
        answer=_answer(found, changed),
        verdict=_verdict(found, changed),
        sections=tuple(_sections(found, changed)),
    )


def difference_evidence(found: Comparison, evidence: Evidence) -> Evidence:
    """The evidence of the later experiment, in which each node says in what it differs from the earlier one."""
    by_key = {f"sha256:{key.hex()}": reason for key, reason in reasons(list(found.recipe)).items()}
    nodes = tuple(
        attrs.evolve(node, reason=f"changed: {by_key[node.key]}" if node.key in by_key else f"as in {found.old.name}")
        if node.status != "untaken"
        else node
        for node in evidence.nodes
    )
    return attrs.evolve(evidence, nodes=nodes, command=f"marin page --diff {found.old.name} {found.new.name}")


def _verdict(found: Comparison, changed: list[str]) -> str:
    recipe = f"{len(changed)} change{'s' if len(changed) != 1 else ''} of the recipe" if changed else "Equal recipes"
    if found.unread:
        return f"{recipe}; the results cannot be compared."
    if not found.result:
        return f"{recipe}; the results are equal."
    return f"{recipe}; the results differ in {len(found.result):,} place{'s' if len(found.result) != 1 else ''}."


def _answer(found: Comparison, changed: list[str]) -> str:
    said = [f"What changed: {changed[0]}." if len(changed) == 1 else ""]
    numbers = [change for change in found.result if change.relative is not None]
    if numbers:
        most = max(numbers, key=lambda change: abs(change.relative or 0.0))
        old, new = _values(most)
        place = shortened(most.path, 80) or "the value"
        said.append(f"The largest relative change is that of `{place}`: {old} → {new}.")
    return " ".join(filter(None, [*said, found.unread]))


def _sections(found: Comparison, changed: list[str]) -> Iterator[Section]:
    if found.result:
        yield _numbers(found.result)
    if changed:
        rows = [tuple(reversed(line.rpartition(": "))) for line in changed]
        shown = [(where or "…", what) for what, _, where in rows]
        columns = (Column("where"), Column("what"))
        caption = "Settings, versions and code that are no mere consequence of other changes."
        yield Table("What changed", caption, columns, shown)
    for change in found.code:
        hidden = f" Both have version {change.version}, so that the recipes do not show it." if change.version else ""
        text = "\n".join(change.patch.splitlines()[:_LINES]) or "the code of one of them was not recorded"
        yield Listing(f"Code of {change.operator.rpartition('.')[2]}", f"Unified difference.{hidden}", text)
    if found.environment:
        facts = [(it.name, it.old, it.new) for it in found.environment[:_ROWS]]
        more = len(found.environment) - _ROWS
        caption = f"What differs; {more:,} more are not shown." if more > 0 else "What differs."
        yield Table("Environment", caption, _sided(found, "fact"), facts)
    yield _sides(found)


def _sided(found: Comparison, first: str) -> tuple[Column, ...]:
    return Column(first), Column(found.old.name, digits=6), Column(found.new.name, digits=6)


def _numbers(result: tuple[ValueChange, ...]) -> Table:
    columns = (Column("place"), Column("before"), Column("after"), Column("change"), Column("relative", unit="%"))
    rows = [
        (
            shortened(change.path, 80) or "(the whole)",
            *_values(change),
            "" if change.absolute is None else f"{change.absolute:+.6g}",
            "" if change.relative is None else f"{100 * change.relative:+.3g}",
        )
        for change in result[:_ROWS]
    ]
    more = f" The first {_ROWS} of {len(result):,} places." if len(result) > _ROWS else ""
    return Table("What that did to the numbers", f"Where the two values differ.{more}", columns, rows)


def _values(change: ValueChange) -> tuple[Cell, Cell]:
    """Both values; numbers with six digits, unless they differ in later ones only."""
    if change.absolute is not None:
        try:
            old, new = (f"{float(text):.6g}" for text in (change.old, change.new))
        except ValueError:  # arrays
            return _text(change.old), _text(change.new)
        if old != new:
            return old, new
    return _text(change.old), _text(change.new)


def _text(text: str) -> Cell:
    return Missing("not there", "absent") if text == ABSENT else text


def _sides(found: Comparison) -> Table:
    rows: list[tuple[Cell, ...]] = [
        ("expression", found.old.title, found.new.title),
        ("recipe", short_digest(found.old.recipe), short_digest(found.new.recipe)),
        ("value", *(_value(side) for side in (found.old, found.new))),
        ("run", *(side.run or "none" for side in (found.old, found.new))),
        ("started", *(moment(side.started) if side.started else "unknown" for side in (found.old, found.new))),
        ("its own call", *(duration(side.seconds) for side in (found.old, found.new))),
        ("note", found.old.note, found.new.note),
        ("command", found.old.command, found.new.command),
    ]
    said = [row for row in rows if any(row[1:])]
    return Table("The two", "What is compared.", _sided(found, ""), said)


def _value(side: Side) -> Cell:
    return Missing("no stored value", "absent") if side.digest is None else short_digest(side.digest)
