"""An experiment as a folder that can be given away: a store with all that it stands for, and files for eyes.

README.md            what it is and how to run it again
experiment.json      what was exported, and size and digest of every other file
store/               recipes, calls, values, failures and runs, as in every store
code/                the source of each operator, as it was recorded
sources/             the modules of the project that the run had imported, as they were
environment/         packages, the patch of what was not committed, and untracked files
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import attrs

from marin_dsl import labels
from marin_dsl.encoding import LeafMissing, format_digest, parse_digest
from marin_dsl.expression.annotations import Label
from marin_dsl.external import EXTERNAL
from marin_dsl.lineage.environment import environment_of, start_of
from marin_dsl.lineage.readme import readme
from marin_dsl.lineage.subject import Subject, SubjectMissing
from marin_dsl.places import holds
from marin_dsl.planning.explanation import recorded_definitions
from marin_dsl.sources import unpacked
from marin_dsl.store import Store, StoredValue
from marin_dsl.store.closure import Recorded, closure, label_folders
from marin_dsl.store.copy import Copied, copy
from marin_dsl.store.records import NewerSchema, read_record, write_record
from marin_dsl.store.shapes import misshapen
from marin_dsl.store.verify import verify

Values = Literal["all", "root", "none"]
LIST = "experiment.json"
SCHEMA = 1
"""The version of the folder: what `experiment.json` says, and what else there is."""


class ExportRefused(ValueError):
    """A folder cannot be written as an export, or is none that can be believed."""


@attrs.frozen
class Exported:
    """What was exported.

    Attributes:
        folder: where.
        files: how many files.
        bytes: how large they are together.
        missing: what belongs to it and was not in the store.
    """

    folder: str
    files: int
    bytes: int
    missing: tuple[str, ...]


def export(store: Store, subjects: Sequence[Subject], folder: Path, values: Values = "all") -> Exported:
    """Write experiments into a folder, with all that is recorded of them.

    Args:
        store: where they are recorded.
        subjects: what is exported; its labels come with it.
        folder: a new folder, or an empty one.
        values: which results are in it: `all`, those of the `root`s, or `none`; their digests are, in any case, and
            so is data that was adopted or read from outside, for it cannot be computed again.

    Raises:
        ExportRefused: the folder has files, or lies in the store.
        SubjectMissing: something is not recorded, or is no expression.
    """
    keys = [_recorded_key(store, subject) for subject in subjects]
    if holds(store.url, str(folder)):
        raise ExportRefused(
            f"{folder} is a part of the store {store.url}, in which it is no export: name another folder"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportRefused(f"{folder} is there already and not empty: name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    named = [str(subject.label) for subject in subjects if subject.label is not None] if values != "none" else []
    known = [label for label in dict.fromkeys(named) if labels.current(store, _label(label)) is not None]
    inside = Store(folder / "store")
    inside.check(writing=True)
    roots = set(keys)
    copied = copy(
        store,
        inside,
        known,
        keys,
        valued=lambda key: values == "all" or (values == "root" and key in roots) or _from_outside(store, key),
    )
    found = {key: met for key, met in closure(store, keys).items() if met is not None}
    _write_code(store, found.values(), folder / "code")
    start = _start(store, subjects)
    environment = environment_of(store, start, whole=True)
    written = _write_environment(environment, folder / "environment")
    sources = _write_sources(store, start, folder / "sources")
    listed = {
        "roots": [_root(store, found[key], subject) for key, subject in zip(keys, subjects, strict=True)],
        "values": values,
        "labels": known,
        "schema": SCHEMA,
        "expected": _expected(store, found.values()),
    }
    _write_text(folder / "README.md", readme(listed, start, environment, len(found), sources, written))
    files = {path: _described(folder / path) for path in _paths(folder)}
    (folder / LIST).write_bytes(write_record(LIST, {**listed, "files": files}))
    return Exported(str(folder), len(files) + 1, sum(size for size, _ in files.values()), copied.missing)


def import_experiment(folder: Path, store: Store) -> Copied:
    """Take an exported experiment into a store; every file is verified before anything is written.

    Args:
        folder: what `export` wrote.
        store: where it is to be.

    Raises:
        ExportRefused: the folder is no export, is incomplete or damaged, or holds what no export does, or the store.
        LabelDiverged: a label stands for something else in the store.
    """
    if holds(str(folder), store.url):
        raise ExportRefused(
            f"the store {store.url} lies in {folder} itself, which would be no export any more: choose another store "
            "with --store or MARIN_STORE"
        )
    listed = _checked(folder)
    inside = Store(folder / "store")
    inside.check()
    for path in listed["files"]:
        _check_record(folder, path)
    there = {label for label, _ in label_folders(inside.files)}
    for label in listed["labels"]:
        if label not in there:
            raise ExportRefused(f"{folder}/{LIST} names {label}, which is not in it: ask for the export again")
    damaged = [finding for finding in verify(inside).findings if finding.kind in ("damaged", "stray")]
    if damaged:
        raise ExportRefused(f"{folder}/store/{damaged[0].path}: {damaged[0].message}; ask for the export again")
    return copy(inside, store, listed["labels"], [parse_digest(root["recipe"]) for root in listed["roots"]])


def _check_record(folder: Path, path: str) -> None:
    """Refuse a record that no store writes, whatever digest it carries."""
    kind, _, place = path.partition("/")
    if kind != "store" or place.startswith("blobs/") or not place.endswith((".json", ".call", ".next")):
        return
    record = read_record(place, (folder / path).read_bytes())
    wrong = "" if record is None else misshapen(place, record)
    if wrong:
        raise ExportRefused(f"{folder}/{path} is a record that no store writes ({wrong}): do not trust it")


def _recorded_key(store: Store, subject: Subject) -> bytes:
    if subject.recipe is None:
        raise SubjectMissing(f"{subject.name} is no expression: name a label, a recipe, a run or a target")
    if store.recipe(subject.recipe) is None:
        raise SubjectMissing(f"store {store.url} has no record of {subject.name}: evaluate it first")
    return subject.recipe


def _label(text: str) -> Label:
    return labels.check_label(*text.rsplit("@", 1))


def _start(store: Store, subjects: Iterable[Subject]) -> Mapping[str, Any]:
    """The record of the run that computed the first of the roots, or else of one that gave it its label."""
    for subject in subjects:
        assert subject.recipe is not None
        call = store.call_of(subject.recipe)
        record = None if call is None else store.result(call) or store.last_failure(call)
        named = labels.log(store, subject.label) if subject.label is not None else []
        made = [] if record is None else [record["provenance"]["run"]]
        for run in [*made, *(happened.run for happened in named)]:
            start = start_of(store, run)
            if start:
                return start
    return {}


def _from_outside(store: Store, key: bytes) -> bool:
    """Whether an expression is data that was read, which nobody can compute again."""
    recipe = store.recipe(key)
    return recipe is not None and recipe["operator"]["name"] in EXTERNAL


def _root(store: Store, found: Recorded, subject: Subject) -> dict[str, Any]:
    label = str(subject.label) if subject.label is not None else None
    return {"recipe": format_digest(found.key), "title": found.recipe["title"], "label": label}


def _expected(store: Store, found: Iterable[Recorded]) -> dict[str, str]:
    """Digests of all values by recipe key, so that what is computed again can be compared."""
    results = ((met, store.result(met.call)) for met in found if met.call is not None)
    return {format_digest(met.key): record["value"]["digest"] for met, record in results if record is not None}


def _write_code(store: Store, found: Iterable[Recorded], folder: Path) -> None:
    """The source of each operator, definition by definition; one that has several codes has several files."""
    codes: dict[str, dict[str, Recorded]] = {}
    for met in found:
        operator = met.recipe["operator"]
        if not operator["inline"]:
            codes.setdefault(re.sub(r"[^A-Za-z0-9._-]", "_", operator["name"]).lstrip("."), {}).setdefault(
                operator["code"], met
            )
    folder.mkdir(exist_ok=True)
    for name, by_code in codes.items():
        for code, met in by_code.items():
            suffix = f"-{code.removeprefix('sha256:')[:8]}" if len(by_code) > 1 else ""
            operator = met.recipe["operator"]
            head = f"# Operator {operator['name']}, version {operator['version']}, code {code}; as it was recorded.\n"
            head += "".join(f"# Not seen by the identity of its code: {line}\n" for line in operator.get("unseen", ()))
            parts = (f"\n\n# {title}\n{text}" for title, text in recorded_definitions(store, met.recipe).items())
            _write_text(folder / f"{name[:120]}{suffix}.py", head + "".join(parts))


def _write_sources(store: Store, start: Mapping[str, Any], folder: Path) -> list[str]:
    """The modules of the project, where they can be imported; their paths."""
    try:
        stored = start.get("sources")
        data = store.get(StoredValue.from_record(stored)) if stored else None
        found = unpacked(data) if isinstance(data, bytes) else {}
    except (LeafMissing, ValueError):  # they are gone, or no such thing
        return []
    return _written(found, folder)


def _write_text(path: Path, text: str) -> None:
    """Write a text, in which broken characters (lone surrogates) are written by their numbers."""
    path.write_bytes(text.encode("utf-8", "backslashreplace"))


def _written(contents: Mapping[str, bytes], folder: Path) -> list[str]:
    """Write files below a folder; the names of those that lie below it, wherever that is."""
    names = [name for name in contents if _inside(name)]
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[name])
    return names


def _write_environment(environment: Mapping[str, Any], folder: Path) -> list[str]:
    """Packages, the patch, and untracked files; the names of these."""
    folder.mkdir(exist_ok=True)
    _write_text(folder / "packages.txt", "".join(map(_requirement, *_packages(environment))))
    patch, contents = environment.get("patch"), environment.get("contents", {})
    if patch and isinstance(patch, str | bytes):
        (folder / "uncommitted.patch").write_bytes(
            patch.encode("utf-8", "backslashreplace") if isinstance(patch, str) else patch
        )
    return _written({name: data for name, data in contents.items() if isinstance(data, bytes)}, folder / "untracked")


def _packages(environment: Mapping[str, Any]) -> tuple[list[str], list[str], list[str | None]]:
    packages, elsewhere = environment.get("packages", {}), environment.get("elsewhere", {})
    return list(packages), list(packages.values()), [elsewhere.get(name) for name in packages]


def _requirement(name: str, version: str, origin: str | None) -> str:
    r"""A line for pip; of what no index has, where it came from, or else a remark.

    >>> _requirement("attrs", "25.1", None), _requirement("ours", "1.0", "git+https://example.org/ours@c0ffee")
    ('attrs==25.1\n', 'ours @ git+https://example.org/ours@c0ffee\n')
    >>> _requirement("ours", "1.0", "a folder of that machine")
    '# ours==1.0 was installed from a folder of that machine\n'
    """
    if origin is None:
        return f"{name}=={version}\n"
    return f"{name} @ {origin}\n" if "://" in origin else f"# {name}=={version} was installed from {origin}\n"


def _inside(path: str) -> bool:
    """Whether a recorded path stays below the folder that it is joined to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path


def _paths(folder: Path) -> Iterator[str]:
    """All files below a folder, relative to it.

    Raises:
        ExportRefused: something there is neither a folder nor a file of its own.
    """
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ExportRefused(f"{path} is no plain file: an export holds neither links nor devices")
        if path.is_file() and path != folder / LIST:
            yield path.relative_to(folder).as_posix()


def _described(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _checked(folder: Path) -> dict[str, Any]:
    """The list of an export whose files all are as it says."""
    try:
        listed = read_record(LIST, (folder / LIST).read_bytes())
    except OSError as error:
        raise ExportRefused(
            f"{folder} is no export, or it was not finished: {LIST} cannot be read ({error.strerror})"
        ) from None
    except NewerSchema as error:
        raise ExportRefused(f"{folder}/{LIST}: {error}") from None
    if listed is None:
        raise ExportRefused(f"{folder}/{LIST} is damaged: ask for the export again")
    _check_shape(folder, listed)
    there, expected = set(_paths(folder)), listed["files"]
    for path in expected:
        if path not in there:
            raise ExportRefused(f"{folder}/{path} is missing: ask for the export again")
    for path in sorted(there):
        if path not in expected:
            raise ExportRefused(f"{folder}/{path} is not in {LIST}: it is no part of the export, remove it")
        if list(_described(folder / path)) != expected[path]:
            raise ExportRefused(f"{folder}/{path} is not what was exported (its digest differs): ask for it again")
    return listed


def _check_shape(folder: Path, listed: Mapping[str, Any]) -> None:
    """Refuse a list that no export writes, whatever digest it carries."""
    schema = listed.get("schema", 1)
    if isinstance(schema, int) and schema > SCHEMA:
        raise ExportRefused(f"{folder} has schema {schema}, and this version reads up to {SCHEMA}; upgrade Marin DSL")
    try:
        for path in listed["files"]:
            if not _inside(path):
                raise ExportRefused(f"{folder}/{LIST} names {path!r}, which is not inside the export: do not trust it")
        for label in listed["labels"]:
            _label(label)
        for root in listed["roots"]:
            parse_digest(root["recipe"])
    except ExportRefused:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ExportRefused(f"{folder}/{LIST} is no list of an export ({type(error).__name__}: {error})") from None
