"""Whether a store and its surroundings are sound: what is wrong, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import platform
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import attrs

from marin_dsl.encoding import LeafMissing, Undecodable, decode
from marin_dsl.evaluation import event_log
from marin_dsl.lineage import history
from marin_dsl.operator import installed_version
from marin_dsl.quantities import memory
from marin_dsl.store import Store, StoredValue, StoreUnavailable
from marin_dsl.store.records import SCHEMA
from marin_dsl.worker.kept import KEPT

Level = Literal["good", "note", "bad"]


@attrs.frozen
class Check:
    """One thing that was looked at.

    Attributes:
        name: what it is.
        level: whether it is good, worth a note, or bad.
        text: what was found.
        advice: what to do about it.
        items: the things that it is about, a few of them.
    """

    name: str
    level: Level
    text: str
    advice: str = ""
    items: tuple[str, ...] = ()


SHOWN = 5
ANSWER = 5.0
"""Seconds in which a scheduler should answer."""
ROOM = 1 << 30
"""Bytes of free space that a store should have."""


def checks(store: Store, *, scheduler: str | None = None) -> Iterator[Check]:
    """Look at a store and at what is around it, one thing after the other.

    Args:
        store: the store.
        scheduler: address of a Dask scheduler to look at, too.

    Raises:
        StoreUnavailable: the store cannot be read.
        SchedulerMissing: no scheduler answers there.
    """
    yield _versions()
    if store.files.size("format.json") is None:
        advice = "the first `marin run` makes one; if there should be one, name it with --store or MARIN_STORE"
        yield Check("store", "note", f"there is no store at {store.url} yet", advice)
    else:
        yield Check("store", "good", f"{store.url}, schema {SCHEMA}")
        yield _writable(store)
        yield from _folder(store)
        yield _records(store)
        yield _conflicts(store)
        yield _runs(store)
        yield _python(store)
    if scheduler is not None:
        yield _cluster(scheduler)


def _versions() -> Check:
    found = {name: importlib.metadata.version(name) for name in ("dask", "distributed", "cloudpickle")}
    marin = installed_version("marin-dsl").replace("missing", "(not installed)")
    text = f"marin {marin}, Python {platform.python_version()}, " + ", ".join(
        f"{name} {version}" for name, version in found.items()
    )
    if found["dask"] == found["distributed"]:
        return Check("versions", "good", text)
    return Check(
        "versions", "bad", text, f"dask and distributed belong together: pip install distributed=={found['dask']}"
    )


def _writable(store: Store) -> Check:
    try:
        store.check(writing=True)
    except StoreUnavailable as error:
        return Check("writing", "bad", str(error), "results that are there are still served")
    return Check("writing", "good", "the store can be written")


def _folder(store: Store) -> Iterator[Check]:
    """What only a folder of the local disk has: room, permissions, and files that nobody cleaned up."""
    root = store.files.local("format.json")
    if root is None:
        return
    root = root.parent
    free = shutil.disk_usage(root).free
    if free >= ROOM:
        yield Check("space", "good", f"{memory(free)} free")
    else:
        yield Check("space", "bad", f"only {memory(free)} free", "free some, or choose another store")
    if root.stat().st_mode & 0o077:
        advice = f"if others are not meant to: chmod 700 {shlex.quote(str(root))}"
        yield Check("privacy", "note", "others may look into the store's folder", advice)
    yield _leftovers(root)


_HOUR, _DAY = 3600.0, 86400.0


def _leftovers(root: Path) -> Check:
    stale = [
        Path(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if name.startswith(".temporary-") and _age(Path(folder, name)) > _HOUR
    ]
    scratch = [place for place in root.glob("scratch/*") if _age(place) > _DAY and not _awaited(place)]
    if not stale and not scratch:
        return Check("leftovers", "good", "no stale temporary files or scratch folders")
    text = f"{len(stale)} temporary files and {len(scratch)} scratch folders were left behind by something that died"
    advice = "when nothing is running, remove them: " + " ".join(
        ["rm -r", *(shlex.quote(str(place)) for place in [*stale, *scratch][:SHOWN])]
    )
    return Check(
        "leftovers", "bad", text, advice, _some([str(place.relative_to(root)) for place in [*stale, *scratch]])
    )


def _awaited(scratch: Path) -> bool:
    """Whether all that is in the scratch folder of a call is what an attempt has left for the next one."""
    return [found.name for found in scratch.glob("*")] == [KEPT]


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:  # removed meanwhile by whoever wrote it
        return 0.0


_LOOKED_AT = 20_000
"""Records that are read at most; `marin verify` is for all of them."""


def _records(store: Store) -> Check:
    count, damaged = 0, []
    for path in itertools.islice(_paths(store), _LOOKED_AT):
        count += 1
        if store.read(path) is None and store.files.size(path) is not None:
            damaged.append(path)
    if not damaged:
        return Check("records", "good", f"{count:,} looked at, none is damaged")
    text = f"{len(damaged):,} of {count:,} are damaged, and are passed over"
    advice = "remove them: the next evaluation writes what it needs anew; then look at the disk's health"
    return Check("records", "bad", text, advice, _some(damaged))


def _paths(store: Store) -> Iterator[str]:
    """Records, those that cannot be computed anew first."""
    pending = ["recipes", "results", "skips", "failures", "conflicts", "history", "labels", "runs"]
    while pending:
        folder = pending.pop()
        for name in _names(store, folder):
            path = f"{folder}/{name}"
            if name.endswith((".json", ".call", ".next")):
                yield path
            elif not name.endswith(".jsonl"):
                pending.append(path)


def _names(store: Store, folder: str) -> list[str]:
    try:
        return store.files.names(folder)
    except StoreUnavailable:  # a file that is no record: a mark of a run's, or somebody else's
        return []


def _conflicts(store: Store) -> Check:
    titles = []
    for call in store.files.names("conflicts"):
        record = store.last(f"conflicts/{call}") or {"title": "?", "operator": {"name": "?"}}
        titles.append(f"{record['title']}  ({record['operator']['name']}, call {call[:12]}…)")
    if not titles:
        return Check("conflicts", "good", "no call came to two different values")
    text = f"{len(titles)} calls came to different values when they ran twice; the first value is served"
    advice = (
        "make these operators depend on their arguments alone: context().rng() for random numbers, no clock, "
        "no order of sets or threads"
    )
    return Check("conflicts", "bad", text, advice, _some(titles))


def _runs(store: Store) -> Check:
    """Runs that ended without a word, unless the same was run again since."""
    lost, again = [], set()
    for run in itertools.islice(history.runs(store), 1000):
        if run.state == "lost" and run.target not in again:
            lost.append(run)
        elif run.state in ("ok", "failed"):
            again.add(run.target)
    if not lost:
        return Check("runs", "good", "every run ended, is at work, or was run again since")
    text = f"{len(lost)} runs never ended: they were killed, or their host went down; what they had finished is kept"
    advice = f"run it again, it goes on from there: {lost[0].command}"
    items = [f"{run.run}  {history.moment(run.started)}  {run.target}" for run in lost]
    return Check("runs", "bad", text, advice, _some(items))


def _python(store: Store) -> Check:
    """The interpreter of this process beside the one of the latest run."""
    last = next(iter(reversed(event_log.runs(store))), None)
    start = None if last is None else store.last(f"runs/{last}/start")
    there = "" if start is None else _environment(store, start).get("python", "")
    here = platform.python_version()
    if not there or there.split(".")[:2] == here.split(".")[:2]:
        return Check("python", "good", f"Python {here}" + (f", and the latest run had {there}" if there else ""))
    text = f"this is Python {here}, and the latest run had Python {there}"
    advice = "values are the same under both; what is pickled (closures sent to workers) wants one version everywhere"
    return Check("python", "note", text, advice)


def _environment(store: Store, start: dict[str, Any]) -> dict[str, Any]:
    try:
        found = decode(store.manifest(StoredValue.from_record(start["environment"])), lazy=True, nameless=True)
    except (LeafMissing, Undecodable):
        return {}
    return found if isinstance(found, dict) else {}


def _cluster(scheduler: str) -> Check:
    """The interpreters of a cluster beside this one."""
    from marin_dsl.evaluation.executors import client

    with client(scheduler, ANSWER) as connected:
        versions = connected.get_versions(check=False)
    here = platform.python_version()
    others = {name: found["host"]["python"] for name, found in versions["workers"].items()}
    differing = [f"{name}: Python {found}" for name, found in others.items() if not found.startswith(f"{here}.")]
    if not others:
        return Check("cluster", "bad", f"{scheduler} has no workers", "start some: dask worker " + scheduler)
    if differing:
        text = f"{len(differing)} of {len(others)} workers have another Python than {here}"
        return Check("cluster", "bad", text, "start them with the same interpreter and packages", _some(differing))
    return Check("cluster", "good", f"{len(others)} workers, all with Python {here}")


def _some(items: list[str]) -> tuple[str, ...]:
    return (*items[:SHOWN], *([f"… and {len(items) - SHOWN:,} more"] if len(items) > SHOWN else []))
