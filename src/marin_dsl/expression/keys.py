"""Keys: what is applied to what, as 32 bytes.

With recipe keys in the places of its inputs an application has a recipe key, with value digests a call key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from marin_dsl.encoding.tags import BYTES, EXPRESSION, TAG, head

REFERENCE_HEAD = head(TAG, EXPRESSION) + head(BYTES, 32)
_KEY_DOMAIN = b"marin-recipe-1\0"


def splice(payload: tuple[bytes, ...], keys: Iterable[bytes]) -> bytes:
    """The encoded arguments with a key (or a value digest) in the place of each expression."""
    if len(payload) == 1:
        return payload[0]
    parts = [payload[0]]
    for piece, key in zip(payload[1:], keys, strict=True):
        parts += (REFERENCE_HEAD, key, piece)
    return b"".join(parts)


def tagged_identity(identity: bytes, facts: bytes) -> bytes:
    """The identity of an operator together with encoded facts; without facts it is the operator's own."""
    return hashlib.sha256(b"marin-tagged-1\0" + identity + facts).digest() if facts else identity


def volatile_key(call: bytes, run: bytes) -> bytes:
    """The key of a call that is made anew in each run, in one run."""
    return hashlib.sha256(b"marin-volatile-1\0" + call + run).digest()


def drawn(call: bytes, run: bytes, part: float) -> bool:
    """Whether a call belongs to a random part (0 to 1) of all calls: another one in each run."""
    return part > 0.0 and int.from_bytes(hashlib.sha256(call + run).digest()[:8], "big") < part * 2.0**64


def recipe_key(identity: bytes, payload: tuple[bytes, ...], keys: Iterable[bytes]) -> bytes:
    """The key of an application: with recipe keys for its references a recipe key, with value digests a call key."""
    return hashlib.sha256(_KEY_DOMAIN + identity + splice(payload, keys)).digest()
