"""Why an expression has to run: what changed since the last run of the same label, or what is missing."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from marin_dsl import labels
from marin_dsl.expression import Expression
from marin_dsl.labels.drift import recorded_definitions
from marin_dsl.lineage.difference import Change, differences, reasons
from marin_dsl.operator import Operator
from marin_dsl.planning.node import Node
from marin_dsl.planning.resolution import Resolution
from marin_dsl.store import Store


def explain(resolution: Resolution) -> dict[bytes, str]:
    """Why each expression that is not served has to run: by recipe key.

    What changed is told against the last run of the root's label; without a label there is nothing to compare with.
    """
    store = resolution.store
    wanted = [node for node in resolution.nodes.values() if not node.inline and node.how in ("run", None)]
    if not wanted:
        return {}
    found: dict[bytes, str] = {}
    for changes in changed(resolution):
        found |= reasons(changes)
    return {node.expression.key: found.get(node.expression.key) or _unchanged(store, node) for node in wanted}


def changed(resolution: Resolution) -> Iterator[list[Change]]:
    """For each root that has a label: how it differs from what was last run under that label."""
    store = resolution.store

    def recipe(key: bytes) -> dict[str, Any] | None:
        node = resolution.nodes.get(key)
        return store.recipe(key) if node is None else node.record

    for root in resolution.roots:
        earlier = baseline(store, root)
        if earlier is not None:
            yield differences(
                earlier,
                root.key,
                store.recipe,
                recipe,
                functools.partial(_definitions, resolution),
            )


def _definitions(resolution: Resolution, key: bytes, record: Mapping[str, Any]) -> Mapping[str, str]:
    """The code of an expression's operator: of this process if it is in the graph, else as it was recorded."""
    node = resolution.nodes.get(key)
    if node is not None and isinstance(node.expression.operator, Operator):
        return node.expression.operator.code.listing
    return recorded_definitions(resolution.store, record)


def _unchanged(store: Store, node: Node) -> str:
    """Why a node runs that is no changed form of an earlier one."""
    if node.led is None:
        return "not evaluated before"
    if node.call is not None and (failure := store.last_failure(node.call)) is not None:
        return f"tried again: it failed with {failure['failure']['exception'].rpartition('.')[2]}"
    if node.call is not None and (because := store.skipped(node.call)) is not None:
        return f"tried again: it went on with what failed with {because[0]['exception'].rpartition('.')[2]}"
    if node.volatile or node.led[1]:
        return "it, or what it is made from, is asked for anew in each run"
    if store.result(node.led[0]) is not None:
        return "something that failed under it is tried again"
    return "it has no result: an earlier run was interrupted, or the result was deleted"


def baseline(store: Store, root: Expression[Any]) -> bytes | None:
    """The recipe that this root's label stood for in its last run, or was recorded for."""
    if root.label is None:
        return None
    last = labels.last_run(store, root.label)
    if last is not None:
        return last
    entry = labels.current(store, root.label)
    return None if entry is None else entry.recipe
