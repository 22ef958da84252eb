"""A part of a list that is chosen by hash: neither order nor newcomers change the fate of the rest."""

import hashlib
from collections.abc import Iterable, Iterator

from library.documents import Document


def rank(name: str, salt: str) -> int:
    """A number in [0, 2**64) that follows from the name and the salt alone."""
    return int.from_bytes(hashlib.sha256(f"{salt}\0{name}".encode()).digest()[:8], "big")


def by_hash(names: Iterable[str], salt: str) -> list[str]:
    """The names in an order that looks random and does not depend on the order given."""
    return sorted(names, key=lambda name: (rank(name, salt), name))


def up_to_bytes(documents: Iterable[Document], limit_bytes: int | None) -> Iterator[Document]:
    """The longest prefix whose texts hold at most `limit_bytes` UTF-8 bytes; all of them for None.

    Reads no further than it must. A larger limit keeps what a smaller one kept.

    Raises:
        ValueError: the limit is not positive, or not even the first document fits.
    """
    if limit_bytes is not None and limit_bytes <= 0:
        raise ValueError(f"limit_bytes={limit_bytes}; expected a positive number of bytes, or None for no limit")
    total = 0
    for position, document in enumerate(documents):
        total += len(document.text.encode())
        if limit_bytes is not None and total > limit_bytes:
            if position == 0:
                raise ValueError(
                    f"limit_bytes={limit_bytes} holds no document: the first, {document.source}, has {total} bytes; "
                    "raise the limit"
                )
            return
        yield document
