"""Garbage collection: what nobody can want any more goes to the trash, and later from there.

Kept is what is reachable from a root: every entry of every label's log and history, pinned runs, runs at work, and
whatever is younger than a grace time. A kept record keeps everything that bears the name of a digest which it mentions
(a blob, a recipe and the call that it led to, a result, its failures and conflicts), and the run that made it. Kinds of
files that are not known here are never touched, and keep what they mention.

It is safe beside evaluations, on local disks and on object stores alike, without any lock:

1. Mark, as above. `cutoff` is the grace time before now, or the beginning of the oldest run at work if that is earlier;
   times are those of the file system. A run is at work that has a start and no end, and of which something was written
   lately (a lease that lives is written to all the time).
2. Sweep: what is unmarked and older than `cutoff` is looked at once more and moved to `trash/`, records before blobs.
   Nothing is lost by that, for `Store` reads there what it misses. An evaluation that found an old blob "already there"
   just before it was swept, or that holds the place of a value which it looked up before it announced itself, gets the
   value all the same.
3. Mark again, the trash included: what was announced, labelled or committed during the sweep, or has come to be wanted
   since an earlier one, goes back to its place.
4. Empty: what has been in the trash since before `cutoff`, and is not marked, is removed. Whoever could still mention
   it without having written a record was at work before it was swept, and so holds back `cutoff`.

A run that is taken for dead and is not (a machine that slept for longer than the grace time) may have to compute
something anew; no rule here can make a wrong value be served, for every read verifies its digest.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from marin_dsl.expression.recipe import literal_leaves
from marin_dsl.store.files import Entry, Files, home_of, is_temporary
from marin_dsl.store.records import NewerSchema, read_record
from marin_dsl.store.shapes import misshapen
from marin_dsl.store.store import Store

GRACE = 7 * 86400.0
"""Seconds for which everything is kept, and for which the trash keeps what was swept, if nothing else is said."""

_LIFE = (
    3600.0  # seconds without anything written after which a run without an end is dead, if the grace time is shorter
)
_TRASH = "trash/"

_SHARDED = re.compile(r"(blobs|results|recipes|skips)/([0-9a-f]{2})/([0-9a-f]{62})(?:\.\w+)?")
_FOLDERS = re.compile(r"(failures|conflicts|scratch)/([0-9a-f]{64})/.+")
_LEASE = re.compile(r"leases/[0-9a-f]{64}(\.\d+)?")
_RUN = re.compile(r"runs/([^/]+)/(.+)")
_DIGEST = re.compile(rb"sha256:([0-9a-f]{64})")
_MADE_BY = re.compile(rb'"run": ?"([^"/]+)"')

_ORDER = ("leases", "results", "recipes", "skips", "failures", "conflicts", "runs", "scratch", "blobs")


@attrs.frozen
class Tally:
    """A number of files and their bytes."""

    files: int
    bytes: int

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Tally:
        """What some files come to."""
        sizes = [entry.size for entry in entries]
        return cls(len(sizes), sum(sizes))

    def __str__(self) -> str:
        return f"{self.files} file{'' if self.files == 1 else 's'}, {_spelled(self.bytes)}"


@attrs.frozen
class Collection:
    """What a collection did, or would do.

    Attributes:
        dry: whether nothing was changed.
        swept: files that went to the trash, or were leftovers of a crash.
        emptied: files that were removed from the trash.
        restored: paths of files that came back from the trash, for something wants them.
        kept: how much was kept, by reason.
    """

    dry: bool
    swept: tuple[Entry, ...]
    emptied: tuple[Entry, ...]
    restored: tuple[str, ...]
    kept: Mapping[str, Tally]

    @property
    def by_kind(self) -> dict[str, Tally]:
        """How much was swept, by kind of file."""
        kinds = sorted({_kind(entry.path) for entry in self.swept})
        return {kind: Tally.of(entry for entry in self.swept if _kind(entry.path) == kind) for kind in kinds}

    def __str__(self) -> str:
        lines = [f"{'would move' if self.dry else 'moved'} to the trash: {Tally.of(self.swept)}"]
        lines += [f"  {kind}: {tally}" for kind, tally in self.by_kind.items()]
        lines.append(f"{'would remove' if self.dry else 'removed'} from the trash: {Tally.of(self.emptied)}")
        if self.restored:
            lines.append(f"{'would bring' if self.dry else 'brought'} back from the trash: {len(self.restored)} files")
        lines.append("kept:")
        lines += [f"  {reason}: {tally}" for reason, tally in self.kept.items()]
        return "\n".join(lines)


def collect(
    store: Store, *, grace: float = GRACE, dry: bool = True, clock: Callable[[], float] = time.time
) -> Collection:
    """Move what nobody can want any more to the trash, and remove what has been there for long.

    Args:
        store: the store.
        grace: seconds for which everything is kept, and for which the trash keeps it then; with 0 the second of two
            collections removes what the first one swept.
        dry: only tell what would be done; nothing is written.
        clock: the time, in seconds since 1970; asked only where nothing may be written, else the file system tells it.

    Raises:
        StoreUnavailable: the store cannot be read, or not be written.
    """
    if not 0 <= grace < float("inf"):
        raise ValueError(f"a grace time of {grace!r} seconds: give a number from 0 up")
    store.check()  # and no trial of writing, which a full disk would not pass: it is what is to be mended here
    files, mentions = store.files, _Mentions(store.files)
    if files.size("format.json") is None:
        if next(iter(files.entries()), None) is None:
            return Collection(dry, (), (), (), {})  # there is no store, and none is made for this
        store.check(writing=not dry)
    marking = _Marking(files.entries(), mentions, grace, clock() if dry else _now(files))
    swept = [entry for entry in marking.garbage() if dry or _sweep(files, entry)]
    before = marking.cutoff
    if not dry:
        marking = _Marking(files.entries(), mentions, grace, _now(files))
    restored = [home for home in marking.wanted_back() if dry or store.restore(home)]
    # What was swept just now stays in the trash until the next collection, whatever the grace time.
    emptied = [entry for entry in marking.refuse(before) if dry or _removed(files, entry)]
    store.look_again()
    return Collection(dry, tuple(swept), tuple(emptied), tuple(restored), marking.tallies())


def pin(store: Store, run: str) -> None:
    """Keep a run: what it was asked for, everything below that, and its records.

    Raises:
        LookupError: the store knows no such run.
    """
    if run not in store.files.names("runs") or not store.files.names(f"runs/{run}/start"):
        raise LookupError(f"store {store.url} has no run {run}; its runs are named in `runs/`")
    store.files.create(f"runs/{run}/pinned", b"")


def unpin(store: Store, run: str) -> None:
    """Keep a run no longer than others are kept."""
    store.files.remove(f"runs/{run}/pinned")


def _now(files: Files) -> float:
    """The time by the clock of the file system."""
    files.replace("trash/now", (b"",))
    found = files.modified("trash/now")
    files.remove("trash/now")
    return found or 0.0


def _sweep(files: Files, entry: Entry) -> bool:
    """Move a file to the trash, if it still is what it was when it was found to be garbage."""
    if files.modified(entry.path) != entry.modified:
        return False
    if _LEASE.fullmatch(entry.path) or is_temporary(entry.path):
        files.remove(entry.path)
        return True
    return files.move(entry.path, _TRASH + entry.path)


def _removed(files: Files, entry: Entry) -> bool:
    if files.modified(entry.path) != entry.modified:
        return False
    files.remove(entry.path)
    return True


class _Mentions:
    """Which digests and runs a record mentions; each state of a file is read once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._known: dict[Entry, tuple[frozenset[str], frozenset[str]]] = {}

    def of(self, entry: Entry) -> tuple[frozenset[str], frozenset[str]]:
        """Digests, in hexadecimal digits, and ids of runs."""
        if entry not in self._known:
            self._known[entry] = self._read(entry.path)
        return self._known[entry]

    def _read(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        data = self._files.read(path) or b""
        digests = {found.decode() for found in _DIGEST.findall(data)}
        if home_of(path).startswith("recipes/") and path.endswith(".json"):
            digests |= _literals(path, data)
        return frozenset(digests), frozenset(found.decode("utf-8", "replace") for found in _MADE_BY.findall(data))


def _literals(path: str, data: bytes) -> set[str]:
    """Digests of the large literals among the arguments of a recipe."""
    try:
        record = read_record(path, data)
    except NewerSchema:
        return set()
    if record is None or misshapen(path, record):
        return set()
    return {digest.hex() for digest in literal_leaves(record)}


class _Marking:
    """What there is, and why each file that is kept is kept.

    Attributes:
        cutoff: what was written from then on is kept.
    """

    def __init__(self, entries: Iterable[Entry], mentions: _Mentions, grace: float, now: float) -> None:
        self._mentions = mentions
        self._entries = {entry.path: entry for entry in entries}
        self._named: dict[str, list[str]] = {}
        self._runs: dict[str, list[str]] = {}
        for path in self._entries:
            self._enter(path)
        self._kept: dict[str, str] = {}
        self._wanted: set[str] = set()
        alive = self._alive(now - max(grace, _LIFE))
        self.cutoff = min([now - grace, *(self._began(run) for run in alive)])
        self._mark(alive)

    def _enter(self, path: str) -> None:
        home = home_of(path)
        digest = _digest_of(home)
        if digest is not None:
            self._named.setdefault(digest, []).append(path)
        elif (run := _RUN.fullmatch(home)) is not None:
            self._runs.setdefault(run[1], []).append(path)

    # Runs

    def _has(self, run: str, *names: str) -> bool:
        return any(home_of(path).startswith(f"runs/{run}/{name}") for path in self._runs[run] for name in names)

    def _began(self, run: str) -> float:
        return min(self._entries[path].modified for path in self._runs[run])

    def _alive(self, since: float) -> list[str]:
        """Runs that have not ended, and of which something was written since a time."""
        open_runs = [run for run in self._runs if self._has(run, "start/") and not self._has(run, "end/", "cancelled")]
        alive = {run for run in open_runs if any(self._written(path, since) for path in self._runs[run])}
        if len(alive) < len(open_runs):
            for entry in self._entries.values():
                if entry.modified >= since and entry.path.startswith(("leases/", "results/", "failures/")):
                    alive |= self._mentions.of(entry)[1] & set(open_runs)
        return sorted(alive)

    def _written(self, path: str, since: float) -> bool:
        return not path.startswith(_TRASH) and self._entries[path].modified >= since

    # Marking

    def _mark(self, alive: Iterable[str]) -> None:
        for entry in self._entries.values():
            if entry.path.startswith(("labels/", "history/")):
                self._keep(entry.path, "labels and their history")
        for run in self._runs:
            if self._has(run, "pinned"):
                self._keep_run(run, "pinned runs")
        for run in alive:
            self._keep_run(run, "runs at work")
        for entry in self._entries.values():
            if not _judged(entry.path) and not entry.path.startswith(_TRASH):
                self._keep(entry.path, "other files")
        for entry in self._entries.values():
            if entry.modified >= self.cutoff and not entry.path.startswith(_TRASH):
                young_run = _RUN.fullmatch(entry.path)
                if young_run is not None:
                    self._keep_run(young_run[1], "young")
                else:
                    self._keep(entry.path, "young")

    def _keep_run(self, run: str, reason: str) -> None:
        """A run that is wanted for itself keeps what it was asked for."""
        self._wanted.add(run)
        for path in self._runs.get(run, ()):
            self._kept.pop(path, None)  # it may have been kept as the maker of something only
            self._keep(path, reason)

    def _keep(self, path: str, reason: str) -> None:
        """Keep a file, and what it leads to."""
        waiting = [path]
        while waiting:
            current = waiting.pop()
            if current in self._kept or not self._useful(current):
                continue
            self._kept[current] = reason
            waiting += self._led_to(current)

    def _useful(self, path: str) -> bool:
        """Whether a file is worth keeping with its name; scratch is so only while there is no result."""
        if not path.startswith("scratch/") or self._entries[path].modified >= self.cutoff:
            return True
        digest = _digest_of(path) or ""
        return f"results/{digest[:2]}/{digest[2:]}.json" not in self._entries

    def _led_to(self, path: str) -> Iterator[str]:
        home = home_of(path)
        if home.startswith(("blobs/", "scratch/", "leases/")) or is_temporary(path):
            return
        run = _RUN.fullmatch(home)
        if run is not None and not run[2].startswith("start/"):
            return
        digests, runs = self._mentions.of(self._entries[path])
        wanted = run is None or run[1] in self._wanted
        for digest in digests:
            for found in self._named.get(digest, ()):
                # A run that only made something kept does not keep all that it was asked for, only its environment.
                if wanted or home_of(found).startswith("blobs/"):
                    yield found
        for maker in runs if run is None else ():
            yield from self._runs.get(maker, ())

    # What follows from it

    def garbage(self) -> list[Entry]:
        """What is to be swept, records before the blobs that they name."""
        found = [
            entry
            for entry in self._entries.values()
            if entry.path not in self._kept
            and not entry.path.startswith(_TRASH)
            and _judged(entry.path)
            and entry.modified < self.cutoff
        ]
        return sorted(found, key=lambda entry: (_rank(entry.path), entry.path))

    def wanted_back(self) -> list[str]:
        """What is in the trash, and reachable, and not where it belongs."""
        homes = (home_of(path) for path in self._kept if path.startswith(_TRASH))
        return sorted(home for home in homes if home not in self._entries)

    def refuse(self, before: float) -> list[Entry]:
        """What is to be removed from the trash, of what came there before a time."""
        return [
            entry
            for entry in self._entries.values()
            if entry.path.startswith(_TRASH)
            and entry.modified < min(before, self.cutoff)
            and (entry.path not in self._kept or home_of(entry.path) in self._entries)
        ]

    def tallies(self) -> dict[str, Tally]:
        """How much is kept, by reason."""
        kept: dict[str, list[Entry]] = {}
        for path, reason in self._kept.items():
            kept.setdefault(reason, []).append(self._entries[path])
        return {reason: Tally.of(entries) for reason, entries in kept.items()}


def _kind(path: str) -> str:
    return "leftovers" if is_temporary(path) else path.partition("/")[0]


def _rank(path: str) -> int:
    kind = path.partition("/")[0]
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _digest_of(path: str) -> str | None:
    """The digest whose name a file bears."""
    sharded = _SHARDED.fullmatch(path)
    if sharded is not None:
        return sharded[2] + sharded[3]
    folder = _FOLDERS.fullmatch(path)
    return folder[2] if folder is not None else None


def _judged(path: str) -> bool:
    """Whether a file is of a kind of which it is known when nobody wants it."""
    known = _digest_of(path) is not None or _LEASE.fullmatch(path) or _RUN.fullmatch(path)
    return bool(known) or is_temporary(path)


def _spelled(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
