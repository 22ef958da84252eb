"""Where a value came from: its ancestors, read from records alone, without the project's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from marin_dsl.encoding import Named
from marin_dsl.outcome import Failed
from marin_dsl.recipe import Reference, arguments, known, references
from marin_dsl.store import Store, StoredValue
from marin_dsl.worker import failure_of


@attrs.frozen(eq=False)
class Ancestor:
    """One recorded expression, and what became of it.

    Attributes:
        key: recipe key.
        recipe: the recorded structure.
        result: the record of its result, if it has one.
        failed: its latest failure, if that is what there is.
        record: the record of the result or of the failure.
    """

    key: bytes
    recipe: dict[str, Any]
    result: dict[str, Any] | None
    failed: Failed | None
    record: dict[str, Any] | None

    @property
    def inline(self) -> bool:
        """Whether it is a projection, arithmetic or `attempt`, of which no result is kept."""
        return bool(self.recipe["operator"]["inline"])

    @property
    def attempts(self) -> bool:
        """Whether it takes an outcome as a value, so that nothing above it is skipped because of a failure below."""
        return self.inline and bool(self.recipe["operator"]["name"] == "attempt")

    @property
    def references(self) -> list[bytes]:
        """Recipe keys of what it refers to."""
        return references(self.recipe)

    def observation(self, store: Store, name: str) -> Any:
        """What its operator observed under a name, or None."""
        seen = (self.result or {}).get("observations", {}).get(name)
        return None if seen is None else store.get(StoredValue.from_record(seen))


def ancestors(store: Store, key: bytes) -> dict[bytes, Ancestor]:
    """An expression and everything below it, by recipe key.

    Raises:
        LookupError: the store has no record of the expression.
    """
    root = store.recipe(key)
    if root is None:
        raise LookupError(f"store {store.url} has no record of the expression sha256:{key.hex()}; evaluate it first")
    return {found: _ancestor(store, found, recipe) for found, recipe in known({key: root}, store.recipe)}


def _ancestor(store: Store, key: bytes, recipe: dict[str, Any]) -> Ancestor:
    call = None if recipe["operator"]["inline"] else store.call_of(key)
    if call is None:
        return Ancestor(key, recipe, None, None, None)
    result = store.result(call)
    failure = store.last_failure(call) if result is None else None
    return Ancestor(key, recipe, result, failure_of(failure) if failure else None, result or failure)


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
        elif found[current].result is None and not found[current].attempts:
            stack.extend(found[current].references)
    return failed


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
        of = arguments(found[current].recipe).get("value")
        current = of.key if isinstance(of, Reference) else found[current].references[0]
    return current
