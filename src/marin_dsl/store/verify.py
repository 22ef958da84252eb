"""Verification: every blob hashed again, every record read, everything that a record names looked for.

Nothing is changed: what is damaged is a miss when it is read, and is then computed anew.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import attrs

from marin_dsl.encoding import Undecodable, format_digest, parse_digest
from marin_dsl.expression.recipe import literal_leaves, references
from marin_dsl.store.closure import label_folders, values_in
from marin_dsl.store.files import place
from marin_dsl.store.store import Store
from marin_dsl.store.values import blobs_of

Kind = Literal["damaged", "gone", "stray", "open"]

_SHARD, _DIGITS = re.compile("[0-9a-f]{2}"), re.compile("[0-9a-f]{62}")
_CALL = re.compile("[0-9a-f]{64}")
_STRAY = "no store has such a file; remove it"
_AT_ONCE = 8


@attrs.frozen
class Finding:
    """Something about one file of a store.

    Attributes:
        kind: `damaged`: its content is not what was written; `gone`: something that it names is not there; `stray`: no
            store has such a file; `open`: an expression that has neither a result nor a failure.
        path: the file, below the store.
        message: what is the matter and what to do.
    """

    kind: Kind
    path: str
    message: str


@attrs.frozen
class Verification:
    """What `verify` saw.

    Attributes:
        blobs: how many blobs there are.
        bytes: how large they are together.
        records: how many records there are.
        unused: how many blobs no record names; garbage collection removes them.
        findings: what is not as it should be, damage first.
    """

    blobs: int
    bytes: int
    records: int
    unused: int
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged, gone or stray."""
        return all(finding.kind == "open" for finding in self.findings)

    def __str__(self) -> str:
        counts = f"{self.blobs} blobs ({self.bytes} bytes), {self.records} records"
        lines = [f"  {finding.kind} {finding.path}: {finding.message}" for finding in self.findings]
        return "\n".join([f"{counts}; {'sound' if self.sound else f'{len(lines)} findings'}", *lines])


def verify(store: Store) -> Verification:
    """Hash every blob again and check every record of a store.

    Raises:
        StoreUnavailable: the store cannot be read, or was written by a later version.
    """
    store.check()
    return _Verifier(store).run()


class _Verifier:
    def __init__(self, store: Store) -> None:
        self.store, self.files = store, store.files
        self.sizes: dict[bytes, int] = {}
        self.named: set[bytes] = set()
        self.records = 0
        self.findings: list[Finding] = []

    def run(self) -> Verification:
        self.blobs()
        results = self.keyed("results", {".json"}, self.result)
        recipes = self.keyed("recipes", {".json", ".call", ".next"}, self.recipe)
        self.keyed("skips", {".json"}, lambda *_: None)
        for kind in ("failures", "conflicts", "equivalences"):
            calls = [call for call in self.files.names(kind) if _CALL.fullmatch(call)]
            self.strays(kind, calls)
            for call in calls:
                self.log(f"{kind}/{call}")
        for run in self.files.names("runs"):
            for part in ("start", "end"):
                self.log(f"runs/{run}/{part}")
        for kind in ("labels", "history"):
            for label, folder in label_folders(self.files, kind):
                self.label(label, folder, recipes)
        self.relations(recipes, results)
        order = {"damaged": 0, "gone": 1, "stray": 2, "open": 3}
        findings = sorted({*self.findings}, key=lambda finding: (order[finding.kind], finding.path))
        unused = len(set(self.sizes) - self.named)
        return Verification(len(self.sizes), sum(self.sizes.values()), self.records, unused, tuple(findings))

    def note(self, kind: Kind, path: str, message: str) -> None:
        self.findings.append(Finding(kind, path, message))

    def blobs(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for path, digest, found in pool.map(self.hashed, self.two_levels("blobs")):
                if digest is None or found is None:
                    continue
                size, actual = found
                if actual == digest:
                    self.sizes[digest] = size
                else:
                    self.note(
                        "damaged",
                        path,
                        f"its content has the digest {format_digest(actual)}; evaluate again or remove it",
                    )

    def hashed(self, path: str) -> tuple[str, bytes | None, tuple[int, bytes] | None]:
        """A blob, the digest that it is named by, and its real size and digest; nothing when it is gone meanwhile."""
        digest = _digest_at(path, "")
        if digest is None:
            self.note("stray", path, "no blob has such a name; remove it")
            return path, None, None
        pieces = self.files.pieces(path)
        if pieces is None:
            return path, digest, None
        size, hasher = 0, hashlib.sha256()
        for piece in pieces:
            size += len(piece)
            hasher.update(piece)
        return path, digest, (size, hasher.digest())

    def two_levels(self, kind: str) -> Iterator[str]:
        for folder in self.files.names(kind):
            names = self.files.names(f"{kind}/{folder}")
            if not names and not _SHARD.fullmatch(folder):
                self.note("stray", f"{kind}/{folder}", _STRAY)
            for name in names:
                yield f"{kind}/{folder}/{name}"

    def keyed(
        self, kind: str, suffixes: Iterable[str], look: Callable[[bytes, str, dict[str, Any]], None]
    ) -> dict[bytes, dict[str, dict[str, Any]]]:
        """The intact records below two levels of folders, by key and suffix."""
        found: dict[bytes, dict[str, dict[str, Any]]] = {}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            named = filter(None, (self.key_in(path, suffixes) for path in self.two_levels(kind)))
            for path, key, suffix, record in pool.map(lambda each: (*each, self.read(each[0])), named):
                if record is not None:
                    found.setdefault(key, {})[suffix] = record
                    look(key, path, record)
        return found

    def key_in(self, path: str, suffixes: Iterable[str]) -> tuple[str, bytes, str] | None:
        """The path of a record with the key that it is named by and its suffix; None for a stray."""
        suffix = next((suffix for suffix in suffixes if path.endswith(suffix)), None)
        key = None if suffix is None else _digest_at(path, suffix)
        if key is not None and suffix is not None:
            return path, key, suffix
        self.note("stray", path, "no record has such a name; remove it")
        return None

    def read(self, path: str) -> dict[str, Any] | None:
        data = self.files.read(path)
        if data is None:
            return None
        record = self.store.parsed(path, data)
        self.records += 1
        if record is None:
            why = self.store.damaged.pop(path, "")
            self.note("damaged", path, f"{why}; it counts as absent, and can be removed")
        return record

    def log(self, folder: str) -> list[dict[str, Any]]:
        """The intact records of a log; what they name is looked for."""
        found = []
        paths = self.store.numbered(folder).values()
        for path in paths:
            record = self.read(path)
            if record is not None:
                self.values(path, record)
                found.append(record)
        self.strays(folder, {path.rpartition("/")[2] for path in paths})
        return found

    def strays(self, folder: str, known: Container[str]) -> None:
        """What is in a folder and belongs to no store."""
        for name in self.files.names(folder):
            if name not in known:
                self.note("stray", f"{folder}/{name}", _STRAY)

    def values(self, path: str, record: Any) -> None:
        for value in values_in(record):
            if value.inline is not None and hashlib.sha256(value.inline).digest() != value.digest:
                self.note("damaged", path, f"the value {format_digest(value.digest)} in it has another digest")
            self.wanted(path, blobs_of(value).items(), "evaluate again to compute it anew")

    def wanted(self, path: str, blobs: Iterable[tuple[bytes, int | None]], advice: str) -> None:
        for digest, size in blobs:
            self.named.add(digest)
            if digest not in self.sizes:
                self.note("gone", path, f"blob {format_digest(digest)} is gone or damaged; {advice}")
            elif size is not None and self.sizes[digest] != size:
                self.note(
                    "damaged", path, f"blob {format_digest(digest)} has {self.sizes[digest]} bytes instead of {size}"
                )

    def result(self, call: bytes, path: str, record: dict[str, Any]) -> None:
        self.values(path, record)

    def recipe(self, key: bytes, path: str, record: dict[str, Any]) -> None:
        if not path.endswith(".json"):
            return
        self.values(path, record)
        try:
            leaves = literal_leaves(record)
        except (KeyError, ValueError, Undecodable):
            self.note("damaged", path, "its arguments cannot be read; remove it, and evaluate again")
            return
        self.wanted(path, leaves.items(), "evaluate the expression again to store it anew")

    def label(self, label: str, folder: str, recipes: dict[bytes, Any]) -> None:
        for record in self.log(folder):
            key = parse_digest(record["recipe"])
            if ".json" not in recipes.get(key, ()):
                self.note("gone", folder, f"{label} stands for {format_digest(key)}, of which there is no record")

    def relations(self, recipes: dict[bytes, dict[str, dict[str, Any]]], results: dict[bytes, Any]) -> None:
        """What recipes refer to, and what became of them."""
        failed = set(self.files.names("failures")) | {path.replace("/", "")[5:69] for path in self.two_levels("skips")}
        for key, found in recipes.items():
            path = place("recipes", key, ".json")
            if ".json" not in found:
                self.note("gone", path, "there is a trace of this expression and no record of it; evaluate it again")
                continue
            others = [*references(found[".json"])]
            others += [parse_digest(found[".next"]["recipe"])] if ".next" in found else []
            for other in others:
                if ".json" in recipes.get(other, ()):
                    continue
                refers = f"it refers to {format_digest(other)}, of which there is no record"
                # What a run that was killed had not begun with has left no trace, and what needs that is undecided.
                begun = ".call" in found or other in recipes or other in results or other.hex() in failed
                self.note("gone" if begun else "open", path, refers if begun else f"{refers} yet; evaluate again")
            if ".call" in found:
                call = parse_digest(found[".call"]["call"])
                if call not in results and call.hex() not in failed:
                    self.note("open", path, "it has neither a result nor a failure; evaluate again")


def _digest_at(path: str, suffix: str) -> bytes | None:
    _, folder, name = path.split("/")
    name = name.removesuffix(suffix) if suffix else name
    return bytes.fromhex(folder + name) if _SHARD.fullmatch(folder) and _DIGITS.fullmatch(name) else None
