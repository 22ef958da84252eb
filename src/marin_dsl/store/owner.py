"""Who is at work: a process, told apart from every other one, and whether it has certainly ended."""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen
class Owner:
    """The process that holds a lease.

    Attributes:
        run: id of the run for which it works.
        host: name of its machine, for people.
        pid: its number there.
        machine: what tells this boot of this machine (and this container) from every other; empty where nothing does.
        born: when the process began, in ticks of that machine; None where the system does not tell.
    """

    run: str
    host: str
    pid: int
    machine: str
    born: int | None

    @classmethod
    def here(cls, run: str) -> Owner:
        """This process, at work for a run."""
        return attrs.evolve(_process(os.getpid()), run=run)

    @classmethod
    def of(cls, record: Any) -> Owner | None:
        """The owner that a lease names; None when it names none that can be understood."""
        if not isinstance(record, dict) or record.keys() != attrs.fields_dict(cls).keys():
            return None
        texts = (record["run"], record["host"], record["machine"])
        if not all(isinstance(text, str) for text in texts) or not _is_count(record["pid"]):
            return None
        return cls(**record) if record["born"] is None or _is_count(record["born"]) else None

    @property
    def ended(self) -> bool:
        """Whether the process has certainly ended; False whenever that cannot be known from here."""
        if not self.machine or self.born is None or self.machine != _machine():
            return False
        return _born(self.pid) != self.born


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


@functools.lru_cache(maxsize=1)
def _process(pid: int) -> Owner:
    return Owner("", hostname(), pid, _machine(), _born(pid))


@functools.cache
def hostname() -> str:
    """What this machine calls itself."""
    return socket.gethostname()


@functools.cache
def _machine() -> str:
    """Processes are numbered anew by each boot and within each container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _born(pid: int) -> int | None:
    """When a process began; None when there is none of this number, or only its remains."""
    try:
        status = Path(f"/proc/{int(pid)}/stat").read_text()
    except (OSError, ValueError, TypeError):
        return None
    # The name of the program stands in parentheses and may hold anything, spaces and parentheses included.
    fields = status.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
