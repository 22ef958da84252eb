"""Records: small JSON files that carry their own digest, so that a damaged one is noticed and never believed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

SCHEMA = 1


def write_record(content: dict[str, Any]) -> bytes:
    """The file of a record."""
    body = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f'{{"schema":{SCHEMA},"digest":"{_digest(body)}","record":{body}}}\n'.encode("utf-8", "surrogatepass")


def read_record(data: bytes | None) -> dict[str, Any] | None:
    """The content of a record's file; None when it is absent or damaged.

    Raises:
        NewerSchema: the record was written by a later version of Marin DSL.
    """
    if data is None:
        return None
    try:
        text = data.decode("utf-8", "surrogatepass")
        whole = json.loads(text)
        schema, digest, content = whole["schema"], whole["digest"], whole["record"]
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(schema, int) and schema > SCHEMA:
        raise NewerSchema(
            f"a record has schema {schema}, and this version of Marin DSL reads up to {SCHEMA}; upgrade it"
        )
    body = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return content if digest == _digest(body) and isinstance(content, dict) else None


def _digest(body: str) -> str:
    return "sha256:" + hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


class NewerSchema(RuntimeError):
    """Something in the store was written by a later version than this one."""
