"""Records: small JSON files that carry their own digest, so that a damaged one is noticed and never believed.

The digest is of what a record says and of its place, so that one that was copied or moved to another place (the result
of another call, an older entry of a label) is as little believed there as a damaged one.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from marin_dsl.json_bytes import json_bytes
from marin_dsl.store.files import home_of

SCHEMA = 2

_WITHOUT_PLACES = 1
"""The schema of records whose digests are of what they say alone: they stay readable, and are believed at any place."""

_RECORD = re.compile(rb'\{"schema":(\d{1,9}),"digest":"sha256:([0-9a-f]{64})","record":(\{.*\})\}\n', re.DOTALL)


def write_record(path: str, content: dict[str, Any], *, schema: int = SCHEMA) -> bytes:
    """The file of a record.

    Args:
        path: where it is to be, below the store.
        content: what it says.
        schema: version of the form of records.
    """
    body = json_bytes(content, sort=True)
    digest = _digest(path, b"%d" % schema, body)
    return b'{"schema":%d,"digest":"sha256:%b","record":%b}\n' % (schema, digest, body)


def read_record(path: str, data: bytes | None) -> dict[str, Any] | None:
    """The content of a record's file; None when it is absent or damaged, or was written for another place.

    The digest covers the schema number too: a flipped bit is no other version.

    Args:
        path: where it is, below the store.
        data: the file.

    Raises:
        NewerSchema: the record was written by a later version of Marin DSL.
    """
    found = None if data is None else _RECORD.fullmatch(data)
    if found is None:
        return None
    schema, digest, body = found.groups()
    # The digest is of the bytes as they are: nothing has to be written anew to be compared.
    if int(schema) < _WITHOUT_PLACES or _digest(path, schema, body) != digest:
        return None
    if int(schema) > SCHEMA:
        raise NewerSchema(
            f"a record has schema {int(schema)}, and this version of Marin DSL reads up to {SCHEMA}; upgrade it"
        )
    try:
        content: dict[str, Any] = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return content


def _digest(path: str, schema: bytes, body: bytes) -> bytes:
    place = b"" if int(schema) == _WITHOUT_PLACES else b"%b:" % _place(path).encode("utf-8", "surrogatepass")
    return hashlib.sha256(b"%b:%b%b" % (schema, place, body)).hexdigest().encode()


def _place(path: str) -> str:
    """What stands for the place of a record: the same in the trash, where what was collected keeps its name.

    What a call without inputs is and what came of it are said by one record with two names, and which of them it can
    be read under shows by what it says.
    """
    place = home_of(path)
    return place[_KIND:] if place.endswith(".json") and place.startswith(("results/", "recipes/")) else place


_KIND = len("results")


class NewerSchema(RuntimeError):
    """Something in the store was written by a later version than this one."""
