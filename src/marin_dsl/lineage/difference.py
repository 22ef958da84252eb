"""How two recorded expressions differ: field by field, through their dependencies, to the changed leaves."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from marin_dsl.encoding import Named, NamedFunction, encode, format_digest, parse_digest
from marin_dsl.expression.recipe import Lookup, Reference, arguments, facts, short, shortened


@attrs.frozen
class Change:
    """One difference between an earlier expression and a later one.

    Attributes:
        node: recipe key of the later expression at which it shows.
        title: what people call that expression.
        path: the place among its arguments (`optimizer.learning_rate`), or `code`, `version`, `operator`.
        text: what was there and what is there now.
        inherited: the change is only that an input changed.
    """

    node: bytes
    title: str
    path: str
    text: str
    inherited: bool = False

    def __str__(self) -> str:
        return f"{self.path} {self.text}".strip()


Definitions = Callable[[bytes, Mapping[str, Any]], Mapping[str, str]]
"""From a recipe key and its structure to the source text of every definition that its operator's code consists of."""


def differences(
    old: bytes,
    new: bytes,
    old_lookup: Lookup,
    new_lookup: Lookup,
    definitions: Definitions = lambda key, record: {},
) -> list[Change]:
    """All changes from one expression to another, the roots' first; empty if and only if the keys are equal.

    Expressions are paired by their place among the arguments. In a list, equal elements are paired first and the rest
    in order, so that a change in the middle of a sweep is one change.

    Args:
        old: recipe key of the earlier expression.
        new: recipe key of the later one.
        old_lookup: the structures of the earlier graph.
        new_lookup: the structures of the later graph.
        definitions: the code of an operator, so that a change of code can be told by what changed in it.
    """
    return difference(old, new, old_lookup, new_lookup, definitions).changes


@attrs.frozen
class Difference:
    """How two expressions differ.

    Attributes:
        changes: all changes, the roots' first.
        recoded: recipe keys of calls that were compared with one another and of which the code differs, also where a
            version hides it; a pair for each two codes.
    """

    changes: list[Change]
    recoded: list[tuple[bytes, bytes]]


def difference(
    old: bytes,
    new: bytes,
    old_lookup: Lookup,
    new_lookup: Lookup,
    definitions: Definitions = lambda key, record: {},
) -> Difference:
    """The same as `differences`, with what was compared."""
    comparison = _Comparison(old_lookup, new_lookup, definitions)
    comparison.pending.append((old, new))
    while comparison.pending:
        comparison.compare(*comparison.pending.popleft())
    return Difference(comparison.changes, list(comparison.recoded.values()))


@attrs.define(eq=False)
class _Comparison:
    old_lookup: Lookup
    new_lookup: Lookup
    definitions: Definitions
    changes: list[Change] = attrs.field(factory=list)
    pending: deque[tuple[bytes, bytes]] = attrs.field(factory=deque)
    recoded: dict[tuple[Any, Any], tuple[bytes, bytes]] = attrs.field(factory=dict)
    seen: set[bytes] = attrs.field(factory=set)
    # Records that were read for their titles and will be wanted again when their turn comes.
    awaited: dict[bytes, dict[str, Any] | None] = attrs.field(factory=dict)

    def compare(self, old: bytes, new: bytes) -> None:
        if old == new or new in self.seen:
            return
        self.seen.add(new)
        known, noted = new in self.awaited, len(self.changes)
        before, after = self.old_lookup(old), self.awaited.pop(new) if known else self.new_lookup(new)
        if before is None or after is None:
            self._note(new, after, "recipe", "is not recorded, so what changed cannot be told")
        elif _kind(before) != _kind(after):
            self._note(new, after, "operator", f"{before['operator']['name']} → {after['operator']['name']}")
        else:
            self._compare_operators(old, new, before, after)
            only = _only_reference(before, after)
            if only is not None:
                self._refer(new, after, *only)
            else:
                self._compare_values(new, after, "", arguments(before), arguments(after))
                self._compare_values(new, after, "facts", facts(before), facts(after))
            if len(self.changes) == noted:
                self._note(new, after, "encoding", "of its arguments or of its identity changed")

    def _compare_operators(self, old: bytes, new: bytes, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        left, right = before["operator"], after["operator"]
        if left.get("code") != right.get("code"):
            self.recoded.setdefault((left.get("code"), right.get("code")), (old, new))
        if left["identity"] == right["identity"]:
            return
        if left["version"] != right["version"]:
            self._note(new, after, "version", f"{left['version'] or 'none'} → {right['version'] or 'none'}")
        elif left["code"] != right["code"]:
            changed = _changed(self.definitions(old, before), self.definitions(new, after))
            self._note(new, after, "code", f"of {_listed(changed) or right['name']} changed")
        for name in sorted({*left["pinned"], *right["pinned"]}):
            was, now = left["pinned"].get(name, "not pinned"), right["pinned"].get(name, "not pinned")
            if was != now:
                self._note(new, after, f"pinned {name}", f"{was} → {now}")

    def _note(self, node: bytes, record: Any, path: str, text: str, inherited: bool = False) -> None:
        self.changes.append(Change(node, record["title"] if record else "?", path, text, inherited))

    def _compare_values(self, node: bytes, record: Any, path: str, old: Any, new: Any) -> None:
        if isinstance(old, Reference) and isinstance(new, Reference):
            if old.key != new.key:
                self._refer(node, record, path, old.key, new.key)
        elif isinstance(old, dict) and isinstance(new, dict):
            self._compare_items(node, record, path, old, new)
        elif isinstance(old, Named) and isinstance(new, Named) and old.name == new.name:
            self._compare_items(node, record, path, old.fields, new.fields)
        elif isinstance(old, list | tuple) and type(old) is type(new):
            self._compare_sequences(node, record, path, list(old), list(new))
        elif _encoded(old) != _encoded(new):
            self._note(node, record, path, f"{self._was(old)} → {self._is(new)}")

    def _was(self, value: Any) -> str:
        return _titled(value, self.old_lookup)

    def _is(self, value: Any) -> str:
        return _titled(value, self.new_lookup)

    def _refer(self, node: bytes, record: Any, path: str, old: bytes, new: bytes) -> None:
        if new not in self.awaited:
            found = self.new_lookup(new)
            if new not in self.seen:
                self.awaited[new] = found
        else:
            found = self.awaited[new]
        self._note(node, record, path, f"changed: {found['title'] if found else '?'}", inherited=True)
        self.pending.append((old, new))

    def _compare_items(
        self, node: bytes, record: Any, path: str, old: Mapping[Any, Any], new: Mapping[Any, Any]
    ) -> None:
        # By encoded key: 1, 1.0 and True are one key for a dict, and three for the encoding.
        before, after = ({_encoded(key): (key, item) for key, item in items.items()} for items in (old, new))
        for code in {**before, **after}:
            key = (after.get(code) or before[code])[0]
            place = f"{path}.{key}" if path else str(key)
            if code not in after:
                self._note(node, record, place, f"{self._was(before[code][1])} → (absent)")
            elif code not in before:
                self._note(node, record, place, f"(absent) → {self._is(after[code][1])}")
            else:
                self._compare_values(node, record, place, before[code][1], after[code][1])

    def _compare_sequences(self, node: bytes, record: Any, path: str, old: list[Any], new: list[Any]) -> None:
        left, right = _unmatched(old, new)
        for (_, before), (position, after) in zip(left, right, strict=False):
            self._compare_values(node, record, f"{path}[{position}]", before, after)
        for position, before in left[len(right) :]:
            self._note(node, record, f"{path}[{position}]", f"{self._was(before)} → (absent)")
        for position, after in right[len(left) :]:
            self._note(node, record, f"{path}[{position}]", f"(absent) → {self._is(after)}")
        if not left and not right and len(old) == len(new) and _encoded(old) != _encoded(new):
            self._note(node, record, path, "has another order")


def _titled(value: Any, lookup: Lookup) -> str:
    """A value as one short line, expressions in it by their titles."""
    text = told(value)
    for key in _expressions_in(value) if _SHORT.search(text) else ():
        found = lookup(key)
        if found is not None:
            text = text.replace(f"<{key.hex()[:8]}>", shortened(found["title"], 40))
    return text


_SHORT = re.compile("<[0-9a-f]{8}>")


def _expressions_in(value: Any, most: int = 10) -> list[bytes]:
    """The first expressions in a value."""
    found: list[bytes] = []
    stack = [value]
    while stack and len(found) < most:
        part = stack.pop()
        if isinstance(part, Reference):
            found.append(part.key)
        elif isinstance(part, Named):
            stack += reversed(list(part.fields.values()))
        elif isinstance(part, dict):
            stack += reversed(list(part.values()))
        elif isinstance(part, list | tuple | set | frozenset):
            stack += reversed(list(part))
    return found


def _only_reference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, bytes, bytes] | None:
    """Path and keys of the one input in which two calls differ; None if there is more to tell."""
    if before["payload"] != after["payload"] or before.get("facts") != after.get("facts"):
        return None
    pairs = enumerate(zip(before["references"], after["references"], strict=True))
    differing = [(number, old, new) for number, (old, new) in pairs if old != new]
    if len(differing) != 1:
        return None
    ((number, old, new),) = differing
    path = _places(tuple(before["payload"])).get(number)
    return None if path is None else (path, parse_digest(old), parse_digest(new))


@functools.lru_cache(1024)
def _places(payload: tuple[str, ...]) -> dict[int, str]:
    """Paths of the inputs among the arguments of calls with one payload, by number; most graphs have few payloads."""
    numbers = [format_digest(number.to_bytes(32, "big")) for number in range(len(payload) - 1)]
    found: dict[int, str] = {}
    stack: list[tuple[str, Any]] = [("", arguments({"payload": payload, "references": numbers}))]
    while stack:
        path, value = stack.pop()
        if isinstance(value, Named):
            value = value.fields
        if isinstance(value, Reference):
            found[int.from_bytes(value.key, "big")] = path
        elif isinstance(value, dict):
            stack += [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            stack += [(f"{path}[{position}]", item) for position, item in enumerate(value)]
    return found


def _kind(record: Mapping[str, Any]) -> tuple[str, bool]:
    return record["operator"]["name"], record["operator"]["inline"]


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Names of the definitions that differ, or that only one side has; the shortest names first."""
    if not old or not new:
        return []
    return sorted(
        (name for name in {**old, **new} if old.get(name) != new.get(name)), key=lambda name: (len(name), name)
    )


def _listed(names: list[str], most: int = 2) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _unmatched(old: list[Any], new: list[Any]) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
    """The elements of two lists that have no equal partner in the other one, with their positions."""
    partners: dict[Any, list[int]] = {}
    for position, item in enumerate(old):
        partners.setdefault(_encoded(item), []).append(position)
    unmatched_new = []
    for position, item in enumerate(new):
        places = partners.get(_encoded(item))
        if places:
            places.pop(0)
        else:
            unmatched_new.append((position, item))
    left = sorted(position for places in partners.values() for position in places)
    return [(position, old[position]) for position in left], unmatched_new


def _encoded(value: Any) -> Any:
    """Something hashable that is equal exactly for equal values: their encodings, never `==`."""
    return encode(_plain(value))


def alike(old: Any, new: Any) -> bool:
    """Whether two values encode alike."""
    return bool(_encoded(old) == _encoded(new))


def told(value: Any, limit: int = 40) -> str:
    """A value as one short line; what does not fit is told by its digest too, for its beginning may be no difference.

    >>> told("x" * 60)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (22d8e1a1)"
    """
    text = str(value) if isinstance(value, NamedFunction) else short(value, limit)
    return f"{text} ({hashlib.sha256(_encoded(value)).hexdigest()[:8]})" if text.endswith("…") else text


def _plain(value: Any) -> Any:
    if isinstance(value, Reference):
        return ("reference", value.key)
    if isinstance(value, NamedFunction):
        return ("function", value.place, value.code)
    if isinstance(value, Named):
        return ("named", value.name, _plain(dict(value.fields)))
    if isinstance(value, dict):
        return ("dict", sorted((_encoded(key), _encoded(item)) for key, item in value.items()))
    if isinstance(value, set | frozenset):
        return (type(value).__name__, sorted(map(_encoded, value)))
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    return value


def reasons(changes: list[Change]) -> dict[bytes, str]:
    """Why each changed expression is another one now: its own changes, or else the inputs that changed."""
    own: dict[bytes, list[Change]] = {}
    for change in changes:
        own.setdefault(change.node, []).append(change)
    return {node: _reason(found) for node, found in own.items()}


def _reason(found: list[Change]) -> str:
    direct = [change for change in found if not change.inherited]
    shown = direct or found
    text = ", ".join(map(str, shown[:2])) if direct else "input " + ", ".join(map(str, shown[:2]))
    return text + (f" and {len(shown) - 2} more" if len(shown) > 2 else "")


def leaves(changes: list[Change], limit: int = 20) -> Iterator[str]:
    """The changes that are no mere consequence of others, at most `limit` lines and then how many more.

    The same change at several expressions (a setting that all arms share) is one line.
    """
    alike: dict[str, list[str]] = {}
    for change in changes:
        if not change.inherited:
            alike.setdefault(str(change), []).append(change.title)
    lines = [f"{_together(titles)}: {text}" for text, titles in alike.items()]
    yield from lines[:limit]
    if len(lines) > limit:
        yield f"… and {len(lines) - limit} more"


def _together(titles: list[str]) -> str:
    return titles[0] if len(titles) == 1 else f"{titles[0]} and {len(titles) - 1} more"
