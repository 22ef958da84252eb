"""What commands print: lines for eyes, and one JSON document for programs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import click
from rich.console import Console
from rich.text import Text

from marin_dsl.encoding import format_digest
from marin_dsl.expression.display import printable

SCHEMA = 1
"""Version of the JSON documents; a key that is there stays and keeps its meaning."""

Part = str | tuple[str, str]
"""A text, or a text with its style."""

MARKS = {
    "ok": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "yellow"),
    "inline": ("·", "dim"),
    "not evaluated": ("○", "yellow"),
}
"""Signs for what became of something."""


def document(command: str, store: str, **content: Any) -> None:
    """Print a JSON document: its schema, the command, the store, and what the command found."""
    whole = {"schema": SCHEMA, "command": command, "store": store, **content}
    click.echo(_spelled(whole, ensure_ascii=not _spells(_spelled(whole, ensure_ascii=False))))


def _spelled(whole: dict[str, Any], *, ensure_ascii: bool) -> str:
    return json.dumps(whole, indent=2, ensure_ascii=ensure_ascii, default=_plain)


def _spells(text: str) -> bool:
    """Whether standard output can write a text as it is."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def escape_what_cannot_be_spelled() -> None:
    """Let texts that the encoding of the output has no form for (broken file names, marks in `latin-1`) end nothing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _plain(value: Any) -> Any:
    if attrs.has(type(value)):
        return {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
    if isinstance(value, bytes):
        return format_digest(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


class Printer:
    """Prints lines; colours are for terminals, and only where NO_COLOR is not set.

    Attributes:
        width: columns of the terminal, or None in a pipe, where nothing is cut.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False, emoji=False, markup=False)
        self.width = self._console.width if self._console.is_terminal else None

    def line(self, *parts: Part, cut: bool = False) -> None:
        """Print one line.

        Args:
            parts: what it says; signs that would steer a terminal are blanked.
            cut: on a terminal, leave out what does not fit.
        """
        text = Text()
        for part in parts:
            said, style = (part, "") if isinstance(part, str) else part
            text.append(printable(said), style)
        text.rstrip()
        if cut and self.width is not None:
            text.truncate(self.width, overflow="ellipsis")
        self._console.print(text, soft_wrap=True)

    def block(self, text: str, indent: str = "    ", style: str = "") -> None:
        """Print a text of several lines, indented."""
        for line in text.splitlines():
            self.line(indent, (line, style))

    def section(self, title: str, lines: Iterable[str]) -> None:
        """Print a title with lines under it; nothing when there are none."""
        found = list(lines)
        if found:
            self.line()
            self.line((title, "bold"))
            for line in found:
                self.line("  ", line, cut=True)

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Names with what they stand for, as lines in two columns."""
        width = max((len(name) for name, _ in pairs), default=0)
        return [f"{name:<{width}}  {text}" for name, text in pairs]
