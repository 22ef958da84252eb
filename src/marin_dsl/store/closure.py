"""What belongs together in a store: a record and its values, an expression and its leaves, a label and its closure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from marin_dsl.expression.recipe import arguments, references
from marin_dsl.store.files import Files
from marin_dsl.store.shapes import is_stored_value
from marin_dsl.store.store import Store
from marin_dsl.store.values import StoredValue, blobs_of


def values_in(record: Any) -> Iterator[StoredValue]:
    """Every stored value that a record names: its value, its observations, a listing, an environment."""
    waiting = [record]
    while waiting:
        part = waiting.pop()
        if is_stored_value(part):
            yield StoredValue.from_record(part)
        elif isinstance(part, dict | list):
            waiting += part.values() if isinstance(part, dict) else part


def blobs_in(record: Any) -> dict[bytes, int | None]:
    """Digests and sizes of all blobs that a record names."""
    return {digest: size for value in values_in(record) for digest, size in blobs_of(value).items()}


def recalled(recipe: Mapping[str, Any]) -> str | None:
    """The label that an expression recalls, if that is what it does."""
    if recipe["operator"]["name"] != "recall" or not recipe["operator"]["inline"]:
        return None
    label = arguments(recipe).get("label")
    return label if isinstance(label, str) else None


@attrs.frozen(eq=False)
class Recorded:
    """One expression as a store knows it.

    Attributes:
        key: recipe key.
        recipe: its structure.
        call: the call that it led to, if it was resolved.
        continued: the expression that it went on with, if it did.
    """

    key: bytes
    recipe: dict[str, Any]
    call: bytes | None
    continued: bytes | None


def closure(
    store: Store, keys: Iterable[bytes], found: dict[bytes, Recorded | None] | None = None
) -> dict[bytes, Recorded | None]:
    """Expressions, everything below them, and what they went on with; None for what the store has no record of.

    Args:
        store: where they are recorded.
        keys: recipe keys.
        found: what is known already; it grows.
    """
    found = {} if found is None else found
    waiting = list(keys)
    while waiting:
        key = waiting.pop()
        if key in found:
            continue
        recipe = store.recipe(key)
        if recipe is None:
            found[key] = None
            continue
        met = found[key] = Recorded(key, recipe, store.call_of(key), store.continuation(key))
        waiting += references(recipe)
        waiting += [met.continued] if met.continued is not None else []
    return found


def label_folders(files: Files, kind: str = "labels") -> Iterator[tuple[str, str]]:
    """The labels of a store as people write them, `name@version`, and the folders of their logs."""
    waiting = [kind]
    while waiting:
        folder = waiting.pop()
        for name in files.names(folder):
            if name.startswith("@"):
                yield f"{folder.removeprefix(kind).lstrip('/')}{name}", f"{folder}/{name}"
            else:
                waiting.append(f"{folder}/{name}")
