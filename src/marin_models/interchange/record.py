"""What an export notes of a config in config.json beside Hugging Face's keys, so that an import gets all of it back."""

from pathlib import Path
from typing import Any

import attrs

from marin_models.interchange.family import Family, write_common
from marin_models.interchange.keys import Inexpressible
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.rotary_scaling import RotaryScaling
from marin_models.transformer_config import TransformerConfig

RECORD = "marin_models"
"""The key in config.json."""

ROPE = "split halves"
"""Entry ``i`` of a head's rotated part is turned with entry ``i + half``, on both sides."""


def written_keys(family: Family, config: TransformerConfig) -> dict[str, Any]:
    """The keys that say what a model of this config computes."""
    return {**write_common(config), **family.write(config)}


def record(config: TransformerConfig) -> dict[str, Any]:
    """All attributes of a config, and which pairs its rotary positions turn."""
    return {"rope": ROPE, "config": attrs.asdict(config)}


def recorded_config(family: Family, read: TransformerConfig, record: dict[str, Any], path: Path) -> TransformerConfig:
    """The config that was recorded, as long as the other keys still say the same.

    Args:
        family: of the checkpoint.
        read: what the other keys say.
        record: what was recorded.
        path: of the config.json, for the message.

    Raises:
        Inexpressible: record and keys contradict each other, or the record is not one of this version.
    """
    try:
        given = dict(record["config"])
        mixture = given.pop("mixture")
        routed = None if mixture is None else MixtureOfExpertsConfig(**mixture)
        scaling = given.pop("rotary_scaling", None)  # a record of before there was any has none
        scaled = None if scaling is None else RotaryScaling(**scaling)
        pattern = tuple(given.pop("local_to_global"))
        config = TransformerConfig(**given, local_to_global=pattern, mixture=routed, rotary_scaling=scaled)
        recorded, found = written_keys(family, config), written_keys(family, read)
    except (KeyError, TypeError, ValueError) as error:
        raise Inexpressible(
            f"{path}: what is recorded under {RECORD!r} is no config of this version ({error}); remove the key to go "
            "by the others"
        ) from error
    if record["rope"] != ROPE:
        raise Inexpressible(f"{path}: {RECORD!r} records rope {record['rope']!r}; only {ROPE!r} can be imported")
    differing = [key for key in found if recorded[key] != found[key]]
    if differing:
        said = "; ".join(f"{key} is {found[key]!r}, recorded is {recorded[key]!r}" for key in differing)
        raise Inexpressible(
            f"{path} contradicts what is recorded in it under {RECORD!r}: {said}; remove {RECORD!r} to go by the others"
        )
    return config
