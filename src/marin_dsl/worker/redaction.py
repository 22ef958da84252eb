"""Taking secrets out of whatever leaves a worker."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from marin_dsl.encoding import Encoded, Leaf, Unencodable

_LONG_ENOUGH = 8
"""Characters from which a part of a secret (a line of it, its base64 form) is told from ordinary text."""


class Redaction:
    """Knows the texts of some secrets, in the forms in which programs show them, and replaces or refuses them.

    Args:
        learned: is told the texts that are added, by reference.
    """

    def __init__(self, learned: Callable[[dict[str, str]], object] = lambda texts: None) -> None:
        self._learned = learned
        self._references: dict[str, str] = {}  # by form
        self._pattern: re.Pattern[str] | None = None
        self.texts: dict[str, str] = {}

    def add(self, texts: dict[str, str]) -> None:
        """Let it know the texts of further secrets, by reference."""
        self._learned(texts)
        self.texts |= texts
        self._references |= {form: reference for reference, text in texts.items() for form in forms(text)}
        longest_first = sorted(self._references, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, found: str) -> str:
        """A text with the reference of each secret in its place."""
        if self._pattern is None:
            return found
        return self._pattern.sub(lambda match: f"<secret {self._references[match[0]]}>", found)

    def plain(self, found: Any) -> Any:
        """Plain data (dicts, lists, texts, numbers) with the reference of each secret in its place, keys included."""
        if self._pattern is None:
            return found
        if isinstance(found, dict):
            return {self.plain(key): self.plain(item) for key, item in found.items()}
        if isinstance(found, list | tuple):
            return type(found)(map(self.plain, found))
        return self.text(found) if isinstance(found, str) else found

    def error(self, error: BaseException) -> BaseException:
        """An exception of the same type whose message names no secret, and which refers to no other exception."""
        return error if self._pattern is None else type(error)(self.text(str(error)))

    def refuse(self, what: str, encoded: Encoded) -> None:
        """Make sure that a value that is about to be stored holds no secret.

        Raises:
            Unencodable: it does; the message names the reference.
        """
        needles = dict(self._needles())
        if not needles:
            return
        for chunks in ((encoded.data,), *map(_chunks, encoded.leaves.values())):
            reference = _found_in(chunks, needles)
            if reference is not None:
                raise Unencodable(
                    f"{what} holds the text of secret {reference!r}, and a secret is never stored: give back what it "
                    "was used for, without the secret itself"
                )

    def _needles(self) -> Iterator[tuple[bytes, str]]:
        for form, reference in self._references.items():
            yield form.encode(), reference
        for reference, text in self.texts.items():  # as arrays of text hold it
            yield text.encode("utf-16-le"), reference
            yield text.encode("utf-32-le"), reference


def forms(text: str) -> set[str]:
    """The forms in which programs show a text: escaped, in URLs and headers, and the lines of one that has several."""
    found = {text, repr(text)[1:-1], ascii(text)[1:-1], repr(text.encode())[2:-1], json.dumps(text)[1:-1]}
    found |= {urllib.parse.quote(text), urllib.parse.quote(text, safe=""), urllib.parse.quote_plus(text)}
    parts = {*_base64_forms(text.encode()), *(line.strip() for line in text.splitlines())}
    return found | {part for part in parts if len(part) >= _LONG_ENOUGH}


def _base64_forms(data: bytes) -> Iterator[str]:
    """What of the base64 of anything that contains the data is the data's own, whatever comes before and after."""
    for before, begins in enumerate((0, 2, 3)):
        whole = b"\0" * before + data
        own = slice(begins, len(whole) * 8 // 6)
        yield base64.b64encode(whole).decode()[own]
        yield base64.urlsafe_b64encode(whole).decode()[own]


def _chunks(leaf: Leaf) -> Iterable[Any]:
    return leaf.chunks() if leaf.content is not None else ()  # one that was never read is in the store already


def _found_in(chunks: Iterable[Any], needles: dict[bytes, str]) -> str | None:
    """The reference of a secret in some bytes, wherever they are cut."""
    overlap = max(map(len, needles)) - 1
    rest = b""
    for chunk in chunks:
        window = rest + bytes(chunk)
        for needle, reference in needles.items():
            if needle in window:
                return reference
        rest = window[-overlap:]
    return None
