"""Why something runs, or why it ran: what changed, field by field."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import attrs

from marin_dsl import labels
from marin_dsl.encoding import format_digest
from marin_dsl.expression import Expression
from marin_dsl.expression.recipe import references, structure
from marin_dsl.lineage import below
from marin_dsl.lineage.environment import start_of
from marin_dsl.planning import plan_of
from marin_dsl.planning.explanation import changed, explain
from marin_dsl.planning.resolution import Resolution
from marin_dsl.store import Store


@attrs.frozen
class Why:
    """Why one expression would run, or why it ran when it last did.

    Attributes:
        recipe: recipe key.
        title: what people call it.
        when: `now` it would run; or it ran `before`.
        reason: why, in one line.
        changes: what is different since the last run of the label, each as `path old → new`.
        undecided: it is spared if its inputs come out equal.
        run: id of the run that ran it, if it ran before.
        unseen: what the identity of its operator's code cannot see: a change of that runs nothing.
    """

    recipe: str
    title: str
    when: Literal["now", "before"]
    reason: str
    changes: tuple[str, ...] = ()
    undecided: bool = False
    run: str = ""
    unseen: tuple[str, ...] = ()


def why_now(roots: tuple[Expression[Any], ...], store: Store, *, keep_failures: bool = False) -> list[Why]:
    """Why each expression that is not served would run now; inputs first.

    Args:
        roots: the expressions that are wanted.
        store: where results are looked up.
        keep_failures: serve recorded failures.

    Raises:
        LabelConflict: one label stands for two recipes among the roots.
    """
    store.check()
    labels.check_unique(roots)
    resolution = Resolution(roots, store, keep_failures=keep_failures)
    planned = plan_of(resolution, explain(resolution))
    changes: dict[bytes, list[str]] = {}
    for found in changed(resolution):
        for change in found:
            changes.setdefault(change.node, []).append(str(change))
    return [
        Why(
            format_digest(key),
            title,
            "now",
            planned.reasons.get(key, "not evaluated before"),
            tuple(dict.fromkeys(changes.get(key, ()))),
            undecided,
            unseen=_unseen(structure(resolution.nodes[key].expression)),
        )
        for key, title, undecided in planned.runs
    ]


def _unseen(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(recipe["operator"].get("unseen", ()))


def why_before(keys: Iterable[bytes], store: Store) -> list[Why]:
    """Why recorded expressions, and those below them, ran when they last did: in the order in which they did.

    Of those that began in the same moment, inputs come first. Those that never ran are left out.
    """
    starts: dict[str, Mapping[str, Any]] = {}
    found: list[tuple[str, Why]] = []
    roots = {key: recipe for key in keys if (recipe := store.recipe(key)) is not None}
    recipes = {key: recipe for key, (recipe, _) in below(store, roots)}
    inputs_first = graphlib.TopologicalSorter(
        {key: references(recipe) for key, recipe in recipes.items()}
    ).static_order()
    for key in inputs_first:
        if key not in recipes:
            continue  # an input of which nothing is recorded any more
        recipe = recipes[key]
        call = None if recipe["operator"]["inline"] else store.call_of(key)
        record = None if call is None else store.result(call) or store.last_failure(call)
        if record is None:
            continue
        run = record["provenance"]["run"]
        if run not in starts:
            starts[run] = start_of(store, run)
        reason = starts[run].get("reasons", {}).get(format_digest(key), "an equal call of another expression ran")
        started = record["provenance"]["started"]
        found.append(
            (
                f"{run} {started}",
                Why(format_digest(key), recipe["title"], "before", reason, run=run, unseen=_unseen(recipe)),
            )
        )
    return [reason for _, reason in sorted(found, key=lambda each: each[0])]
