"""Where a value came from and what was made from it, read from records alone, without the project's code."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from marin_dsl.encoding import LeafMissing, Named, Undecodable
from marin_dsl.expression.inline import INLINE, Choice, InlineFunction
from marin_dsl.expression.recipe import Reference, arguments, references
from marin_dsl.outcome import Failed
from marin_dsl.store import Store, StoredValue
from marin_dsl.worker import failure_of


class NotRecorded(LookupError):
    """A store has no record of an expression."""


@attrs.frozen(eq=False)
class Ancestor:
    """One recorded expression, and what became of it.

    Attributes:
        key: recipe key.
        recipe: the recorded structure.
        result: the record of its result, if it has one.
        failed: its latest failure, if that is what there is.
        record: the record of the result or of the failure.
        continued: the expression whose outcome became its own, for one that chose it or whose operator returned it.
    """

    key: bytes
    recipe: dict[str, Any]
    result: dict[str, Any] | None
    failed: Failed | None
    record: dict[str, Any] | None
    continued: bytes | None = None

    @property
    def inline(self) -> bool:
        """Whether it is a projection, arithmetic or `attempt`, of which no result is kept."""
        return bool(self.recipe["operator"]["inline"])

    @property
    def attempts(self) -> bool:
        """Whether it takes an outcome as a value, so that nothing above it is skipped because of a failure below."""
        operator = INLINE.get(self.recipe["operator"]["name"]) if self.inline else None
        return isinstance(operator, InlineFunction | Choice) and operator.of_outcome

    @property
    def references(self) -> list[bytes]:
        """Recipe keys of what it refers to, and of what it went on with."""
        return _with(references(self.recipe), self.continued)

    def observation(self, store: Store, name: str) -> Any:
        """What its operator observed under a name; None where it did not, or where that is gone."""
        seen = (self.result or {}).get("observations", {}).get(name)
        try:
            return None if seen is None else store.get(StoredValue.from_record(seen))
        except (LeafMissing, Undecodable):
            return None


def _with(keys: list[bytes], continued: bytes | None) -> list[bytes]:
    return keys if continued is None or continued in keys else [*keys, continued]


Status = Literal["ok", "failed", "inline", "not evaluated"]


def recorded(store: Store, key: bytes) -> Ancestor:
    """One expression.

    Raises:
        NotRecorded: the store has no record of it.
    """
    return _ancestor(store, key, _recipe(store, key), store.continuation(key))


def _recipe(store: Store, key: bytes) -> dict[str, Any]:
    found = store.recipe(key)
    if found is None:
        raise NotRecorded(f"store {store.url} has no record of the expression sha256:{key.hex()}; evaluate it first")
    return found


@attrs.define(eq=False)
class Branch:
    """An expression of a lineage.

    Attributes:
        key: recipe key.
        recipe: the recorded structure.
        references: what it was made from, or what was made from it.
    """

    key: bytes
    recipe: dict[str, Any]
    references: list[Branch] = attrs.field(factory=list, repr=False)

    @property
    def title(self) -> str:
        """What people call it."""
        return str(self.recipe["title"])

    @property
    def inline(self) -> bool:
        """Whether no result of it is kept."""
        return bool(self.recipe["operator"]["inline"])


def origins(store: Store, key: bytes) -> Branch:
    """An expression with all that it was made from.

    Raises:
        NotRecorded: the store has no record of the expression.
    """
    found = dict(below(store, {key: _recipe(store, key)}))
    recipes = {key: recipe for key, (recipe, _) in found.items()}
    edges = {key: _with(references(recipe), continued) for key, (recipe, continued) in found.items()}
    return _branches(key, recipes, edges)


def below(
    store: Store, roots: Mapping[bytes, dict[str, Any]]
) -> Iterator[tuple[bytes, tuple[dict[str, Any], bytes | None]]]:
    """Every recorded expression below the given ones: its structure, and what it went on with; each once, iterative."""
    seen, continuations = set(roots), _Beside(store)
    stack = list(roots.items())
    while stack:
        key, recipe = stack.pop()
        continued = continuations.continuation(key)
        yield key, (recipe, continued)
        for reference in _with(references(recipe), continued):
            if reference not in seen:
                seen.add(reference)
                found = store.recipe(reference)
                if found is not None:
                    stack.append((reference, found))


class _Beside:
    """What is recorded beside structures of expressions; few have it, and a listing of a shard tells which at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shards: dict[str, frozenset[str]] = {}

    def _has(self, key: bytes, suffix: str) -> bool:
        digits = key.hex()
        shard = digits[:2]
        if shard not in self._shards:
            names = self._store.files.names(f"recipes/{shard}")
            self._shards[shard] = frozenset(found for found in names if not found.endswith(".json"))
        return digits[2:] + suffix in self._shards[shard]

    def continuation(self, key: bytes) -> bytes | None:
        """What an expression went on with."""
        return self._store.continuation(key) if self._has(key, ".next") else None

    def call(self, branch: Branch) -> bytes | None:
        """The call that an expression led to; one without inputs is known by its recipe key."""
        if not branch.recipe["references"] and not self._has(branch.key, ".call"):
            return branch.key
        return self._store.call_of(branch.key)


def uses(store: Store, key: bytes) -> Branch:
    """An expression with all that was made from it: every record of the store is looked at.

    Raises:
        NotRecorded: the store has no record of the expression.
    """
    _recipe(store, key)
    recipes, continuations = dict(_all_recipes(store)), _Beside(store)
    users: dict[bytes, list[bytes]] = {}
    for user, recipe in recipes.items():
        for used in _with(references(recipe), continuations.continuation(user)):
            users.setdefault(used, []).append(user)
    return _branches(key, recipes, users)


def _branches(root: bytes, recipes: Mapping[bytes, dict[str, Any]], edges: Mapping[bytes, Sequence[bytes]]) -> Branch:
    """The branches that are reached from a root; iterative, each expression once."""
    found = {root: Branch(root, recipes[root])}
    stack = [root]
    while stack:
        branch = found[stack.pop()]
        for key in dict.fromkeys(edges.get(branch.key, ())):
            if key not in found and key in recipes:
                found[key] = Branch(key, recipes[key])
                stack.append(key)
            if key in found:
                branch.references.append(found[key])
    return found[root]


def _all_recipes(store: Store) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for shard in store.files.names("recipes"):
        for name in store.files.names(f"recipes/{shard}"):
            digits = shard + name.removesuffix(".json")
            if name.endswith(".json") and re.fullmatch("[0-9a-f]{64}", digits):
                key = bytes.fromhex(digits)
                recipe = store.recipe(key)
                if recipe is not None:
                    yield key, recipe


def every(root: Branch) -> Iterator[Branch]:
    """A branch and all below it, each once, the nearest first."""
    seen, queue = {root.key}, deque([root])
    while queue:
        branch = queue.popleft()
        yield branch
        for found in branch.references:
            if found.key not in seen:
                seen.add(found.key)
                queue.append(found)


def folded(root: Branch) -> Branch:
    """A lineage without what is inline, the root aside: each call refers to the calls behind it."""
    found = {branch.key: Branch(branch.key, branch.recipe) for branch in every(root)}
    for branch in every(root):
        if branch.inline and branch is not root:
            continue
        seen: set[bytes] = set()
        stack = list(reversed(branch.references))
        while stack:
            other = stack.pop()
            if other.key in seen:
                continue
            seen.add(other.key)
            if other.inline:
                stack.extend(reversed(other.references))
            else:
                found[branch.key].references.append(found[other.key])
    return found[root.key]


@attrs.frozen
class Became:
    """What became of an expression.

    Attributes:
        status: whether it has a value.
        seconds: how long it ran.
        run: id of the run that ran it.
        digest: digest of its value.
    """

    status: Status
    seconds: float | None = None
    run: str | None = None
    digest: str | None = None


def became(store: Store, branch: Branch) -> Became:
    """What became of an expression of a lineage."""
    return _became(store, branch, None if branch.inline else store.call_of(branch.key))


def outcomes(store: Store, root: Branch) -> Iterator[tuple[Branch, Became]]:
    """A branch and all below it, each with what became of it, the nearest first."""
    beside = _Beside(store)
    for branch in every(root):
        yield branch, _became(store, branch, None if branch.inline else beside.call(branch))


def _became(store: Store, branch: Branch, call: bytes | None) -> Became:
    if branch.inline:
        return Became("inline")
    result = None if call is None else store.result(call)
    record = result if call is None or result is not None else store.last_failure(call)
    if record is None:
        return Became("not evaluated")
    seconds, run = record["provenance"]["seconds"], record["provenance"]["run"]
    return Became("failed", seconds, run) if result is None else Became("ok", seconds, run, result["value"]["digest"])


def dot(root: Branch, *, down: bool = False) -> str:
    """A lineage as a graph in the language of Graphviz; arrows go from what was used to what was made.

    Args:
        root: of the lineage.
        down: its references are what was made from it.
    """
    lines = ["digraph lineage {", "  rankdir=BT;", "  node [shape=box, fontname=monospace];"]
    for branch in every(root):
        shape = ", style=dashed" if branch.inline else ""
        lines.append(f"  {_quoted(branch.key.hex()[:16])} [label={_quoted(branch.title)}{shape}];")
    for branch in every(root):
        for other in branch.references:
            ends = (branch, other) if down else (other, branch)
            lines.append("  " + " -> ".join(_quoted(end.key.hex()[:16]) for end in ends) + ";")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def ancestors(store: Store, key: bytes) -> dict[bytes, Ancestor]:
    """An expression and everything below it, by recipe key.

    Raises:
        NotRecorded: the store has no record of the expression.
    """
    roots = {key: _recipe(store, key)}
    return {found: _ancestor(store, found, recipe, continued) for found, (recipe, continued) in below(store, roots)}


def _ancestor(store: Store, key: bytes, recipe: dict[str, Any], continued: bytes | None) -> Ancestor:
    call = None if recipe["operator"]["inline"] else store.call_of(key)
    if call is None:
        return Ancestor(key, recipe, None, None, None, continued)
    result = store.result(call)
    failure = store.last_failure(call) if result is None else None
    return Ancestor(key, recipe, result, failure_of(failure) if failure else None, result or failure, continued)


def blamed(found: Mapping[bytes, Ancestor], key: bytes) -> list[bytes]:
    """The failed ancestors because of which an expression has no value."""
    seen: set[bytes] = set()
    stack, failed = list(found[key].references), []
    while stack:
        current = stack.pop()
        if current in seen or current not in found:
            continue
        seen.add(current)
        if found[current].failed is not None:
            failed.append(current)
        elif found[current].result is None:
            stack.extend(_decisive(found[current]))
    return failed


def _decisive(ancestor: Ancestor) -> list[bytes]:
    """What an expression has no value without: for one that takes outcomes as values, what it chose."""
    if not ancestor.attempts:
        return ancestor.references
    return [] if ancestor.continued is None else [ancestor.continued]


def at_path(found: Mapping[bytes, Ancestor], key: bytes, path: Sequence[str | int]) -> bytes | None:
    """The recipe key at a path among an expression's arguments, such as `("runs", 3, "value")`; None if there is none.

    Inline nodes at the end are followed to what they were made from.
    """
    place: Any = arguments(found[key].recipe)
    for step in path:
        if isinstance(place, Named):
            place = place.fields
        try:
            place = place[step]
        except (KeyError, IndexError, TypeError):
            return None
    if not isinstance(place, Reference):
        return None
    current = place.key
    while current in found and found[current].inline and found[current].references:
        chosen = found[current].continued
        if chosen is not None:
            current = chosen
            continue
        of = arguments(found[current].recipe).get("value")
        current = of.key if isinstance(of, Reference) else found[current].references[0]
    return current
