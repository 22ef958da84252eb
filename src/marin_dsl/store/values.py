"""Where a value is, and the check that what is stored is what it says."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Any

import attrs

from marin_dsl.encoding import Leaf, LeafMissing, format_digest, parse_digest


class ContentDamaged(LeafMissing):
    """A blob does not have the content that its name promises."""


@attrs.frozen
class StoredValue:
    """Where a value is: its digest, its manifest when that is short, and its large leaves.

    Attributes:
        digest: digest of the manifest, 32 bytes.
        inline: the manifest itself when it is short.
        leaves: digest and size of each large leaf.
    """

    digest: bytes
    inline: bytes | None
    leaves: tuple[tuple[bytes, int], ...]

    def as_record(self) -> dict[str, Any]:
        """The value as a part of a record."""
        return {
            "digest": format_digest(self.digest),
            "inline": None if self.inline is None else base64.b64encode(self.inline).decode(),
            "leaves": [[format_digest(digest), size] for digest, size in self.leaves],
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> StoredValue:
        """The value that a record names."""
        inline = record["inline"]
        return cls(
            parse_digest(record["digest"]),
            None if inline is None else base64.b64decode(inline),
            tuple((parse_digest(digest), size) for digest, size in record["leaves"]),
        )


def blobs_of(value: StoredValue) -> dict[bytes, int | None]:
    """Digests of the blobs of a value and their sizes; the size of a manifest is not recorded."""
    manifest = {} if value.inline is not None else {value.digest: None}
    return {**manifest, **dict(value.leaves)}


def verified(leaf: Leaf) -> Iterable[Any]:
    """The chunks of a leaf; complains at the end if they are not what its digest says."""
    hasher = hashlib.sha256()
    for chunk in leaf.chunks():
        hasher.update(chunk)
        yield chunk
    if hasher.digest() != leaf.digest:
        raise ContentDamaged(
            f"a large value ({leaf.size} bytes) changed after it became part of an expression or a result; "
            "pass a copy, and leave files that a value refers to as they are"
        )
