"""Data that exists already: read as a file or a folder, checked by digest, and kept like any other value."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from marin_dsl.artifact import Directory, File
from marin_dsl.encoding import format_digest, parse_digest
from marin_dsl.expression import Expression
from marin_dsl.identity import digest as digest_of
from marin_dsl.operator import op
from marin_dsl.places import holds
from marin_dsl.worker.context import context


class ExternalChanged(ValueError):
    """External data is not what its digest says."""


def external(uri: str, digest: str | None = None) -> Expression[Any]:
    """Data that exists already, as a `File` or (for a folder) a `Directory`; nothing is ever written there.

    It is read when it is first needed, by the worker that needs it, and kept in the store, so that what was made from
    it can be made again after it is gone.

    Args:
        uri: an absolute path, or a URL that fsspec knows.
        digest: `sha256:` digest that the content must have: of a file its SHA-256 (as `sha256sum` prints it), of a
            folder `digest(Directory.of(path))`. With it, the digest alone is the identity, wherever the data lies, and
            data that the store has is not read again. Without it, the data is read in each run, and what is made of it
            runs again only where the content is another one.

    Raises:
        ValueError: the uri is a relative path, or the digest is none.
    """
    if not isinstance(uri, str) or not uri or not ("://" in uri or Path(uri).is_absolute()):
        raise ValueError(
            f"external({uri!r}): a relative path means another file in another folder; write an absolute path or a URL"
        )
    if digest is None:
        return _current(uri)
    if not digest.startswith("sha256:"):
        digest = f"sha256:{digest}"
    known: Expression[Any] = _known(format_digest(parse_digest(digest)))
    return known.with_(source=uri, title=f"external({PurePosixPath(uri).name})")


@op(name="marin.external", version="1", impure=True)
def _current(uri: str) -> Any:
    return _read(uri)


@op(name="marin.external-by-digest", version="1")
def _known(digest: str) -> Any:
    uri = context().source
    if uri is None:
        raise LookupError(f"nothing says where the external data of {digest} lies; use external(uri, digest=...)")
    value = _read(uri)
    found = value.digest if isinstance(value, File) else digest_of(value)
    if found != digest:
        raise ExternalChanged(
            f"{uri} has the digest {found}, and {digest} was asked for: it was changed or replaced; "
            "bring the data back, or write the new digest if it is meant"
        )
    return value


EXTERNAL = frozenset({_current.name, _known.name})
"""Names of the operators by which data comes in from outside."""


def _read(uri: str) -> File | Directory:
    found = fetched(uri, context().scratch / "external")
    context().observe("source", uri)
    return found


def fetched(uri: str, place: Path) -> File | Directory:
    """A file or a folder that exists already, as a value.

    Args:
        uri: a path, or a URL that fsspec knows.
        place: where what is not on the local disk is copied to; nothing is there yet.

    Raises:
        FileNotFoundError: there is no such thing.
        ValueError: it is a folder of the local disk that holds `place`.
    """
    import fsspec

    fs, path = fsspec.core.url_to_fs(uri)
    if not fs.exists(path):
        raise FileNotFoundError(f"{uri} does not exist, or cannot be read from here")
    if fs.protocol == "file" or "file" in fs.protocol:
        if holds(path, str(place)):
            raise ValueError(
                f"{path} holds {place.parent}, where this work has its own files (the store, perhaps), so it changes "
                "while it is read; name a folder that holds the data alone"
            )
        return Directory.of(path) if fs.isdir(path) else File.of(path)
    if fs.isdir(path):
        fs.get(path.rstrip("/") + "/", f"{place}/", recursive=True)
        return Directory.of(place)
    fs.get_file(path, str(place))
    return File.of(place)
