"""The value that a label stands for, as an expression."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from marin_dsl.expression import Expression, caller
from marin_dsl.expression.annotations import Label
from marin_dsl.expression.inline import INLINE, Recall
from marin_dsl.labels.drift import Drift
from marin_dsl.labels.log import current
from marin_dsl.labels.naming import check_label
from marin_dsl.store import Store, StoredValue


class LabelMissing(LookupError):
    """A store does not know a label, or has lost what it stood for."""


def recall(label: str) -> Expression[Any]:
    """The value that a label stands for in the store of the evaluation, whatever it was made from.

    The label is looked up in each run: where it stands for another value by then, what is made of it runs again.

    Args:
        label: `name@version`.

    Raises:
        ValueError: that is no label.
    """
    name, at, version = label.partition("@") if isinstance(label, str) else ("", "", "")
    if not at:
        raise ValueError(f"recall({label!r}): a label is written name@version, such as recall('first-model@1.0')")
    return Expression.apply(INLINE["recall"], {"label": str(check_label(name, version))}, origin=caller(1))


def recalled(store: Store, text: str) -> StoredValue:
    """Where the value of a label is.

    Raises:
        LookupError: the store does not know the label, or has lost its value.
    """
    name, _, version = text.partition("@")
    found = current(store, Label(name, version))
    if found is None:
        versions = [each.removeprefix("@") for each in store.files.names(f"labels/{name}") if each.startswith("@")]
        none = f"it has no label of the name {name}"
        there = f"of {name} it has the versions {', '.join(versions)}" if versions else none
        raise LabelMissing(f"store {store.url} has no label {text}; {there}")
    if not store.complete(found.value):
        raise LabelMissing(f"store {store.url} has lost the value of {text}; evaluate what it was made from again")
    return found.value


def recorded(roots: Sequence[Expression[Any]], drifts: Iterable[Drift]) -> tuple[Expression[Any], ...]:
    """The roots, with what their labels stand for in the place of those that drifted."""
    drifted = {drift.label for drift in drifts}
    return tuple(recall(str(root.label)) if root.label in drifted else root for root in roots)


INLINE["recall"] = Recall("recall")
