"""Moving a label by hand: to whatever a person can name that has a value."""

from __future__ import annotations

from marin_dsl.encoding import format_digest
from marin_dsl.expression.annotations import Label
from marin_dsl.labels.equivalence import record_recipes
from marin_dsl.labels.log import Entry, LabelFixed, current, move
from marin_dsl.lineage.subject import Subject
from marin_dsl.planning.resolution import Resolution
from marin_dsl.store import Store, StoredValue


class NothingToPointAt(LookupError):
    """What a label is to stand for has no value in the store."""


def point(store: Store, label: Label, subject: Subject, *, why: str = "") -> Entry:
    """Let a label stand for something that has a value.

    Args:
        store: where both are.
        label: which.
        subject: what it is to stand for: a target, another label, or the key of a recipe.
        why: the reason; a label whose version does not move by itself needs one.

    Returns:
        What the label stands for now; nothing is written if it did already.

    Raises:
        LabelFixed: the label stands for something else, does not move by itself, and there is no reason.
        NothingToPointAt: the subject has no value yet.
        LabelMoved: somebody else moved the label meanwhile.
    """
    store.check(writing=True)
    entry = current(store, label)
    recipe, value, run = _wanted(store, subject)
    if entry is not None and (entry.recipe, entry.value.digest) == (recipe, value.digest):
        return entry
    if entry is not None and not label.moves and not why.strip():
        raise LabelFixed(
            f"{label} stands for {format_digest(entry.recipe)} since {entry.since} and does not move by itself: say "
            "why it is to stand for something else (--why TEXT), or take another version, or one that ends in dev"
        )
    return move(store, label, recipe, value, run, why=why, after=0 if entry is None else entry.number)


def _wanted(store: Store, subject: Subject) -> tuple[bytes, StoredValue, str]:
    """Recipe key, value and run of what a label is to stand for."""
    named = None if subject.label is None or subject.expression is not None else current(store, subject.label)
    if named is not None and store.complete(named.value):
        return named.recipe, named.value, named.run
    if subject.recipe is None:
        raise NothingToPointAt(f"{subject.name} is a call or a value; a label stands for a recipe: name that")
    call = store.call_of(subject.recipe)
    record = None if call is None else store.result(call)
    if record is not None:
        found = subject.recipe, StoredValue.from_record(record["value"]), str(record["provenance"]["run"])
    else:
        found = subject.recipe, _resolved(store, subject), ""
    if subject.expression is not None:
        record_recipes(store, subject.expression)
    return found


def _resolved(store: Store, subject: Subject) -> StoredValue:
    """The value of what is a part or a combination of others, if these have values."""
    expression = subject.expression
    node = None if expression is None else Resolution((expression,), store).nodes[expression.key]
    if node is not None and node.value is not None:
        return node.value
    if node is None or node.encoded is None:
        raise NothingToPointAt(
            f"{subject.name} has no value in store {store.url}; evaluate it first (marin run TARGET), and name a part "
            "of a value by its target"
        )
    return store.put_encoded(node.encoded)
