"""Records: small JSON files that carry their own digest, so that a damaged one is noticed and never believed."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from marin_dsl.json_bytes import json_bytes

SCHEMA = 1

_RECORD = re.compile(rb'\{"schema":(\d{1,9}),"digest":"sha256:([0-9a-f]{64})","record":(\{.*\})\}\n', re.DOTALL)


def write_record(content: dict[str, Any], *, schema: int = SCHEMA) -> bytes:
    """The file of a record."""
    body = json_bytes(content, sort=True)
    digest = hashlib.sha256(b"%d:%b" % (schema, body)).hexdigest()
    return b'{"schema":%d,"digest":"sha256:%b","record":%b}\n' % (schema, digest.encode(), body)


def read_record(data: bytes | None) -> dict[str, Any] | None:
    """The content of a record's file; None when it is absent or damaged.

    The digest covers the schema number too: a flipped bit is no later version.

    Raises:
        NewerSchema: the record was written by a later version of Marin DSL.
    """
    found = None if data is None else _RECORD.fullmatch(data)
    if found is None:
        return None
    schema, digest, body = found.groups()
    # The digest is of the bytes as they are: nothing has to be written anew to be compared.
    if hashlib.sha256(schema + b":" + body).hexdigest().encode() != digest:
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


class NewerSchema(RuntimeError):
    """Something in the store was written by a later version than this one."""
