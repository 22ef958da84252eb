"""Equivalence: somebody says that a recipe, written anew, stands for an old result; whoever wants it is served that."""

from __future__ import annotations

import datetime
from typing import Any

import attrs

from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression import Expression, walk
from marin_dsl.expression.annotations import Label
from marin_dsl.expression.inline import InlineOperator
from marin_dsl.expression.recipe import structure
from marin_dsl.labels.log import Entry, current, user
from marin_dsl.labels.naming import check_label
from marin_dsl.operator import Operator
from marin_dsl.operator.current import by_current_code
from marin_dsl.store import Store
from marin_dsl.store.files import place
from marin_dsl.store.records import write_record


class CannotStandFor(ValueError):
    """A recipe cannot stand for an old result; nothing was changed."""


@attrs.frozen
class Equivalence:
    """Somebody has said that a recipe stands for an old result, or has taken that back.

    Attributes:
        new: recipe key of what stands for it.
        old: the label, or the key, of the old result.
        value: digest of the old result.
        why: why.
        by: who said so.
        since: when, ISO 8601.
        undone: it was taken back.
    """

    new: str
    old: str
    value: str
    why: str
    by: str
    since: str
    undone: bool = False


def same(store: Store, old: str | bytes | Label, new: Expression[Any] | bytes, *, why: str) -> Equivalence:
    """Say that a recipe stands for an old result: evaluating it serves that, and the run says so.

    The old value is recorded under the new recipe, with who said so, when and why; looking it up costs what any other
    look-up does. `undo` takes it back.

    Args:
        store: where.
        old: a label, or the recipe key or call key of something that has a result.
        new: the expression, or its recipe key.
        why: the reason; it is kept.

    Raises:
        CannotStandFor: the old one has no result, the new one has another one or is the old one, or it is a part of
            something.
    """
    if not why.strip():
        raise CannotStandFor("say why the new recipe stands for the old result (--why TEXT): it is kept with it")
    name, record = _old(store, old)
    new = by_current_code([new])[0] if isinstance(new, Expression) else new
    key = new.key if isinstance(new, Expression) else new
    recipe = structure(new) if isinstance(new, Expression) else store.recipe(key)
    _check(store, name, record, key, recipe)
    assert recipe is not None
    store.check(writing=True)
    if isinstance(new, Expression):
        record_recipes(store, new)
    since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    said = Equivalence(format_digest(key), name, record["value"]["digest"], why, user(), since)
    earlier = _result(store, key)
    if earlier is None or "stands_for" in earlier:
        _write(store, key, recipe, record, said)
    store.add(_folder(key), attrs.asdict(said))
    return said


def undo(store: Store, new: Expression[Any] | bytes, *, why: str = "") -> Equivalence:
    """Take back what was said with `same`: the recipe has no result any more, and is evaluated when it is wanted.

    Raises:
        CannotStandFor: nothing of the kind was said.
    """
    key = by_current_code([new])[0].key if isinstance(new, Expression) else new
    said, record = equivalence(store, key), store.result(key)
    if said is None:
        raise CannotStandFor(
            f"nobody has said that {format_digest(key)} stands for something; there is nothing to undo"
        )
    if record is not None and "stands_for" in record:
        if store.call_of(key) == key and store.read(place("recipes", key, ".call")) is not None:
            store.files.remove(place("recipes", key, ".call"))
        store.files.remove(place("results", key, ".json"))
    since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    undone = attrs.evolve(said, why=why, by=user(), since=since, undone=True)
    store.add(_folder(key), attrs.asdict(undone))
    return undone


def equivalence(store: Store, new: bytes) -> Equivalence | None:
    """What a recipe was said to stand for; None if nothing, or if it was taken back."""
    record = store.last(_folder(new))
    if record is None:  # a store to which the result was copied has what was said beside it
        result = store.result(new)
        if result is None or "stands_for" not in result:
            return None
        return Equivalence(format_digest(new), value=result["value"]["digest"], **result["stands_for"])
    if record["undone"]:
        return None
    return Equivalence(**{field.name: record[field.name] for field in attrs.fields(Equivalence)})


def _old(store: Store, old: str | bytes | Label) -> tuple[str, dict[str, Any]]:
    """What people call an old result, and a record with its value."""
    if isinstance(old, str) and not old.startswith("sha256:"):
        name, _, version = old.rpartition("@")
        old = check_label(name, version)
    if isinstance(old, Label):
        entry = current(store, old)
        if entry is None or not store.complete(entry.value):
            what = "is not in" if entry is None else "has lost its value in"
            raise CannotStandFor(f"{old} {what} store {store.url}, so nothing can stand for it")
        record = _result(store, entry.recipe) or {}
        if record.get("value", {}).get("digest") != format_digest(entry.value.digest):
            record = {"value": entry.value.as_record(), "provenance": _provenance(entry)}
        return str(old), record
    key = parse_digest(old) if isinstance(old, str) else old
    found = _result(store, key) or store.result(key)
    if found is None:
        raise CannotStandFor(f"{format_digest(key)} has no result in store {store.url}, so nothing can stand for it")
    return format_digest(key), found


def _result(store: Store, recipe: bytes) -> dict[str, Any] | None:
    call = store.call_of(recipe)
    return None if call is None else store.result(call)


def _check(store: Store, name: str, old: dict[str, Any], key: bytes, recipe: dict[str, Any] | None) -> None:
    if recipe is None:
        raise CannotStandFor(
            f"store {store.url} has no record of {format_digest(key)}; name the new recipe by its target "
            "(package.module:name)"
        )
    if recipe["operator"]["inline"]:
        raise CannotStandFor(
            f"{recipe['title']} is a part or a combination of other values and is never stored itself; say what those "
            "that it is made of stand for"
        )
    there = _result(store, key)
    if there is None or "stands_for" in there:
        return
    if there["call"] == old.get("call"):
        raise CannotStandFor(
            f"{recipe['title']} is the recipe of {name} itself: there is nothing that it could stand for"
        )
    if there["value"]["digest"] != old["value"]["digest"]:
        raise CannotStandFor(
            f"{recipe['title']} has a result of its own, {there['value']['digest']}, which is not that of {name}, "
            f"{old['value']['digest']}: they are not the same; marin diff {name} {format_digest(key)} tells more"
        )


def _write(store: Store, key: bytes, recipe: dict[str, Any], old: dict[str, Any], said: Equivalence) -> None:
    """Record the old value as the result of a call that the new recipe's key stands for."""
    operator = {name: recipe["operator"][name] for name in ("name", "version", "code")}
    stands_for = {"old": said.old, "by": said.by, "since": said.since, "why": said.why}
    call = {"call": said.new, "title": recipe["title"], "operator": operator, "stands_for": stands_for}
    # Somebody decided that this value is the one, so that it is served even if something failed when it was made.
    record = {**_UNKNOWN, **old, **call, "inputs": [], "over_failure": False}
    path = place("results", key, ".json")
    store.files.replace(path, (write_record(path, record),))
    if recipe["references"]:  # a call without inputs is known by its recipe key
        store.put_call(key, key)


_UNKNOWN: dict[str, Any] = {"output": [], "history": [], "observations": {}}


def _provenance(entry: Entry) -> dict[str, Any]:
    """What is known of how a value was made that is the result of no call: when it was recorded, and by which run."""
    when = {"started": entry.since, "ended": entry.since, "seconds": 0.0}
    return {"run": entry.run, "environment": "", **when, "peak_memory": None, "host": "", "pid": 0, "thread": ""}


def record_recipes(store: Store, root: Expression[Any]) -> None:
    """Record the structure of an expression and of all below it, with the code of their operators."""
    listings: dict[bytes, dict[str, Any]] = {}
    for expression in walk(root):
        record, operator = structure(expression), expression.operator
        if not isinstance(operator, InlineOperator):
            assert isinstance(operator, Operator)
            if operator.identity not in listings:
                listings[operator.identity] = store.put(operator.code.listing).as_record()
            record["operator"] = {**record["operator"], "listing": listings[operator.identity]}
        store.put_recipe(expression.key, record)


def _folder(key: bytes) -> str:
    return f"equivalences/{key.hex()}"
