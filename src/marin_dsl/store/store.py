"""The store: values by digest, results by call key, failures by attempt, recipes, labels and runs.

A result is visible if and only if its record is. A value is written before the record that names it: its blobs are
named by their digests, so writing one twice changes nothing, and the record is created on condition that there is none.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.store.blobs import Blobs
from marin_dsl.store.files import OTHER, StoreUnavailable, open_files, place, try_writing
from marin_dsl.store.records import SCHEMA, NewerSchema, read_record, write_record
from marin_dsl.store.shapes import misshapen
from marin_dsl.store.values import StoredValue, blobs_of

_FORMAT = json.dumps({"schema": SCHEMA}).encode()
_UNFINISHED = frozenset(_FORMAT[:length] for length in range(len(_FORMAT)))
"""What a writer that was stopped may leave, where file systems do not keep their promise (a power failure)."""


class Store(Blobs):
    """A folder (or any fsspec URL with a conditional create) that keeps what experiments produced.

    Opening one does no I/O; the folder is made when something is first written.

    Args:
        url: a local path, or a URL such as `memory://name`.

    Attributes:
        scratch: the folder of the local disk for the scratch folders of operators, by call; None where there is none.
        damaged: records that were met and count as absent, by path, and what is the matter with each.
    """

    def __init__(self, url: str | Path) -> None:
        super().__init__(open_files(str(url)))
        scratch = self.files.local("scratch")
        self.scratch = None if scratch is None else str(scratch)
        self._next_look, self._any_trash = 0.0, False
        self.damaged: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    @property
    def shared(self) -> bool:
        """Whether other processes see it."""
        return not self.url.startswith("memory://")

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
                f'{{"schema": {SCHEMA}}} into it, else choose another folder',
                self.url,
            )
        if schema > SCHEMA:
            raise StoreUnavailable(
                f"store {self.url} has schema {schema}, and this version reads up to {SCHEMA}; upgrade Marin DSL, or "
                f"{OTHER}",
                self.url,
            )
        if writing:
            try_writing(self.files)
            if schema < SCHEMA:  # earlier versions must not believe that they can read what comes now
                self.files.replace("format.json", (_FORMAT,))

    # Results and failures

    def result(self, call: bytes) -> dict[str, Any] | None:
        """The record of a call's result, if there is one and its value is complete."""
        found = self.valued(call)
        return None if found is None else found[0]

    def valued(self, call: bytes) -> tuple[dict[str, Any], StoredValue] | None:
        """The same, with where the value is."""
        record = self.read(place("results", call, ".json"))
        if record is None:
            return None
        value = StoredValue.from_record(record["value"])
        return (record, value) if self.complete(value) else None

    def commit(
        self,
        call: bytes,
        record: dict[str, Any],
        *,
        structure: dict[str, Any] | None = None,
        lasting: bool = False,
    ) -> dict[str, Any]:
        """Make a result visible; the first commit of a call stays.

        Args:
            call: the call key.
            record: what is known of the execution, with the value.
            structure: that of the expression, to be recorded at the same time; the call has no inputs then, and is
                known by its recipe key.
            lasting: have it on the disk when this returns. Without that a power failure may take it away with the
                last seconds of all that was written; it is then missed, and made anew.

        Returns:
            The record that is visible now: this one, or an earlier one.
        """
        path = place("results", call, ".json")
        if not lasting:
            return self._committed(call, path, record, structure)
        for digest in blobs_of(StoredValue.from_record(record["value"])):
            self.files.sync(place("blobs", digest))
        visible = self._committed(call, path, record, structure)
        self.files.sync(path)
        return visible

    def _committed(
        self, call: bytes, path: str, record: dict[str, Any], structure: dict[str, Any] | None
    ) -> dict[str, Any]:
        if structure is not None:
            record = {**record, **structure}
        data, written = write_record(path, record), None
        if structure is not None and self._created(recipe := place("recipes", call, ".json"), data):
            written = recipe  # one record says both, and is there under both names
        for pause in (*_PAUSES, 0.0):
            if self.files.create(path, data, same_as=written):
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
        record = self.read(place("skips", call, ".json"))
        return None if record is None else record["because"]

    def skip(self, call: bytes, because: list[dict[str, Any]]) -> None:
        """Record that a call has no value since the expression that its operator returned has none."""
        self._replace(place("skips", call, ".json"), {"because": because})

    # Records by path

    def read(self, path: str) -> dict[str, Any] | None:
        """A record; None when it is absent or damaged."""
        return self.parsed(path, self.content(path))

    def content(self, path: str) -> bytes | None:
        """The file of a record as it is, wherever it is served from; None when there is none."""
        data = self.files.read(path)
        return self.files.read(f"trash/{path}") if data is None and self.any_trash() else data

    def parsed(self, path: str, data: bytes | None) -> dict[str, Any] | None:
        """What the file of a record says; None when it is absent or damaged, of which `damaged` tells why.

        Raises:
            StoreUnavailable: it was written by a later version.
        """
        try:
            record = read_record(path, data)
        except NewerSchema as error:
            raise StoreUnavailable(f"store {self.url}: {path}: {error}", self.url) from None
        if record is None:
            if data is not None:
                self.damaged[path] = "its content is not what was written here"
            return None
        wrong = misshapen(path, record)
        if wrong:
            self.damaged[path] = f"it is no record that a store writes: {wrong}"
            return None
        return record

    def look_again(self) -> None:
        """Something has come into the trash, or left it."""
        self._next_look = 0.0

    def any_trash(self) -> bool:
        """Whether there is anything in the trash; looked at once a second, for it is asked at every miss."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look, self._any_trash = now + 1.0, bool(self.files.names("trash"))
        return self._any_trash

    def add(self, folder: str, record: dict[str, Any]) -> int:
        """Append a record to a log (a folder of numbered records); its number, from 1."""
        number = max(self.numbered(folder), default=0) + 1
        while not self.append(folder, number, record):
            number += 1
        return number

    def append(self, folder: str, number: int, record: dict[str, Any]) -> bool:
        """Append a record to a log under a number; False (and no change) when that is taken."""
        path = f"{folder}/{number:06d}.json"
        return self.files.create(path, write_record(path, record))

    def last(self, folder: str) -> dict[str, Any] | None:
        """The newest intact record of a log, with its number under `number`."""
        for number, path in reversed(self.numbered(folder).items()):
            record = self.read(path)
            if record is not None:
                return {**record, "number": number}
        return None

    def numbered(self, folder: str) -> dict[int, str]:
        """The paths of the records of a log by number, in order; whatever else is in the folder is none of it."""
        found = filter(None, map(_NUMBERED, self.files.names(folder)))
        return dict(sorted((int(match[1]), f"{folder}/{match[0]}") for match in found))

    # Recipes

    def recipe(self, key: bytes) -> dict[str, Any] | None:
        """The structure of an expression: operator, encoded arguments, what it refers to."""
        return self.read(place("recipes", key, ".json"))

    def put_recipe(self, key: bytes, structure: dict[str, Any]) -> None:
        """Record the structure of an expression."""
        path = place("recipes", key, ".json")
        self._created(path, write_record(path, structure))

    def _created(self, path: str, data: bytes) -> bool:
        """Make a record unless there is one; what is damaged is none, and is replaced."""
        if self.files.create(path, data):
            return True
        if self.read(path) is None:
            self.files.replace(path, (data,))
        return False

    def call_of(self, key: bytes) -> bytes | None:
        """The call key that a recipe led to last, if it was resolved."""
        led = self.led_to(key)
        return None if led is None else led[0]

    def led_to(self, key: bytes) -> tuple[bytes, bool, bytes | None] | None:
        """The same, whether something under the recipe is asked for anew in each run, and what code it was made by.

        What is asked for anew may change the call. The code is None where it was not recorded.
        """
        record = self.read(place("recipes", key, ".call"))
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
        self._replace(place("recipes", key, ".call"), record)

    def continuation(self, key: bytes) -> bytes | None:
        """The expression whose value became that of a recipe, for one that chose it or whose operator returned it."""
        record = self.read(place("recipes", key, ".next"))
        return None if record is None else parse_digest(record["recipe"])

    def put_continuation(self, key: bytes, other: bytes) -> None:
        """Record which expression a recipe went on with; the latest wins."""
        if self.continuation(key) != other:
            self._replace(place("recipes", key, ".next"), {"recipe": format_digest(other)})

    def _replace(self, path: str, record: dict[str, Any]) -> None:
        self.files.replace(path, (write_record(path, record),))


_NUMBERED = re.compile(r"(\d{6,})\.json").fullmatch

_PAUSES = tuple(0.01 * 2**turn for turn in range(8))
"""Seconds to wait between looks at a file that is there and is not seen."""


def _schema(data: bytes) -> int | None:
    """The schema number in a format.json; None when there is no sensible one."""
    try:
        schema = json.loads(data)["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return schema if type(schema) is int and schema > 0 else None
