"""What a store does not have: found out by listing a folder, where looking for its files one by one would take longer.

A new graph of many nodes is looked for in vain, node by node. Keys are digests and lie evenly in 256 folders, so a few
of a large graph that are missed in one folder let expect more of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from marin_dsl.store.files import StoreUnavailable
from marin_dsl.store.store import Store

T = TypeVar("T")

_FEW = 2
"""Look-ups in vain before a folder is listed at all."""

_NAMES = 10
"""Names that are listed in the time of one look-up in vain (on a local disk; in a bucket it is hundreds)."""


class Absences:
    """Remembers listings of a store for as long as one descent takes; what is written meanwhile may be overlooked.

    A folder is listed once as much time went into look-ups in vain there as listing it should take: whatever is asked
    for, at most twice the time is spent that would have been the least.

    Args:
        store: the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listed: dict[tuple[str, int], frozenset[str]] = {}
        self._missed = Counter[tuple[str, int]]()
        self._sizes: dict[str, int] = {}

    def look(self, kind: str, digest: bytes, read: Callable[[bytes], T | None]) -> T | None:
        """What `read` gives, unless it is known to find nothing.

        Args:
            kind: the folder of the store that is read: `results` or `recipes`.
            digest: the digest or key that its files are named by.
            read: looks for something under that; None when there is nothing.
        """
        folder = kind, digest[0]
        names = self._listed.get(folder)
        if names is not None and digest.hex()[2:] not in names:
            return None
        found = read(digest)
        if found is None and names is None:
            self._missed[folder] += 1
            self._list(folder, self._missed[folder])
        return found

    def _list(self, folder: tuple[str, int], spent: int) -> None:
        kind, first = folder
        # How much there is in one folder tells of the others.
        if spent < _FEW or spent * _NAMES < self._sizes.get(kind, 0):
            return
        if self._store.any_trash():  # what was collected keeps its name there, and is served until it is removed
            return
        try:
            names = self._store.files.names(f"{kind}/{first:02x}")
        except StoreUnavailable:  # some may read, and not list; if the store is gone, the next look-up says so
            self._sizes[kind] = sys.maxsize
            return
        self._listed[folder] = frozenset(name.partition(".")[0] for name in names)
        self._sizes[kind] = len(names)
