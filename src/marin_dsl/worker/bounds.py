"""How much is kept of what an operator says: its exceptions and its output may be of any length, and records are not.

Secrets have been taken out before: a cut through one would leave a part that nobody knows again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MESSAGE, TRACEBACK, LINE, NAME = 10_000, 100_000, 2_000, 500
"""Characters that are kept of the message of an exception, of a traceback, of a line or a note, of a name."""

NOTES = 20
"""Notes of an exception that are kept."""


def cut(text: str, limit: int) -> str:
    """A text of about `limit` characters: its beginning and its end, and how much was between them.

    >>> cut("a long text that goes on and on", 8)
    'a long … (23 of 31 characters were not kept) … on'
    """
    if len(text) <= limit:
        return text
    end = limit // 4
    told = f" … ({len(text) - limit:,} of {len(text):,} characters were not kept) … "
    return f"{text[: limit - end].rstrip()}{told}{text[len(text) - end :].lstrip()}"


def bounded_failure(failure: Mapping[str, Any]) -> dict[str, Any]:
    """A failure as records keep it (see `performance.described`)."""
    notes = [cut(note, LINE) for note in failure["notes"][:NOTES]]
    if len(failure["notes"]) > NOTES:
        notes.append(f"({len(failure['notes']) - NOTES:,} more notes were not kept)")
    return {
        **failure,
        "exception": cut(failure["exception"], NAME),
        "message": cut(failure["message"], MESSAGE),
        "traceback": cut(failure["traceback"], TRACEBACK),
        "notes": notes,
    }


def bounded_lines(lines: Iterable[str]) -> list[str]:
    """Lines of output as records keep them."""
    return [cut(line, LINE) for line in lines]
