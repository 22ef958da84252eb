"""How rotary frequencies are changed so that a model reads texts longer than those that it was first trained on."""

import math
from typing import Literal, get_args

import attrs
import jax.numpy as jnp
from jaxtyping import Array, Float

from marin_models.checks import at_least, one_of, optional, positive

ScalingKind = Literal["linear", "llama3", "yarn"]

_TURNS = {"linear": (1.0, 32.0), "llama3": (1.0, 4.0), "yarn": (1.0, 32.0)}
"""Defaults of ``slow_turns`` and ``fast_turns``."""

_READ = {
    "linear": (),
    "llama3": ("original_length", "slow_turns", "fast_turns"),
    "yarn": ("original_length", "slow_turns", "fast_turns", "attention_factor", "whole_pairs"),
}
"""What each kind reads beside the factor."""


@attrs.frozen
class RotaryScaling:
    """The rotary frequencies of a model whose context was extended, whatever the length of the text that it reads.

    A pair that turns often within the original length tells neighbours apart and keeps its frequency; one that turns
    seldom would meet angles that it has never seen, and its frequency is divided by ``factor``. ``"linear"`` divides
    all; the others have a ramp between.

    Attributes:
        kind: ``"linear"``; ``"llama3"``, whose ramp is linear in the turns (Llama 3.1 and later); or ``"yarn"``, whose
            ramp is linear in the number of the pair, and which sharpens attention.
        factor: by how many times the context was extended, at least 1; 1 changes no frequency.
        original_length: tokens of the context before that; needed by all but ``"linear"``.
        slow_turns: pairs that turn less often than this within the original length are divided by the factor
            (``low_freq_factor``, ``beta_slow``); 1 unless given.
        fast_turns: pairs that turn more often keep their frequency (``high_freq_factor``, ``beta_fast``); 4 for
            ``"llama3"`` and 32 for ``"yarn"`` unless given.
        attention_factor: multiplies cosines and sines, of queries and of keys, with ``"yarn"``; None:
            ``1 + log(factor) / 10``.
        whole_pairs: with ``"yarn"``, the ramp begins and ends at whole pairs (``truncate``).

    Raises:
        ValueError: naming the attribute, what was given and what is possible.

    Source: linear: Chen et al. 2023 (arXiv 2306.15595); YaRN: Peng et al. 2023 (arXiv 2309.00071), sections 3.2 to 3.4;
    llama3: Grattafiori et al. 2024, "The Llama 3 Herd of Models" (arXiv 2407.21783), as released.
    """

    kind: ScalingKind = attrs.field(validator=one_of(*get_args(ScalingKind)))
    factor: float = attrs.field(validator=positive)
    original_length: int | None = attrs.field(default=None, validator=optional(at_least(1)), kw_only=True)
    slow_turns: float = attrs.field(validator=positive, kw_only=True)
    fast_turns: float = attrs.field(validator=positive, kw_only=True)
    attention_factor: float | None = attrs.field(default=None, validator=optional(positive), kw_only=True)
    whole_pairs: bool = attrs.field(default=True, validator=one_of(False, True), kw_only=True)

    @slow_turns.default
    def _slow_turns(self) -> float:
        return _TURNS.get(self.kind, (1.0, 1.0))[0]

    @fast_turns.default
    def _fast_turns(self) -> float:
        return _TURNS.get(self.kind, (1.0, 1.0))[1]

    def __attrs_post_init__(self):
        if self.factor < 1:
            raise ValueError(f"RotaryScaling: factor must be at least 1, not {self.factor!r}")
        if self.original_length is None and self.kind != "linear":
            raise ValueError(
                f"RotaryScaling: kind {self.kind!r} needs original_length, the tokens of the context before it was "
                "extended"
            )
        if not self.slow_turns < self.fast_turns:
            raise ValueError(
                f"RotaryScaling: slow_turns {self.slow_turns!r} must be below fast_turns {self.fast_turns!r}"
            )
        self._check_unread()

    def _check_unread(self):
        unscaled = dict(zip(("slow_turns", "fast_turns"), _TURNS[self.kind], strict=True))
        plain = {"original_length": None, **unscaled, "attention_factor": None, "whole_pairs": True}
        for name in [name for name in plain if name not in _READ[self.kind]]:
            if getattr(self, name) != plain[name]:
                raise ValueError(
                    f"RotaryScaling: kind {self.kind!r} does not read {name}, which is {getattr(self, name)!r}; leave "
                    "it out or choose another kind"
                )

    @property
    def amplitude(self) -> float:
        """What cosines and sines are multiplied by."""
        if self.kind != "yarn":
            return 1.0
        return 1 + math.log(self.factor) / 10 if self.attention_factor is None else float(self.attention_factor)


def scaled_frequencies(
    frequencies: Float[Array, " half"], theta: float, scaling: RotaryScaling
) -> Float[Array, " half"]:
    """The frequencies of a model with a longer context.

    Args:
        frequencies: angle of each pair per position, ``theta**(-i / half)``.
        theta: their base.
        scaling: how the context was extended.
    """
    kept = _kept(frequencies, theta, scaling)
    return kept * frequencies + (1 - kept) * (frequencies / scaling.factor)


def _kept(frequencies: Float[Array, " half"], theta: float, scaling: RotaryScaling) -> Float[Array, " half"]:
    """How much of each pair's frequency stays: 1 for fast ones, 0 for slow ones."""
    if scaling.original_length is None:
        return jnp.zeros_like(frequencies)
    if scaling.kind == "llama3":
        turns = scaling.original_length * frequencies / (2 * math.pi)
        return jnp.clip((turns - scaling.slow_turns) / (scaling.fast_turns - scaling.slow_turns), 0, 1)
    first, last = _ramp(len(frequencies), theta, scaling, scaling.original_length)
    return 1 - jnp.clip((jnp.arange(len(frequencies), dtype=jnp.float32) - first) / (last - first), 0, 1)


def _ramp(half: int, theta: float, scaling: RotaryScaling, length: int) -> tuple[float, float]:
    """The pair from which on frequencies fall, and the one from which on they are divided by the whole factor."""
    first, last = (
        half * math.log(length / (2 * math.pi * turns)) / math.log(theta)
        for turns in (scaling.fast_turns, scaling.slow_turns)
    )
    if scaling.whole_pairs:
        first, last = float(math.floor(first)), float(math.ceil(last))
    # As `transformers` bounds them: by the entries of the rotated part, which are twice the pairs.
    first, last = max(first, 0.0), min(last, 2.0 * half - 1)
    return first, last + 0.001 if first == last else last
