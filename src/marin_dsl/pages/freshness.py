"""Whether a rendered page is up to date: it carries the digest of all that it was made from."""

from __future__ import annotations

import hashlib
import importlib.metadata
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from marin_dsl import quantities
from marin_dsl.encoding import encode_with_leaves
from marin_dsl.pages.content import Page
from marin_dsl.pages.evidence import Evidence

_HEAD = 4096
"""Bytes at the beginning of a file in which its mark stands."""
_SEAL = b"\n<!-- sha256:"


def mark(page: Page, evidence: Evidence) -> str:
    """The digest of a page's content, of its evidence, and of the code that draws them: 64 hexadecimal digits."""
    made_from = [page, _plain(attrs.asdict(evidence)), _renderer()]
    return encode_with_leaves(made_from).digest.hex()


def sealed(text: str) -> str:
    """A page that ends with the digest of itself, so that a damaged file is noticed."""
    # Broken characters (a lone surrogate in somebody's message) are written by their numbers.
    data = text.encode("utf-8", "backslashreplace")
    return f"{data.decode()}{_SEAL.decode()}{hashlib.sha256(data).hexdigest()} -->\n"


def is_fresh(path: Path, expected: str) -> bool:
    """Whether a file is an undamaged page with this mark."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    body, _, seal = data.rpartition(_SEAL)
    return expected.encode() in body[:_HEAD] and seal == f"{hashlib.sha256(body).hexdigest()} -->\n".encode()


def _plain(value: Any) -> Any:
    """Evidence as values that have an encoding; what was measured may be a NumPy scalar."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


@cache
def _renderer() -> str:
    """The digest of this package's files, how it writes numbers, and the version of the library that draws curves."""
    hasher = hashlib.sha256(importlib.metadata.version("bokeh").encode())
    for path in [Path(quantities.__file__), *sorted(Path(__file__).parent.rglob("*"))]:
        if path.suffix in (".py", ".j2", ".css", ".js"):
            hasher.update(path.read_bytes())
    return hasher.hexdigest()
