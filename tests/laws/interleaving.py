"""Parties that work on the same files, stopped before every file operation, so that a test decides who goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import greenlet

from marin_dsl.store import StoreUnavailable
from marin_dsl.store.files import Entry

OPERATIONS = ("read", "create", "replace", "size", "names", "remove", "pieces", "move", "modified", "entries")
Fault = Literal["before", "after"] | None


class InMemory:
    """The files of a store in a dictionary: fsspec's memory looks through all files of a process for each of them."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.url, self.files = "in-memory", {}
        self._clock = clock

    def read(self, path: str) -> bytes | None:
        return self.files[path][0] if path in self.files else None

    def create(self, path: str, data: bytes, *, same_as: str | None = None) -> bool:
        if path in self.files:
            return False
        self.files[path] = (data, self._clock())
        return True

    def replace(self, path: str, chunks: Any) -> None:
        self.files[path] = (b"".join(chunks), self._clock())

    def size(self, path: str) -> int | None:
        return len(self.files[path][0]) if path in self.files else None

    def names(self, folder: str) -> list[str]:
        below = [path.removeprefix(f"{folder}/") for path in self.files if path.startswith(f"{folder}/")]
        return sorted({path.partition("/")[0] for path in below})

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def pieces(self, path: str) -> Any:
        return iter([self.files[path][0]]) if path in self.files else None

    def entries(self) -> list[Entry]:
        return [Entry(path, len(data), modified) for path, (data, modified) in self.files.items()]

    def modified(self, path: str) -> float | None:
        return self.files[path][1] if path in self.files else None

    def move(self, path: str, to: str) -> bool:
        if path not in self.files:
            return False
        self.files[to] = (self.files.pop(path)[0], self._clock())
        return True

    def local(self, path: str) -> None:
        return None


class Stepped:
    """Files of which every operation waits for its turn; it may fail, undone or done and not reported."""

    def __init__(self, files: Any) -> None:
        self.files, self.url = files, files.url

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.files, name)
        if name not in OPERATIONS:
            return operation

        def turn(*given: Any, **named: Any) -> Any:
            here = greenlet.getcurrent()
            if here.parent is None:
                return operation(*given, **named)
            fault: Fault = here.parent.switch()
            if fault == "before":
                raise StoreUnavailable(f"{name} {given[0]}: not done")
            found = operation(*given, **named)
            if fault == "after":
                raise StoreUnavailable(f"{name} {given[0]}: done")
            return found

        return turn


class Action:
    """Something that a party does, one file operation after the other.

    Attributes:
        over: whether it has ended.
        result: what it came to, then: its result, or the complaint of the store.
    """

    def __init__(self, action: Callable[[], Any]) -> None:
        self.over, self.result = False, None
        self._action = action
        self._at = greenlet.greenlet(self._run)
        self._at.switch()  # up to its first operation

    def _run(self) -> None:
        try:
            self.result = self._action()
        except StoreUnavailable as error:
            self.result = error
        self.over = True

    def step(self, fault: Fault = None) -> None:
        """Let it do one operation, and come to the next."""
        self._at.switch(fault)

    def finish(self) -> Any:
        """Let it come to its end, undisturbed."""
        while not self.over:
            self.step()
        return self.result

    def kill(self) -> None:
        """It never goes on; nothing that it would do at its end is done either."""
        self.over = True
