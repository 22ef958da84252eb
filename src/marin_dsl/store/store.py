"""The store: values by digest, results by call key, failures by attempt, recipes, labels and runs.

A result is visible if and only if its record is. A value is written before the record that names it: its blobs are
named by their digests, so writing one twice changes nothing, and the record is created on condition that there is none.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from marin_dsl.encoding import Encoded, Leaf, LeafMissing, decode, encode_with_leaves, format_digest, parse_digest
from marin_dsl.store.files import Files, StoreUnavailable, mapped, open_files, try_writing, unavailable
from marin_dsl.store.records import SCHEMA, NewerSchema, read_record, write_record
from marin_dsl.store.values import ContentDamaged, StoredValue, verified

T = TypeVar("T")
R = TypeVar("R")

INLINE_LIMIT = 1024
"""Bytes up to which a manifest is kept in its record instead of in a blob."""


IN_MEMORY_LIMIT = 32 << 20
"""Bytes up to which a leaf of a store that is not local is read into memory instead of into a temporary file."""


_FORMAT = json.dumps({"schema": SCHEMA}).encode()
_UNFINISHED = frozenset(_FORMAT[:length] for length in range(len(_FORMAT)))
"""What a writer that was stopped may leave, where file systems do not keep their promise (a power failure)."""


class Store:
    """A folder (or any fsspec URL with a conditional create) that keeps what experiments produced.

    Opening one does no I/O; the folder is made when something is first written.

    Args:
        url: a local path, or a URL such as `memory://name`.
    """

    def __init__(self, url: str | Path) -> None:
        self.files: Files = open_files(str(url))
        self._at_once = self.files.at_once
        self._next_look, self._any_trash = 0.0, False

    @property
    def url(self) -> str:
        """Where the store is."""
        return self.files.url

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def __reduce__(self) -> Any:
        return Store, (self.url,)

    def check(self, *, writing: bool = False) -> None:
        """Make sure that the store can be used by this version, and make it if it is to be written.

        Raises:
            StoreUnavailable: it cannot be read or written, is damaged, or was written by a later version.
        """
        data = self.files.read("format.json")
        if data is None or data in _UNFINISHED:
            if not writing:
                return
            if data is None:
                self.files.create("format.json", _FORMAT)
            else:
                self.files.replace("format.json", (_FORMAT,))
            data = self.files.read("format.json") or _FORMAT
        schema = _schema(data)
        if schema is None:
            raise StoreUnavailable(
                f"store {self.url}: format.json is damaged; if the folder is a Marin store, write "
                f'{{"schema": {SCHEMA}}} into it, else choose another folder'
            )
        if schema > SCHEMA:
            raise StoreUnavailable(
                f"store {self.url} has schema {schema}, and this version reads up to {SCHEMA}; upgrade Marin DSL"
            )
        if writing:
            try_writing(self.files)

    # Values

    def put(self, value: Any) -> StoredValue:
        """Write a value's blobs.

        Raises:
            Unencodable: it is no value.
            StoreUnavailable: the store cannot be written.
        """
        return self.put_encoded(encode_with_leaves(value))

    def put_encoded(self, encoded: Encoded) -> StoredValue:
        """Write the blobs of an encoded value: its large leaves, and its manifest unless it is short."""
        for _ in self._each(self.put_leaf, encoded.leaves.values()):
            pass
        inline = encoded.data if len(encoded.data) <= INLINE_LIMIT else None
        digest = encoded.digest
        if inline is None:
            self._put_blob(digest, len(encoded.data), lambda: (encoded.data,))
        return StoredValue(digest, inline, tuple((leaf.digest, leaf.size) for leaf in encoded.leaves.values()))

    def put_leaf(self, leaf: Leaf) -> None:
        """Write a large leaf, unless the store has it.

        Raises:
            ContentDamaged: the content changed after its digest was taken.
        """
        self._put_blob(leaf.digest, leaf.size, lambda: verified(leaf))

    def _put_blob(self, digest: bytes, size: int, chunks: Callable[[], Iterable[Any]]) -> None:
        path = _place("blobs", digest)
        if self.files.size(path) != size:
            self.files.replace(path, chunks())

    def get(self, stored: StoredValue, *, lazy: bool = False) -> Any:
        """A value, fresh: what one reader does to it no other reader sees.

        Args:
            stored: where it is.
            lazy: leave large leaves unread.

        Raises:
            LeafMissing: a blob is gone or damaged.
        """
        return decode(self.manifest(stored), read_leaf=self.read_leaf, lazy=lazy)

    def manifest(self, stored: StoredValue) -> bytes:
        """The canonical bytes of a value.

        Raises:
            LeafMissing: the blob is gone or damaged.
        """
        if stored.inline is None:
            return self._read_blob(stored.digest)
        if hashlib.sha256(stored.inline).digest() != stored.digest:
            raise ContentDamaged(f"store {self.url}: the value {format_digest(stored.digest)} is damaged in its record")
        return stored.inline

    def read_leaf(self, digest: bytes, size: int) -> Path | bytes | memoryview:
        """A large leaf: a file on the local disk, else its bytes; verified.

        What is large and elsewhere comes into a file without a name, which is mapped and goes with the last reader.

        Raises:
            LeafMissing: it is gone or damaged.
        """
        path = _place("blobs", digest)
        local = self.files.local(path)
        if local is None:
            return self._read_blob(digest) if size <= IN_MEMORY_LIMIT else self._fetch(digest)
        try:
            if not local.exists():
                self.restore(path)
            found = Leaf.of_file(local)
        except OSError as error:
            raise LeafMissing(self._gone(digest)) from error
        if found.digest != digest:
            raise ContentDamaged(self._set_aside(digest))
        return local

    def _fetch(self, digest: bytes) -> memoryview:
        path = _place("blobs", digest)
        pieces = self.files.pieces(path) or self.files.pieces(f"trash/{path}")
        if pieces is None:
            raise LeafMissing(self._gone(digest))
        try:
            found, content = mapped(pieces)
        except OSError as error:
            raise unavailable(self.url, path, f"keep a local copy in {tempfile.gettempdir()} of", error) from error
        if found != digest:
            raise ContentDamaged(self._set_aside(digest))
        return content

    def _read_blob(self, digest: bytes) -> bytes:
        path = _place("blobs", digest)
        data = self.files.read(path)
        if data is None:
            data = self.files.read(f"trash/{path}")
        if data is None:
            raise LeafMissing(self._gone(digest))
        if hashlib.sha256(data).digest() != digest:
            raise ContentDamaged(self._set_aside(digest))
        return data

    def _gone(self, digest: bytes) -> str:
        return f"store {self.url}: blob {format_digest(digest)} is gone; evaluate again to compute it anew"

    def _set_aside(self, digest: bytes) -> str:
        """Remove a damaged blob, so that the next evaluation sees a miss and writes it anew."""
        what = f"store {self.url}: blob {format_digest(digest)}"
        try:
            self.files.remove(_place("blobs", digest))
        except StoreUnavailable as error:
            return f"{what} is damaged (its content does not have this digest), and cannot be removed: {error}"
        return (
            f"{what} was damaged (its content does not have this digest) and has been removed; evaluate again to "
            "compute it anew"
        )

    def complete(self, stored: StoredValue) -> bool:
        """Whether all blobs of a value are there with the right sizes, and its manifest is intact."""
        try:
            self.manifest(stored)
        except LeafMissing:
            return False
        return all(self._each(lambda leaf: self._size(_place("blobs", leaf[0])) == leaf[1], stored.leaves))

    def _each(self, action: Callable[[T], R], items: Collection[T]) -> Iterator[R]:
        """What an action gives for each item; where every operation is a request, several at a time."""
        if self._at_once == 1 or len(items) < 2:
            return map(action, items)
        with ThreadPoolExecutor(self._at_once) as pool:
            return iter(list(pool.map(action, items)))

    def _size(self, path: str) -> int | None:
        size = self.files.size(path)
        return self.files.size(f"trash/{path}") if size is None else size

    # Results and failures

    def result(self, call: bytes) -> dict[str, Any] | None:
        """The record of a call's result, if there is one and its value is complete."""
        record = self.read(_place("results", call, ".json"))
        if record is None or "value" not in record or not self.complete(StoredValue.from_record(record["value"])):
            return None
        return record

    def commit(self, call: bytes, record: dict[str, Any]) -> dict[str, Any]:
        """Make a result visible; the first commit of a call stays.

        Returns:
            The record that is visible now: this one, or an earlier one.
        """
        path, data = _place("results", call, ".json"), write_record(record)
        for pause in (*_PAUSES, 0.0):
            if self.files.create(path, data):
                return record
            if self.files.size(path) is not None:
                break
            time.sleep(pause)  # it was removed meanwhile, or is not seen yet
        found = self.result(call)
        if found is None:
            self.files.replace(path, (data,))  # what is there is damaged, or its value is gone
            return record
        if found["value"]["digest"] != record["value"]["digest"]:
            self.add(f"conflicts/{call.hex()}", record)
        return found

    def fail(self, call: bytes, record: dict[str, Any]) -> int:
        """Record a failed attempt beside the earlier ones; its number, from 1."""
        return self.add(f"failures/{call.hex()}", record)

    def last_failure(self, call: bytes) -> dict[str, Any] | None:
        """The record of the latest failed attempt, with its number under `attempt`."""
        return self.last(f"failures/{call.hex()}")

    def skipped(self, call: bytes) -> list[dict[str, Any]] | None:
        """What failed in the expression that a call's operator returned, in the latest run; None if nothing."""
        record = self.read(_place("skips", call, ".json"))
        return None if record is None else record["because"]

    def skip(self, call: bytes, because: list[dict[str, Any]]) -> None:
        """Record that a call has no value since the expression that its operator returned has none."""
        self.files.replace(_place("skips", call, ".json"), (write_record({"because": because}),))

    # Records by path

    def read(self, path: str) -> dict[str, Any] | None:
        """A record; None when it is absent or damaged."""
        try:
            data = self.files.read(path)
            if data is None and self._trash():
                data = self.files.read(f"trash/{path}")
            return read_record(data)
        except NewerSchema as error:
            raise StoreUnavailable(f"store {self.url}: {path}: {error}") from None

    def restore(self, path: str) -> bool:
        """Bring something back that was collected and is wanted again (see `marin_dsl.store.collection`)."""
        try:
            if path.startswith("blobs/"):
                return self.files.move(f"trash/{path}", path)
            data = self.files.read(f"trash/{path}")
            return data is not None and self.files.create(path, data)
        except StoreUnavailable:
            return False  # a store that can only be read has lost it

    def look_again(self) -> None:
        """Something has come into the trash, or left it."""
        self._next_look = 0.0

    def _trash(self) -> bool:
        """Whether there is anything in the trash; looked at once a second, for it is asked at every miss."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look, self._any_trash = now + 1.0, bool(self.files.names("trash"))
        return self._any_trash

    def add(self, folder: str, record: dict[str, Any]) -> int:
        """Append a record to a log (a folder of numbered records); its number, from 1."""
        number = len(self.files.names(folder)) + 1
        while not self.files.create(f"{folder}/{number:06d}.json", write_record(record)):
            number += 1
        return number

    def last(self, folder: str) -> dict[str, Any] | None:
        """The newest intact record of a log, with its number under `number`."""
        for name in reversed(self.files.names(folder)):
            record = self.read(f"{folder}/{name}")
            if record is not None:
                return {**record, "number": int(name.partition(".")[0])}
        return None

    # Recipes

    def recipe(self, key: bytes) -> dict[str, Any] | None:
        """The structure of an expression: operator, encoded arguments, what it refers to."""
        return self.read(_place("recipes", key, ".json"))

    def put_recipe(self, key: bytes, structure: dict[str, Any]) -> None:
        """Record the structure of an expression."""
        path = _place("recipes", key, ".json")
        data = write_record(structure)
        if not self.files.create(path, data) and self.read(path) is None:
            self.files.replace(path, (data,))

    def call_of(self, key: bytes) -> bytes | None:
        """The call key that a recipe led to last, if it was resolved."""
        led = self.led_to(key)
        return None if led is None else led[0]

    def led_to(self, key: bytes) -> tuple[bytes, bool, bytes | None] | None:
        """The same, whether something under the recipe is asked for anew in each run, and what code it was made by.

        What is asked for anew may change the call. The code is None where it was not recorded.
        """
        record = self.read(_place("recipes", key, ".call"))
        if record is not None:
            made_by = record.get("made_by")
            code = None if made_by is None else bytes.fromhex(made_by)
            return parse_digest(record["call"]), record.get("volatile", False), code
        recipe = self.recipe(key)
        # A call without inputs is known by its recipe key.
        alone = recipe is not None and recipe.get("references") == [] and not recipe["operator"]["inline"]
        return (key, False, None) if alone else None

    def put_call(self, key: bytes, call: bytes, *, volatile: bool = False, made_by: bytes | None = None) -> None:
        """Record which call a recipe leads to; the latest wins, for an ancestor may have been computed anew.

        Args:
            key: recipe key.
            call: call key.
            volatile: something under the recipe is asked for anew in each run.
            made_by: what stands for the code of the versioned operators that made the value.
        """
        record = {"call": format_digest(call), "volatile": volatile}
        record |= {} if made_by is None else {"made_by": made_by.hex()}
        self.files.replace(_place("recipes", key, ".call"), (write_record(record),))

    def continuation(self, key: bytes) -> bytes | None:
        """The expression whose value became that of a recipe, for one that chose it or whose operator returned it."""
        record = self.read(_place("recipes", key, ".next"))
        return None if record is None else parse_digest(record["recipe"])

    def put_continuation(self, key: bytes, other: bytes) -> None:
        """Record which expression a recipe went on with; the latest wins."""
        if self.continuation(key) != other:
            self.files.replace(_place("recipes", key, ".next"), (write_record({"recipe": format_digest(other)}),))


_PAUSES = tuple(0.01 * 2**turn for turn in range(8))
"""Seconds to wait between looks at a file that is there and is not seen."""


def _schema(data: bytes) -> int | None:
    """The schema number in a format.json; None when there is no sensible one."""
    try:
        schema = json.loads(data)["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return schema if type(schema) is int and schema > 0 else None


def _place(kind: str, digest: bytes, suffix: str = "") -> str:
    digits = digest.hex()
    return f"{kind}/{digits[:2]}/{digits[2:]}{suffix}"
