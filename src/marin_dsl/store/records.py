"""Records: small JSON files that carry their own digest, so that a damaged one is noticed and never believed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

SCHEMA = 1


def write_record(content: dict[str, Any], *, schema: int = SCHEMA) -> bytes:
    """The file of a record."""
    body = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(f"{schema}:{body}".encode("utf-8", "surrogatepass")).hexdigest()
    text = f'{{"schema":{schema},"digest":"sha256:{digest}","record":{body}}}\n'
    return text.encode("utf-8", "surrogatepass")


def read_record(data: bytes | None) -> dict[str, Any] | None:
    """The content of a record's file; None when it is absent or damaged.

    The digest covers the schema number too: a flipped bit is no later version.

    Raises:
        NewerSchema: the record was written by a later version of Marin DSL.
    """
    if data is None:
        return None
    try:
        whole = json.loads(data.decode("utf-8", "surrogatepass"))
        schema, content = whole["schema"], whole["record"]
        intact = isinstance(content, dict) and type(schema) is int and write_record(content, schema=schema) == data
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if intact and schema > SCHEMA:
        raise NewerSchema(
            f"a record has schema {schema}, and this version of Marin DSL reads up to {SCHEMA}; upgrade it"
        )
    return content if intact else None


class NewerSchema(RuntimeError):
    """Something in the store was written by a later version than this one."""
