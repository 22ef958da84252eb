"""Where a continuation ends before its number of tokens is used up."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from jaxtyping import Int

Decode = Callable[[Int[np.ndarray, " _"]], str]
Stop = tuple[int, ...] | str


def _sequences(given: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(token) for token in sequence) for sequence in given)


def _strings(given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ValueError(f"Stops: strings must be a sequence of strings; write [{given!r}] instead of {given!r}")
    return tuple(given)


@attrs.frozen
class Stops:
    """Token sequences and strings that end a continuation, with the token that completes them.

    Attributes:
        sequences: token sequences.
        strings: texts. They are looked for in ``decode`` of all generated tokens, so one may begin and end inside of
            tokens; text of the prompt does not count.
        decode: the text of token ids, such as a tokenizer's ``decode``; needed for strings.

    Raises:
        ValueError: a stop is empty, or there are strings and nothing to decode tokens with.
    """

    sequences: tuple[tuple[int, ...], ...] = attrs.field(default=(), converter=_sequences)
    strings: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    decode: Decode | None = None

    def __attrs_post_init__(self):
        if not all(self.sequences) or not all(self.strings):
            raise ValueError(
                f"Stops: an empty stop in sequences {self.sequences!r} or strings {self.strings!r} would end every "
                "continuation where it begins; leave it out"
            )
        if self.strings and self.decode is None:
            raise ValueError(
                f"Stops: strings {self.strings!r} are looked for in text; give `decode`, such as your tokenizer's"
            )


def first_stop(tokens: Int[np.ndarray, " _"], stops: Stops, *, searched: int = 0) -> tuple[int, Stop] | None:
    """How many tokens it takes to complete a stop, and which; None if there is none.

    Args:
        tokens: what was generated.
        stops: what to look for; of those completed by the same token, the first named counts, sequences first.
        searched: so many first tokens are known to complete no stop.
    """
    text = "" if stops.decode is None or not stops.strings else stops.decode(tokens)
    strings = [string for string in stops.strings if string in text]
    for end in range(searched + 1, len(tokens) + 1):
        for sequence in stops.sequences:
            if tuple(tokens[max(0, end - len(sequence)) : end].tolist()) == sequence:
                return end, sequence
        found = _contained(strings, stops.decode(tokens[:end])) if strings and stops.decode else None
        if found is not None:
            return end, found
    return None


def _contained(strings: Sequence[str], text: str) -> str | None:
    return next((string for string in strings if string in text), None)
