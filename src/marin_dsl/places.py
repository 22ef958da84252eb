"""Whether one place lies in another one: paths of the local disk, and URLs."""

from __future__ import annotations

import os


def holds(outer: str, inner: str) -> bool:
    """Whether a folder, or the prefix of a bucket, is another one or holds it.

    Args:
        outer: a path or a URL.
        inner: likewise.

    >>> holds("/data", "/data/.marin"), holds("/data", "/data-2"), holds("gs://bucket", "gs://bucket/store")
    (True, False, True)
    """
    one, other = _plain(outer), _plain(inner)
    return one == other or other.startswith(one if one.endswith("/") else f"{one}/")


def _plain(place: str) -> str:
    """A place as it is compared: a path without links and dots, a URL without what says the same twice."""
    place = place.removeprefix("file://")
    if "://" in place:
        protocol, _, rest = place.partition("://")
        return f"{_SAME.get(protocol, protocol)}://{rest.rstrip('/')}"
    return os.path.realpath(place)


_SAME = {"gcs": "gs", "s3a": "s3"}
