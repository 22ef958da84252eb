"""Rotary positions in a config.json: the older keys and the newer ones, with and without a longer context."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from marin_models.interchange.keys import Keys
from marin_models.rotary_scaling import RotaryScaling
from marin_models.transformer_config import TransformerConfig

_TURN_KEYS = {"llama3": ("low_freq_factor", "high_freq_factor"), "yarn": ("beta_slow", "beta_fast")}
"""What the bounds of the ramp are called."""

_YARN_TURNS = {"beta_slow": 1.0, "beta_fast": 32.0}
"""What `transformers` assumes."""


def read_rotation(keys: Keys, *, theta: float, fraction: float = 1.0) -> dict[str, Any]:
    """Base, rotated part and scaling of rotary positions.

    Args:
        keys: with ``rope_parameters``, or ``rope_theta`` and ``rope_scaling``.
        theta: what the family assumes where the file says nothing.
        fraction: likewise.
    """
    theta = keys.take("rope_theta", theta)
    fraction = keys.take("partial_rotary_factor", fraction)
    before = keys.take("original_max_position_embeddings", keys.given.get("max_position_embeddings"))
    older, newer = (_plain(keys.take(key, {})) for key in ("rope_scaling", "rope_parameters"))
    for given in (older, newer):
        theta, fraction = given.pop("rope_theta", theta), given.pop("partial_rotary_factor", fraction)
    if older and newer and older != newer:
        keys.problems.append(f"rope_scaling is {older!r} and rope_parameters are {newer!r}; remove one of them")
    scaling = _read_scaling(keys, newer or older, before)
    return {"rope_theta": _number(theta), "rotary_fraction": fraction, "rotary_scaling": scaling}


def written_rotation(config: TransformerConfig, **more: Any) -> dict[str, Any]:
    """The keys of `read_rotation`, as older and as newer `transformers` want them.

    Args:
        config: of the model.
        **more: further ``rope_parameters``.
    """
    scaling = {} if config.rotary_scaling is None else _written_scaling(config.rotary_scaling)
    parameters = {"rope_type": "default", **scaling, "rope_theta": config.rope_theta, **more}
    return {"rope_theta": config.rope_theta, "rope_scaling": scaling or None, "rope_parameters": parameters}


def _number(value: Any) -> Any:
    """Whole numbers as floats: 8 and 8.0 are the same factor."""
    return float(value) if type(value) is int else value


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without nulls, and with the newer name of the type."""
    found = {key: value for key, value in given.items() if value is not None}
    kind = found.pop("type", "default")
    return {"rope_type": kind, **found} if found or kind != "default" else {}


def _read_scaling(keys: Keys, given: dict[str, Any], before: int | None) -> RotaryScaling | None:
    kind = given.pop("rope_type", "default")
    if kind not in _READ:
        reason = ", whose frequencies do not change with the length of the text" if kind == "dynamic" else ""
        keys.refuse("rope_type", kind, f"only {', '.join(map(repr, _READ))}{reason}")
        return None
    parameters = _Parameters(keys, kind, given, before)
    attributes = _READ[kind](parameters)
    if not parameters.finished():
        return None
    try:
        return RotaryScaling(kind, **attributes) if kind != "default" else None
    except ValueError as error:
        keys.problems.append(f"rope_type {kind!r} has values that cannot be: {error}")
        return None


class _Parameters:
    """The parameters of one type, each to be taken once."""

    def __init__(self, keys: Keys, kind: str, given: dict[str, Any], before: int | None) -> None:
        self.keys, self.kind, self.left, self.before = keys, kind, given, before
        self.complete = True

    def take(self, name: str) -> Any:
        if name not in self.left:
            self.keys.problems.append(f"rope_type {self.kind!r} needs {name}, which is missing")
            self.complete = False
        return _number(self.left.pop(name, None))

    def optional(self, *names: str) -> list[Any]:
        """Those that may be left out; None where they are."""
        return [_number(self.left.pop(name, None)) for name in names]

    def finished(self) -> bool:
        """Whether all that is needed was there; what is left over is refused."""
        for name, value in self.left.items():
            self.keys.problems.append(f"{name} is {value!r}, which rope_type {self.kind!r} does not have; remove it")
        return self.complete and not self.left

    def original_length(self) -> int | None:
        """As `transformers` assumes it."""
        return self.left.pop("original_max_position_embeddings", self.before)


def _read_llama3(given: _Parameters) -> dict[str, Any]:
    slow, fast = (given.take(name) for name in _TURN_KEYS["llama3"])
    turns = {"slow_turns": slow, "fast_turns": fast}
    return {"factor": given.take("factor"), "original_length": given.original_length(), **turns}


def _read_yarn(given: _Parameters) -> dict[str, Any]:
    factor = given.take("factor")
    slow, fast, attention, scale, scale_all = given.optional(
        *_TURN_KEYS["yarn"], "attention_factor", "mscale", "mscale_all_dim"
    )
    if attention is None and scale and scale_all and factor:
        attention = (1 + scale * math.log(factor) / 10) / (1 + scale_all * math.log(factor) / 10)
    slow, fast = (value or _YARN_TURNS[key] for key, value in zip(_TURN_KEYS["yarn"], (slow, fast), strict=True))
    found = {"slow_turns": slow, "fast_turns": fast, "attention_factor": attention}
    whole = given.left.pop("truncate", True)
    return {"factor": factor, "original_length": given.original_length(), "whole_pairs": whole, **found}


_READ: Mapping[str, Callable[[_Parameters], dict[str, Any]]] = {
    "default": lambda given: {},
    "linear": lambda given: {"factor": given.take("factor")},
    "llama3": _read_llama3,
    "yarn": _read_yarn,
}
"""By type, the attributes of a `RotaryScaling`."""


def _written_scaling(scaling: RotaryScaling) -> dict[str, Any]:
    written: dict[str, Any] = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind in _TURN_KEYS:
        slow, fast = _TURN_KEYS[scaling.kind]
        turns = {slow: scaling.slow_turns, fast: scaling.fast_turns}
        if scaling.kind == "yarn":  # `transformers` wants all of llama3's, and writes none of these unless given
            turns = {key: value for key, value in turns.items() if value != _YARN_TURNS[key]}
        written |= {"original_max_position_embeddings": scaling.original_length, **turns}
    if scaling.attention_factor is not None:
        written["attention_factor"] = scaling.attention_factor
    if not scaling.whole_pairs:
        written["truncate"] = False
    return written
