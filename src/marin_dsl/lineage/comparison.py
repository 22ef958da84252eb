"""How two experiments differ: recipe, code, environment and result; of what is recorded, from records alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from marin_dsl import labels
from marin_dsl.code_identity import diff
from marin_dsl.encoding import LeafMissing, Undecodable, decode, format_digest
from marin_dsl.expression import Expression, walk
from marin_dsl.expression.recipe import shortened, structure
from marin_dsl.lineage.difference import Change, alike, difference
from marin_dsl.lineage.environment import environment_of, start_of
from marin_dsl.lineage.results import ABSENT, ValueChange, value_changes
from marin_dsl.lineage.subject import Subject, SubjectMissing
from marin_dsl.operator import Operator
from marin_dsl.planning.explanation import recorded_definitions
from marin_dsl.store import Store, StoredValue


@attrs.frozen
class Side:
    """One of the two experiments.

    Attributes:
        name: how it was named.
        title: what people call it.
        recipe: recipe key.
        digest: digest of its value, if it has one.
        run: id of the run that computed it, or by which it was named.
        started: when that run began, ISO 8601.
        command: the command line of that run.
        note: what the user noted about that run.
        seconds: how long its own call took.
    """

    name: str
    title: str
    recipe: str
    digest: str | None = None
    run: str | None = None
    started: str = ""
    command: str = ""
    note: str = ""
    seconds: float | None = None


@attrs.frozen
class CodeChange:
    """The code of an operator differs.

    Attributes:
        operator: its name.
        version: the version that both have: the recipes are equal in spite of the difference.
        patch: unified diff, definition by definition; empty where one side was not recorded.
    """

    operator: str
    version: str | None
    patch: str


@attrs.frozen
class Fact:
    """Something about the environment differs."""

    name: str
    old: str
    new: str


@attrs.frozen
class Comparison:
    """How two experiments differ; all is empty if nothing does.

    Attributes:
        old: the one that was named first.
        new: the other one.
        recipe: changes of arguments, versions, code; those that are no mere consequence of others first.
        code: operators whose code differs, also where a version hides it from the recipe.
        environment: packages, interpreter, machine, commit, uncommitted changes.
        result: places at which the values differ.
        unread: why results could not be compared; empty if they were.
    """

    old: Side
    new: Side
    recipe: tuple[Change, ...]
    code: tuple[CodeChange, ...]
    environment: tuple[Fact, ...]
    result: tuple[ValueChange, ...]
    unread: str = ""


def compare(store: Store, old: Subject, new: Subject) -> Comparison:
    """How two experiments differ.

    Args:
        store: where they are recorded.
        old: the one to start from.
        new: the one that it is compared with.

    Raises:
        SubjectMissing: one of them is no expression.
    """
    one, other = _Known(store, old), _Known(store, new)
    found = difference(one.key, other.key, one.recipe, other.recipe, _definitions_of(one, other))
    result, unread = _results(one, other)
    return Comparison(
        one.side(),
        other.side(),
        tuple(sorted(found.changes, key=lambda change: change.inherited)),
        tuple(_code(one, other, found.recoded)),
        tuple(environment_changes(one.environment(), other.environment())),
        result,
        unread,
    )


def paired(old: tuple[Subject, ...], new: tuple[Subject, ...]) -> list[tuple[Subject, Subject]]:
    """What is to be compared with what, when names stand for several expressions: by label, else by position.

    Raises:
        SubjectMissing: there are more on one side than on the other one.
    """
    if len(old) != len(new):
        raise SubjectMissing(
            f"{old[0].name if old else 'the first'} stands for {len(old)} expressions and "
            f"{new[0].name if new else 'the second'} for {len(new)}: name one of each (their labels, or their digests)"
        )
    by_label = {each.label: each for each in new}
    if len(by_label) == len(new) and {each.label for each in old} == set(by_label):
        return [(each, by_label[each.label]) for each in old]
    return list(zip(old, new, strict=True))


def recorded_value(store: Store, subject: Subject) -> tuple[bytes, StoredValue | None]:
    """Recipe key of something that is recorded, and where its value is, if it has one.

    Raises:
        SubjectMissing: it is not recorded, or is no expression.
    """
    known = _Known(store, subject)
    if store.recipe(known.key) is None:
        raise SubjectMissing(f"store {store.url} has no record of {subject.name}; evaluate it first")
    return known.key, known.stored()


class _Known:
    """What is known of one side."""

    def __init__(self, store: Store, subject: Subject) -> None:
        if subject.recipe is None:
            raise SubjectMissing(
                f"{subject.name} is no expression, so there is nothing to compare; name a label or a key"
            )
        self.store, self.subject, self.key = store, subject, subject.recipe
        self.graph: dict[bytes, Expression[Any]] = {}
        if subject.expression is not None:
            self.graph = {found.key: found for found in walk(subject.expression)}
        if self.recipe(self.key) is None:
            raise SubjectMissing(f"store {store.url} has no record of {subject.name}; evaluate it first")
        call = store.call_of(self.key)
        self.result = None if call is None else store.result(call)
        failure = store.last_failure(call) if call is not None and self.result is None else None
        self.provenance: Mapping[str, Any] = (self.result or failure or {}).get("provenance", {})
        self.run = subject.run or self.provenance.get("run") or self._label_run()
        self.start = start_of(store, self.run)

    def _label_run(self) -> str | None:
        if self.subject.label is None:
            return None
        return next((found.run for found in labels.log(self.store, self.subject.label)), None)

    def recipe(self, key: bytes) -> dict[str, Any] | None:
        found = self.graph.get(key)
        return self.store.recipe(key) if found is None else structure(found)

    def definitions(self, key: bytes, record: Mapping[str, Any]) -> Mapping[str, str]:
        found = self.graph.get(key)
        if found is not None and isinstance(found.operator, Operator):
            return found.operator.code.listing
        return recorded_definitions(self.store, record)

    def stored(self) -> StoredValue | None:
        """Where its value is: as the label recorded it, else as its call left it."""
        if self.subject.label is not None and self.subject.run is None and self.subject.expression is None:
            entry = labels.current(self.store, self.subject.label)
            if entry is not None and entry.recipe == self.key:
                return entry.value
        return None if self.result is None else StoredValue.from_record(self.result["value"])

    def environment(self) -> Mapping[str, Any]:
        return environment_of(self.store, self.start, whole=True)

    def side(self) -> Side:
        stored, recipe = self.stored(), self.recipe(self.key)
        assert recipe is not None
        return Side(
            self.subject.name,
            recipe["title"],
            format_digest(self.key),
            None if stored is None else format_digest(stored.digest),
            self.run,
            self.start.get("started", ""),
            self.start.get("command", ""),
            self.start.get("note", ""),
            self.provenance.get("seconds"),
        )


def _definitions_of(one: _Known, other: _Known) -> Any:
    def found(key: bytes, record: Mapping[str, Any]) -> Mapping[str, str]:
        return (other if key in other.graph else one).definitions(key, record)

    return found


def _code(one: _Known, other: _Known, pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[CodeChange]:
    """Operators whose code differs."""
    for old, new in pairs:
        before, after = one.recipe(old), other.recipe(new)
        assert before is not None
        assert after is not None
        listings = one.definitions(old, before), other.definitions(new, after)
        versions = {before["operator"]["version"], after["operator"]["version"]}
        yield CodeChange(
            after["operator"]["name"],
            versions.pop() if len(versions) == 1 else None,
            diff(*listings) if all(listings) else "",
        )


_FACTS = ("python", "implementation", "platform", "processor", "cores", "memory", "accelerators", "commit")


def environment_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Fact]:
    """What differs between two recorded environments; nothing if one of them is not known."""
    if not old or not new:
        return
    for name in _FACTS:
        before, after = _fact(old.get(name)), _fact(new.get(name))
        if before != after:
            yield Fact(name, before, after)
    if not alike(old.get("patch"), new.get("patch")):
        yield Fact("uncommitted changes", _patched(old.get("patch")), _patched(new.get("patch")))
    yield from _members("untracked", _untracked(old), _untracked(new))
    yield from _members("package", old.get("packages", {}), new.get("packages", {}))


def _members(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Fact]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield Fact(f"{kind} {name}", old.get(name, ABSENT), new.get(name, ABSENT))


def _untracked(environment: Mapping[str, Any]) -> dict[str, str]:
    """Untracked files with the beginnings of their digests, as far as these were recorded."""
    digests = environment.get("digests", {})
    return {name: digests.get(name, "there")[:15] for name in environment.get("untracked", ())}


def _patched(patch: Any) -> str:
    text = patch.decode("utf-8", "replace") if isinstance(patch, bytes) else patch
    if text is not None and not isinstance(text, str):
        return "a patch that is gone"  # its blob was large, and is in the store no more
    lines = (text or "").splitlines()
    files = [line.rpartition(" b/")[2] for line in lines if line.startswith("diff --git ")]
    return shortened(f"{len(lines)} lines in {', '.join(files)}", 80) if lines else "none"


def _fact(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


_READABLE = 64 << 20
"""Bytes up to which values are looked into."""


def _results(one: _Known, other: _Known) -> tuple[tuple[ValueChange, ...], str]:
    old, new = one.stored(), other.stored()
    missing = [known.subject.name for known, stored in ((one, old), (other, new)) if stored is None]
    if old is None or new is None:
        return (), f"{' and '.join(dict.fromkeys(missing))} {'has' if len(missing) == 1 else 'have'} no stored value"
    if old.digest == new.digest:
        return (), ""
    try:
        before, after = (_read(known.store, stored) for known, stored in ((one, old), (other, new)))
    except (LeafMissing, Undecodable) as error:
        return (), str(error)
    return tuple(value_changes(before, after)), ""


def _read(store: Store, stored: StoredValue) -> Any:
    data = store.manifest(stored)
    if len(data) > _READABLE:
        raise Undecodable(f"the value {format_digest(stored.digest)} is too large to be compared part by part")
    small = sum(size for _, size in stored.leaves) <= _READABLE
    return decode(data, read_leaf=store.read_leaf, lazy=not small, nameless=True)
