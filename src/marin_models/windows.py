"""Training windows as a pure function of seed and step: nothing to save, any step reached at once."""

import hashlib
import math
import numbers
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from jaxtyping import Int

SAMPLED = 4096
_STREAM_OF_WINDOWS = 0x6D6172696E  # keeps these random numbers apart from others drawn with the same seed


def _sorted_dictionary(mapping: Mapping) -> dict:
    return dict(sorted(mapping.items()))


@attrs.frozen(eq=False)
class Mixture:
    """Streams of tokens and how much of training each makes up.

    Attributes:
        streams: 1-D arrays (or memory maps) of unsigned integer tokens by name.
        weights: positive numbers by the same names; divided by their sum they are probabilities.
        offsets: where each document of a stream begins, and the end of the last one, by the same names; None: not
            known, and nothing that has to do with documents can be asked for.
        separated: a separator ends each document, from which the first token of the next one is predicted.

    Raises:
        ValueError: no stream, names differ, a weight is not positive, a stream is not 1-D integers, or offsets do not
            rise from 0 to the end of their stream.
    """

    streams: Mapping[str, np.ndarray] = attrs.field(converter=_sorted_dictionary)
    weights: Mapping[str, float] = attrs.field(converter=_sorted_dictionary)
    offsets: Mapping[str, np.ndarray] | None = attrs.field(
        default=None, converter=attrs.converters.optional(_sorted_dictionary)
    )
    separated: bool = False

    def __attrs_post_init__(self):
        if not self.streams or set(self.streams) != set(self.weights):
            raise ValueError(
                f"Mixture: streams {list(self.streams)} and weights {list(self.weights)} must have the same names, "
                "at least one"
            )
        for name, weight in self.weights.items():
            if not (isinstance(weight, numbers.Real) and weight > 0 and math.isfinite(weight)):
                raise ValueError(
                    f"Mixture: the weight of {name!r} is {weight!r}; it must be a finite number above 0 "
                    "(leave the stream out instead of giving it no weight)"
                )
        for name, stream in self.streams.items():
            check_stream(f"Mixture: stream {name!r}", stream)
        self._check_offsets()

    def _check_offsets(self):
        if self.offsets is None:
            return
        if self.offsets.keys() != self.streams.keys():
            raise ValueError(f"Mixture: offsets {list(self.offsets)} must have the names of streams {self.names}")
        for name, offsets in self.offsets.items():
            size = len(self.streams[name])
            if not _rises(np.asarray(offsets), size):
                raise ValueError(f"Mixture: the offsets of {name!r} must rise from 0 to {size}, the end of its stream")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the streams, sorted; sources are numbered in this order."""
        return tuple(self.streams)


def _rises(offsets: np.ndarray, size: int) -> bool:
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        return False
    borders = offsets.astype(np.int64)
    return bool(borders[0] == 0 and borders[-1] == size and (np.diff(borders) >= 0).all())


def check_stream(what: str, stream: Any) -> None:
    """Raise ``ValueError`` unless something is an array of tokens, one after the other."""
    if not isinstance(stream, np.ndarray):
        raise ValueError(f"{what} is a {type(stream).__name__}; it must be an array of 1-D integer tokens")
    if stream.ndim != 1 or stream.dtype.kind not in "iu":
        raise ValueError(f"{what} is {stream.dtype}{list(stream.shape)}; it must be 1-D integer tokens")


def check_vocabulary(function: str, where: str, tokens: np.ndarray, vocabulary: int, *, advice: str) -> None:
    """Raise ``ValueError`` in the name of a function if a token is none of a vocabulary.

    Args:
        function: its name.
        where: what the tokens are in, such as "in the mixture".
        tokens: integers of any shape.
        vocabulary: tokens are from 0 to below it.
        advice: what to do.
    """
    lowest, highest = tokens.min(initial=0), tokens.max(initial=0)
    if lowest < 0 or highest >= vocabulary:
        wrong = f"token {lowest if lowest < 0 else highest} {where}".rstrip()
        raise ValueError(f"{function}: {wrong} is outside the model's vocabulary of {vocabulary}; {advice}")


def described_stream(stream: np.ndarray) -> str:
    """What tells integers from others: their number, and a digest of `SAMPLED` of them at even distances."""
    chosen = np.linspace(0, len(stream) - 1, min(len(stream), SAMPLED)).astype(np.int64)
    sample = hashlib.sha256(np.asarray(stream[chosen], np.int64).tobytes()).hexdigest()
    return f"{len(stream)}, SHA-256 of some {sample[:16]}"


def _uniform(seed: int, step: int, batch: int) -> np.ndarray:
    """[batch, 2] numbers in [0, 1); row r depends on (seed, step, r) alone."""
    if not (0 <= seed < 2**63 and 0 <= step < 2**63):
        raise ValueError(f"windows: seed {seed} and step {step} must be from 0 to below 2**63")
    bits = np.random.Philox(key=[seed, _STREAM_OF_WINDOWS], counter=[0, 0, 0, step]).random_raw(2 * batch)
    return ((bits >> np.uint64(11)) * 2.0**-53).reshape(batch, 2)


def _sources(mixture: Mixture, chosen: np.ndarray) -> np.ndarray:
    ends = np.cumsum(list(mixture.weights.values()))
    return np.searchsorted(ends[:-1] / ends[-1], chosen, side="right")


def window_sources(mixture: Mixture, *, seed: int, step: int, batch: int) -> Int[np.ndarray, " {batch}"]:
    """Which stream (index into ``mixture.names``) each row of `windows` comes from."""
    return _sources(mixture, _uniform(seed, step, batch)[:, 0])


def windows(
    mixture: Mixture, *, seed: int, step: int, batch: int, length: int, rows: slice = slice(None)
) -> Int[np.ndarray, "rows {length}+1"]:
    """The windows of one training step.

    Each row comes from a stream drawn by weight, at a uniformly drawn position. A row depends only on the mixture,
    ``seed``, ``step`` and its index (counter-based Philox), so any step is reached in constant time, and a larger
    batch begins with the rows of a smaller one.

    Args:
        mixture: where tokens come from.
        seed: of the run, not negative.
        step: 0-based step.
        batch: rows.
        length: tokens that the model reads; a row holds one more, the last target.
        rows: which rows of the batch; all unless given.

    Returns:
        int32 tokens: inputs ``[:, :-1]``, targets ``[:, 1:]``.

    Raises:
        ValueError: a stream is shorter than one window.
    """
    check_streams_hold(mixture, length)
    drawn = _uniform(seed, step, batch)[rows]
    found = np.empty((len(drawn), length + 1), np.int32)
    streams = list(mixture.streams.values())
    for row, source, position in zip(found, _sources(mixture, drawn[:, 0]), drawn[:, 1], strict=True):
        stream = streams[source]
        start = int(position * (len(stream) - length))
        row[:] = stream[start : start + length + 1]
    return found


def check_streams_hold(mixture: Mixture, length: int) -> None:
    """Raise ``ValueError`` naming the streams that are shorter than one window of ``length + 1`` tokens."""
    short = {name: len(stream) for name, stream in mixture.streams.items() if len(stream) < length + 1}
    if short:
        raise ValueError(
            f"windows: a window holds {length + 1} tokens (length + 1), but streams are shorter: {short}; "
            "use a shorter length or leave these streams out"
        )
