"""Adoption: data that exists already becomes what a label stands for, by its digest."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from marin_dsl.artifact import File
from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression.annotations import Label
from marin_dsl.external import external, fetched
from marin_dsl.identity import digest as digest_of
from marin_dsl.labels.log import Entry, LabelFixed, current, move
from marin_dsl.labels.naming import check_label
from marin_dsl.places import holds
from marin_dsl.store import Store, StoredValue


class CannotAdopt(ValueError):
    """There is no data that could be adopted."""


def adopt(store: Store, name: str, version: str, uri: str, *, why: str = "") -> Entry:
    """Let a label stand for data that exists already: a file, a folder, or the prefix of a bucket.

    The data is read and kept in the store, as the value of `external(uri, digest=...)` with its digest; it is not
    changed, and no operator of yours is run on it. Adopting the same bytes again changes nothing.

    Args:
        store: where.
        name: name of the label.
        version: its version; one that ends in `dev` moves when other bytes are adopted.
        uri: a path, or a URL that fsspec knows.
        why: what to say about it.

    Returns:
        What the label stands for now; its value is a `File`, or else a `Directory`.

    Raises:
        ValueError: name and version cannot be a label.
        CannotAdopt: there is nothing at the uri that can be read, or the store itself lies there.
        LabelFixed: the label stands for other bytes, and its version does not move.
        LabelMoved: somebody else moved the label meanwhile.
    """
    label, uri = check_label(name, version), _absolute(uri)
    if holds(uri, store.url) or holds(store.url, uri):
        what = "holds" if holds(uri, store.url) else "is a part of"
        raise CannotAdopt(
            f"{uri} {what} the store {store.url}, which changes whenever something is kept in it: name a folder that "
            "holds the data alone, or choose another store with --store or MARIN_STORE"
        )
    store.check(writing=True)
    entry = current(store, label)
    digest, encoded = _digests(uri)
    if entry is not None and entry.value.digest == encoded and store.complete(entry.value):
        return entry
    if entry is not None and entry.value.digest != encoded and not label.moves:
        raise LabelFixed(_changed(label, entry, uri, encoded))
    recipe, value, run = _kept(store, uri, digest)
    after = 0 if entry is None else entry.number
    return move(store, label, recipe, value, run, why=why, adopted=uri, after=after)


def _absolute(uri: str) -> str:
    if not uri.strip():  # a variable of a shell that is not set: the working directory is meant by nobody
        raise CannotAdopt("an empty uri cannot be adopted: name a file, a folder (`.` for this one) or a URL")
    return uri if "://" in uri else str(Path(uri).absolute())


def _digests(uri: str) -> tuple[str, bytes]:
    """The digest that the data is asked for by, and that of its value."""
    with tempfile.TemporaryDirectory(prefix="marin-") as folder:
        try:
            found = fetched(uri, Path(folder) / "external")
        except Exception as error:  # each file system has errors of its own
            raise CannotAdopt(f"{uri} cannot be adopted: {error}") from error
        encoded = digest_of(found)
    return found.digest if isinstance(found, File) else encoded, parse_digest(encoded)


def _changed(label: Label, entry: Entry, uri: str, encoded: bytes) -> str:
    since = f"adopted from {entry.adopted}" if entry.adopted is not None else "evaluated"
    again = "it has changed since" if entry.adopted == uri else "that is something else"
    return (
        f"{label} stands for {format_digest(entry.value.digest)} ({since}, {entry.since}), and {uri} has the content "
        f"{format_digest(encoded)}: {again}; adopt it under another version, or under one that ends in dev, which moves"
    )


def _kept(store: Store, uri: str, digest: str) -> tuple[bytes, StoredValue, str]:
    """Read the data into the store like any other external data: its recipe, its value, and the run that read it."""
    from marin_dsl.evaluation import evaluate  # it is above labels, which it asks about those of its roots

    expression = external(uri, digest=digest)
    told: list[dict[str, Any]] = []
    outcome = evaluate(expression, store=store, debug=True, watch=told.append, target=f"adopt {uri}")
    record = store.result(expression.key)
    if not outcome.ok or record is None:
        raise CannotAdopt(f"{uri} cannot be adopted: {outcome.summary if not outcome.ok else 'it was lost meanwhile'}")
    return expression.key, StoredValue.from_record(record["value"]), record["provenance"]["run"]
