"""Leases: who is working on a call. They save work and guard nothing: without them, too, a result is committed once.

The first lease of a call is the file `leases/<call>`, made by conditional create; `leases/<call>.2` is the lease of
whoever took over from it, `.3` the next one, and the highest number there is says who works on the call. Nobody ever
replaces or removes the file of another: whoever takes over creates the next one, which only one can, so that no
compare-and-swap is needed. An owner shows that it lives by changing its file; it changes no file that is not as it left
it, unless that names no owner any more: it was damaged then. An owner that gives back removes the first file, and marks
a later one as released, for an earlier owner may still be at work and must not find its own file the highest again.

An observer takes over when the highest file has not changed for a while *on the observer's own clock* (`Watch`), or
when the owner's process has certainly ended. A file that was left behind costs a wait, never a wrong value.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

import attrs

from marin_dsl.store.files import Files
from marin_dsl.store.owner import Owner

LOOKS = 3
"""An observer must have looked at least so often: a clock that jumps is no proof that nobody is there."""


@attrs.frozen
class Sighting:
    """A lease as somebody saw it.

    Attributes:
        generation: how many have worked on the call, this owner included.
        content: the file as it was; it changes with every sign of life.
    """

    generation: int
    content: bytes

    @property
    def released(self) -> bool:
        """Whether its owner has given it back."""
        return self._record.get("released") is True

    @property
    def owner(self) -> Owner | None:
        """Who holds it; None when that cannot be read."""
        return Owner.of(self._record.get("owner"))

    @property
    def described(self) -> str:
        """Who holds it, for people."""
        owner = self.owner
        return "somebody" if owner is None else f"{owner.host}, process {owner.pid}, run {owner.run}"

    @property
    def _record(self) -> dict[str, Any]:
        try:
            found = json.loads(self.content)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def look(files: Files, call: bytes) -> Sighting | None:
    """The lease that counts: the one of the highest generation; None when there is none.

    Raises:
        StoreUnavailable: the store cannot be read.
    """
    found, generation = None, 1
    while True:
        content = files.read(_place(call, generation))
        if content is not None:
            found = Sighting(generation, content)
        elif generation > 1:  # the first owner may have given back after somebody took over
            return found
        generation += 1


def acquire(
    files: Files,
    call: bytes,
    owner: Owner,
    *,
    abandoned: Sighting | None = None,
    nonce: Callable[[], str] = lambda: uuid.uuid4().hex,
) -> Lease | Sighting:
    """Take the lease of a call, or see who has it.

    Args:
        files: the files of the store.
        call: the call key.
        owner: who wants it.
        abandoned: a lease that the caller has watched for long enough to take over.
        nonce: gives a text that it never gave before.

    Raises:
        StoreUnavailable: the store cannot be read or written.
    """
    seen = None
    while seen is None:  # between two looks it may have been given back
        first = Lease(files, call, 1, owner, nonce)
        if first.claimed() and files.read(_place(call, 2)) is None:
            return first
        seen = look(files, call)
    if seen == abandoned or free(seen, owner.run):
        later = Lease(files, call, seen.generation + 1, owner, nonce)
        if later.claimed():
            return later
        seen = look(files, call) or seen
    return seen


def free(seen: Sighting, run: str) -> bool:
    """Whether nobody is at work under a lease: it was given back, or its process ended.

    A run hands out a call to one worker at a time, so a lease of the run itself belongs to a worker that it lost.
    """
    owner = seen.owner
    return seen.released or (owner is not None and (owner.run == run or owner.ended))


class Lease:
    """The lease of a call, in the hands of the process that took it.

    Attributes:
        call: the call key.
        generation: how many have worked on the call, this owner included.
        lost: whether somebody took over, or the file is gone; it never comes back.
    """

    def __init__(self, files: Files, call: bytes, generation: int, owner: Owner, nonce: Callable[[], str]) -> None:
        self.call, self.generation, self.lost = call, generation, False
        self._files, self._owner, self._nonce = files, owner, nonce
        self._path = _place(call, generation)
        self._written: set[bytes] = set()

    def claimed(self) -> bool:
        """Create its file; False when there is one."""
        content = self._content(released=False)
        self._written = {content}
        return self._files.create(self._path, content)

    def refresh(self) -> bool:
        """Show that its owner is at work; False when somebody took over, or in a process that was forked from it.

        Raises:
            StoreUnavailable: the store cannot be read or written; the lease may be held all the same.
        """
        return self._rewrite(released=False)

    def release(self) -> None:
        """Give it back, if it is still held by this process.

        Raises:
            StoreUnavailable: the store cannot be read or written.
        """
        if not self._mine():
            return
        try:
            if self.generation > 1:
                self._rewrite(released=True)
            else:
                self._files.remove(self._path)
        finally:
            self.lost = True

    def _mine(self) -> bool:
        return not self.lost and os.getpid() == self._owner.pid

    def _rewrite(self, *, released: bool) -> bool:
        if not self._mine():
            return False
        found = self._files.read(self._path)
        # What names no owner was damaged: it is written anew, for others would take it for abandoned in the end.
        intact = found in self._written or (found is not None and Sighting(self.generation, found).owner is None)
        if found is None or not intact or self._files.read(_place(self.call, self.generation + 1)) is not None:
            self.lost = True
            return False
        content = self._content(released=released)
        self._written = {found, content}  # which of them is there is not known until the next look
        self._files.replace(self._path, (content,))
        return True

    def _content(self, *, released: bool) -> bytes:
        record = {"nonce": self._nonce(), "owner": attrs.asdict(self._owner), "released": released}
        return json.dumps(record, sort_keys=True).encode()


class Watch:
    """An observer of one lease: it is abandoned when it has not changed for a while on the observer's own clock.

    Args:
        seconds: how long it must not have changed.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._seen: Sighting | None = None
        self._unchanged = self._last = 0.0

    def abandoned(self, seen: Sighting) -> bool:
        """Whether a lease that was seen just now has been unchanged for long enough."""
        now = self._clock()
        # A machine that slept, its owner with it, must not wake up to find the lease abandoned.
        step = min(max(0.0, now - self._last), self._seconds / LOOKS)
        self._unchanged = self._unchanged + step if seen == self._seen else 0.0
        self._seen, self._last = seen, now
        return self._unchanged >= self._seconds * (1 - 1e-9)


def _place(call: bytes, generation: int) -> str:
    return f"leases/{call.hex()}" + (f".{generation}" if generation > 1 else "")
