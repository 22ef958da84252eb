"""Where and by what a run was made, as it recorded that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from marin_dsl.encoding import LeafMissing, Undecodable, decode
from marin_dsl.store import Store, StoredValue

_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]+")


def start_of(store: Store, run: object) -> Mapping[str, Any]:
    """The record of the start of a run; empty where there is none, or what a record names is the id of none."""
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        return {}
    return store.last(f"runs/{run}/start") or {}


def environment_of(store: Store, start: Mapping[str, Any], *, whole: bool = False) -> Mapping[str, Any]:
    """The environment of a run; empty where it was not recorded, or is gone or damaged.

    Args:
        store: where the run is recorded.
        start: the record of its start; may be empty.
        whole: with what is large: the patch, the contents of untracked files.
    """
    stored = start.get("environment")
    if not stored:
        return {}
    try:
        data = store.manifest(StoredValue.from_record(stored))
        found = decode(data, read_leaf=store.read_leaf, lazy=not whole, nameless=True)
    except (LeafMissing, Undecodable):
        return environment_of(store, start) if whole else {}
    return found if isinstance(found, dict) else {}
