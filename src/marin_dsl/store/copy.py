"""Labels with all that they stand for, from one store to another: what the target has is not moved again.

Blobs come before the results that name them and labels last, so that a copy that was interrupted has left no result
without its value and no label without its experiment; the next one goes on from where it stopped.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs

from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression.recipe import literal_leaves
from marin_dsl.store.closure import Recorded, blobs_in, closure, label_folders, recalled
from marin_dsl.store.files import place
from marin_dsl.store.store import Store
from marin_dsl.store.values import ContentDamaged

_AT_ONCE = 8


class LabelUnknown(LookupError):
    """A label that is to be copied is not in the store."""


class LabelDiverged(ValueError):
    """A label stands for something else in the store that it is to be copied to."""


@attrs.frozen
class Copied:
    """What a copy moved.

    Attributes:
        labels: the labels that were copied, as `name@version`.
        blobs: how many blobs were moved.
        bytes: how large they were together.
        records: how many records were moved.
        missing: what belongs to the labels and is not in the source, or is damaged there.
    """

    labels: tuple[str, ...]
    blobs: int
    bytes: int
    records: int
    missing: tuple[str, ...]

    def __str__(self) -> str:
        named = ", ".join(self.labels) or "no label"
        moved = f"{named}: {self.records} records and {self.blobs} blobs ({self.bytes} bytes) moved"
        return "\n".join([moved, *(f"  missing: {what}" for what in self.missing)])


def copy(
    source: Store,
    target: Store,
    labels: Sequence[str] | None = None,
    expressions: Iterable[bytes] = (),
    *,
    valued: Callable[[bytes], bool] = lambda key: True,
) -> Copied:
    """Copy labels with their recipes, calls, results, values, failures and runs, and the labels that they recall.

    Args:
        source: where they are.
        target: where they are to be; it is made if it is not there.
        labels: which, as `name@version`; all by default.
        expressions: recipe keys of what is to be copied besides, whether or not it has a label.
        valued: of which expressions, by recipe key, the results are copied; of the others only what is known of them.

    Raises:
        LabelUnknown: a label is not in the source.
        LabelDiverged: a label of the target is not the beginning of the source's; nothing was copied.
        StoreUnavailable: one of the stores cannot be read or written.
    """
    source.check()
    target.check()
    known = dict(label_folders(source.files))
    for label in labels or ():
        if label not in known:
            there = ", ".join(sorted(known)) or "none"
            raise LabelUnknown(f"store {source.url} has no label {label}; it has {there}")
    chosen, expressions = sorted(known if labels is None else dict.fromkeys(labels)), tuple(expressions)
    if chosen or expressions:
        target.check(writing=True)
    return _Copier(source, target, known, valued).run(chosen, expressions)


class _Copier:
    def __init__(self, source: Store, target: Store, known: dict[str, str], valued: Callable[[bytes], bool]) -> None:
        self.source, self.target, self.known, self.valued = source, target, known, valued
        self.logs: dict[str, dict[str, dict[str, Any]]] = {}
        # What was moved, told by several threads: sizes of blobs by digest, and paths of records.
        self.blobs: dict[bytes, int] = {}
        self.records: list[str] = []
        self.guards: dict[bytes, threading.Lock] = {}
        self.missing: list[str] = []
        self.runs: set[str] = set()

    def run(self, labels: list[str], expressions: Iterable[bytes]) -> Copied:
        found = closure(self.source, expressions)
        self.gather(labels, found)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for moved in pool.map(self.expression, found.items()):
                self.runs |= moved
            for _ in pool.map(self.run_of, sorted(self.runs)):
                pass
        for folder, entries in self.logs.items():
            self.entries(folder, entries)
        copied = tuple(sorted(label for label, folder in self.known.items() if folder in self.logs))
        missing = tuple(sorted(set(self.missing)))
        return Copied(copied, len(self.blobs), sum(self.blobs.values()), len(self.records), missing)

    def gather(self, labels: list[str], found: dict[bytes, Recorded | None]) -> None:
        """The expressions that labels stand for, with those of the labels that these (or known ones) recall."""
        waiting = {*labels, *self.recalled(found)}
        while waiting:
            logs = {}
            for label in waiting:
                folder = self.known[label]
                logs[folder] = self.log(folder)
                self.check_label(label, folder, logs[folder])
                history = f"history/{folder.removeprefix('labels/')}"
                logs[history] = self.log(history)
            self.logs |= logs
            closure(self.source, self.roots(logs), found)
            waiting = {label for label in self.recalled(found) if self.known[label] not in self.logs}

    def recalled(self, found: dict[bytes, Recorded | None]) -> set[str]:
        """The labels that expressions recall, as far as the source has them."""
        labels = {recalled(met.recipe) for met in found.values() if met is not None}
        return {label for label in labels if label in self.known}

    def log(self, folder: str) -> dict[str, dict[str, Any]]:
        """The intact records of a log by path."""
        found = {path: self.source.read(path) for path in self.source.numbered(folder).values()}
        return {path: record for path, record in found.items() if record is not None}

    def check_label(self, label: str, folder: str, entries: dict[str, dict[str, Any]]) -> None:
        for number, path in self.target.numbered(folder).items():
            there = self.target.read(path)
            if there is not None and there != entries.get(path):
                raise LabelDiverged(
                    f"{label} has another history in {self.target.url} than in {self.source.url} (entry "
                    f"{number}); copy it the other way, or give one of them another version"
                )

    def roots(self, logs: dict[str, dict[str, dict[str, Any]]]) -> Iterator[bytes]:
        """What the labels stand for or stood for, and what was last evaluated under them."""
        for folder, entries in logs.items():
            wanted = list(entries.values())[-1:] if folder.startswith("history/") else entries.values()
            for record in wanted:
                self.runs |= _runs({"provenance": record})
                yield parse_digest(record["recipe"])

    def expression(self, item: tuple[bytes, Recorded | None]) -> set[str]:
        """Copy one expression with what became of it; the runs that it was evaluated in."""
        key, found = item
        if found is None:
            self.missing.append(f"expression {format_digest(key)}: there is no record of it")
            return set()
        self.move_blobs({**blobs_in(found.recipe), **literal_leaves(found.recipe)}.items(), found.recipe["title"])
        runs = self.call(found.call, found.recipe["title"], self.valued(key)) if found.call is not None else set()
        self.record(place("recipes", key, ".json"))
        for suffix, content in ((".call", found.call), (".next", found.continued)):
            if content is not None:
                self.record(place("recipes", key, suffix), latest=True)
        return runs

    def call(self, call: bytes, title: str, valued: bool) -> set[str]:
        runs = set()
        record = self.source.result(call)
        if (record is not None and not valued) or (record is not None and self.result(call, record, title)):
            runs |= _runs(record)
        elif record is None and self.source.files.size(place("results", call, ".json")) is not None:
            self.missing.append(f"result of {title}: its value is gone, or its record is damaged")
        for kind in ("failures", "conflicts"):
            runs |= self.attempts(f"{kind}/{call.hex()}", title)
        if self.source.skipped(call) is not None:
            self.record(place("skips", call, ".json"), latest=True)
        return runs

    def result(self, call: bytes, record: dict[str, Any], title: str) -> bool:
        there = self.target.result(call)
        if there is not None and there["value"]["digest"] == record["value"]["digest"]:
            return True
        if not self.move_blobs(blobs_in(record).items(), title):
            return False
        if there is None:
            self.target.commit(call, record)
            self.records.append(place("results", call))
        else:
            self.append(f"conflicts/{call.hex()}", record)
        return True

    def attempts(self, folder: str, title: str) -> set[str]:
        runs = set()
        for record in self.log(folder).values():
            if self.move_blobs(blobs_in(record).items(), title):
                self.append(folder, record)
            runs |= _runs(record)
        return runs

    def append(self, folder: str, record: dict[str, Any]) -> None:
        """Add a record to a log of the target, unless it is there under whatever number."""
        there = map(self.target.read, self.target.numbered(folder).values())
        if record not in there:
            self.target.add(folder, record)
            self.records.append(folder)

    def record(self, path: str, *, latest: bool = False) -> None:
        """Copy a record's file; one that the target has already stays, unless the latest counts."""
        data = self.source.content(path)
        if data is None or self.source.parsed(path, data) is None:
            return
        there = self.target.files.read(path)
        if there == data or (not latest and self.target.parsed(path, there) is not None):
            return
        if there is not None or not self.target.files.create(path, data):
            self.target.files.replace(path, (data,))
        self.records.append(path)

    def run_of(self, run: str) -> None:
        """Copy the records of a run, with the environment that they name."""
        for part in ("start", "end"):
            for path, record in self.log(f"runs/{run}/{part}").items():
                self.move_blobs(blobs_in(record).items(), f"run {run}")
                self.record(path)
        segments = (f"runs/{run}/events/{name}" for name in self.source.files.names(f"runs/{run}/events"))
        for path in (f"runs/{run}/events.jsonl", *segments):
            events = self.source.files.read(path)
            if events is not None and self.target.files.read(path) != events:
                self.target.files.replace(path, (events,))
                self.records.append(path)

    def entries(self, folder: str, entries: dict[str, dict[str, Any]]) -> None:
        for path, record in entries.items():
            if self.target.read(path) is None:
                self.move_blobs(blobs_in(record).items(), folder)
                self.record(path)

    def move_blobs(self, blobs: Iterable[tuple[bytes, int | None]], title: str) -> bool:
        """Copy blobs that the target does not have; whether all of them are there now."""
        there = [self.blob(digest, size, title) for digest, size in blobs]  # also after one that is missing
        return all(there)

    def blob(self, digest: bytes, size: int | None, title: str) -> bool:
        path = place("blobs", digest)
        with self.guards.setdefault(digest, threading.Lock()):  # several expressions may have it
            there = self.target.files.size(path)
            if there is not None and there == (self.source.files.size(path) if size is None else size):
                return True
            pieces = self.source.files.pieces(path) or self.source.files.pieces(f"trash/{path}")
            try:
                if pieces is None:
                    raise ContentDamaged("is gone")
                self.target.files.replace(path, _verified(pieces, digest))
            except ContentDamaged as error:
                self.missing.append(f"blob {format_digest(digest)} of {title} {error}")
                return False
            self.blobs[digest] = self.target.files.size(path) or 0
            return True


def _verified(pieces: Iterable[bytes], digest: bytes) -> Iterator[bytes]:
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
        yield piece
    if hasher.digest() != digest:
        raise ContentDamaged("is damaged")


def _runs(record: dict[str, Any]) -> set[str]:
    run = record.get("provenance", {}).get("run")
    return {run} if isinstance(run, str) and re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]+", run) else set()
