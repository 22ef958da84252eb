"""Evidence from records: what a store knows of a page's expression and of everything under it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin_dsl import lineage
from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression.recipe import arguments, short
from marin_dsl.lineage import Ancestor, taken
from marin_dsl.lineage.environment import environment_of, start_of
from marin_dsl.lineage.failures import place
from marin_dsl.lineage.inspection import called
from marin_dsl.pages.content import Curves, Page
from marin_dsl.pages.evidence import ErrorEvidence, Evidence, NodeEvidence
from marin_dsl.store import Store
from marin_dsl.uncommitted import is_dirty


def collect(store: Store, page: Page, key: bytes) -> Evidence:
    """The evidence of an evaluated page, or of whatever a page is made about.

    Args:
        store: where it was evaluated.
        page: what its operator returned.
        key: recipe key of the page's expression.

    Raises:
        LookupError: the store has no record of the expression.
    """
    found = lineage.ancestors(store, key)
    shown, demanded = taken.shown(found, key), taken.demanded(found, key)
    run = _run(found, key)
    start = start_of(store, run)
    reasons = start.get("reasons", {})
    facts, packages, commit, dirty = _environment(store, start)
    return Evidence(
        target=start.get("target", ""),
        command=start.get("command", ""),
        nodes=tuple(
            _node(store, found, ancestor, run, reasons)
            if ancestor.key in demanded or _folds(ancestor)
            else _untaken(ancestor)
            for ancestor in found.values()
            if ancestor.key in shown
        ),
        root=format_digest(key),
        label=found[key].recipe.get("label") or _label(start, key),
        run_id=run,
        created=start.get("started", ""),
        seconds=_seconds(store, page, found, key),
        environment=facts,
        packages=packages,
        commit=commit,
        dirty=dirty,
        elapsed=_elapsed(store, run, start),
    )


def _run(found: Mapping[bytes, Ancestor], key: bytes) -> str:
    """The run that computed an expression; of one that is inline, the latest that computed something below it."""
    own = found[key].record
    records = [own] if own is not None else [met.record for met in found.values() if met.record is not None]
    return max((record["provenance"]["run"] for record in records), default="")


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _folds(ancestor: Ancestor) -> bool:
    """Whether it is drawn as a part of an edge, and has no look of its own."""
    return ancestor.inline and len(ancestor.references) == 1


def _untaken(ancestor: Ancestor) -> NodeEvidence:
    return NodeEvidence(
        key=format_digest(ancestor.key),
        operator=ancestor.recipe["operator"]["name"],
        title=called(ancestor.recipe),
        status="untaken",
        reason="not needed: no choice went on with it",
        arguments=tuple((name, short(value, 120)) for name, value in arguments(ancestor.recipe).items()),
        depends_on=tuple(dict.fromkeys(map(format_digest, ancestor.references))),
    )


def _label(start: Mapping[str, Any], key: bytes) -> str:
    return next((root["label"] or "" for root in start.get("roots", ()) if parse_digest(root["recipe"]) == key), "")


def _elapsed(store: Store, run: str, start: Mapping[str, Any]) -> float | None:
    end = store.last(f"runs/{run}/end") if start else None
    return None if end is None else end.get("seconds")


def _node(
    store: Store, found: Mapping[bytes, Ancestor], ancestor: Ancestor, run: str, reasons: Mapping[str, str]
) -> NodeEvidence:
    key = format_digest(ancestor.key)
    provenance = (ancestor.record or {}).get("provenance", {})
    served = provenance.get("run") != run
    blamed = tuple(map(format_digest, lineage.blamed(found, ancestor.key)))
    return NodeEvidence(
        key=key,
        operator=ancestor.recipe["operator"]["name"],
        title=called(ancestor.recipe),
        status=_status(ancestor),
        served=served,
        reason=_reason(ancestor, reasons.get(key), served),
        seconds=provenance.get("seconds"),
        peak_memory=provenance.get("peak_memory"),
        flops=_number(ancestor.observation(store, "flops")),
        arguments=tuple((name, short(value, 120)) for name, value in arguments(ancestor.recipe).items()),
        depends_on=tuple(dict.fromkeys(map(format_digest, _drawn(ancestor)))),
        continued="" if ancestor.continued is None else format_digest(ancestor.continued),
        passed_over=tuple(map(format_digest, taken.passed_over(ancestor))),
        error=_error(ancestor),
        blamed=blamed if _status(ancestor) == "skipped" else (),
    )


def _drawn(ancestor: Ancestor) -> list[bytes]:
    """What an expression is drawn with an edge from; the template of a map is no expression that anything came of."""
    return [*taken.needed(ancestor), *taken.passed_over(ancestor)]


def _status(ancestor: Ancestor) -> Any:
    if ancestor.inline:
        return "inline"
    if ancestor.result is not None:
        return "ok"
    return "failed" if ancestor.failed is not None else "skipped"


def _reason(ancestor: Ancestor, reason: str | None, served: bool) -> str:
    if ancestor.inline:
        return ""
    if ancestor.record is None:
        return "not evaluated: something it needs failed"
    if served:
        return f"served: computed by run {ancestor.record['provenance']['run']}"
    return reason or "not evaluated before"


def _error(ancestor: Ancestor) -> ErrorEvidence | None:
    failed = ancestor.failed
    if failed is None:
        return None
    return ErrorEvidence(
        failed.kind, failed.exception, failed.message, failed.traceback, place(failed.traceback), failed.attempts
    )


def _seconds(store: Store, page: Page, found: Mapping[bytes, Ancestor], key: bytes) -> dict[tuple[str | int, ...], Any]:
    """For each curve that names its source: the seconds that the source observed at the curve's points."""
    measured = {}
    for section in page.sections:
        for series in section.series if isinstance(section, Curves) else ():
            source = None if series.source is None else lineage.at_path(found, key, series.source)
            seconds = None if source is None else found[source].observation(store, "seconds")
            if series.source is not None and seconds is not None:
                measured[series.source] = seconds
    return measured


def _environment(store: Store, start: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str], str, bool]:
    found = environment_of(store, start)
    if not found:
        return {}, {}, "", False
    memory = found.get("memory")
    facts = {
        "Python": f"{found.get('implementation', '')} {found['python']}".strip(),
        "Platform": found.get("platform", "unknown"),
        "Processor": f"{found.get('processor', 'unknown')}, {found.get('cores', '?')} cores",
        "Memory": f"{memory / 2**30:.1f} GiB" if memory else "unknown",
        "Accelerators": ", ".join(found.get("accelerators", ())),
        "Note": start.get("note", ""),
    }
    shown = {name: text for name, text in facts.items() if text}
    return shown, found.get("packages", {}), found.get("commit") or "", is_dirty(found)
