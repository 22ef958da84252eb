"""From a Hugging Face checkpoint to a model."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from jaxtyping import Float

from marin_models.interchange.families import FAMILIES
from marin_models.interchange.family import Family, read_common
from marin_models.interchange.keys import Inexpressible, Keys
from marin_models.interchange.record import RECORD, recorded_config
from marin_models.interchange.shards import DamagedCheckpoint, Shards
from marin_models.interchange.tensors import BALANCING_BIAS, from_tensors, parameter_shapes, pieces
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.transformer_config import TransformerConfig


@attrs.frozen(eq=False)
class Imported:
    """A model that was read from a checkpoint.

    Attributes:
        family: the ``model_type`` of its config.json.
        config: its shape. What a config.json does not say has the defaults of `TransformerConfig`, unless an export
            of ours recorded it.
        parameters: by dotted name, fp32.
        bias: the balancing bias of each router, fp32; None where the family has none.
    """

    family: str
    config: TransformerConfig
    parameters: dict[str, Float[np.ndarray, "..."]]
    bias: Float[np.ndarray, "routed_layers experts"] | None


def import_model(folder: Path, *, ignore: Iterable[str] = ()) -> Imported:
    """Read a checkpoint: config.json, and safetensors files with or without an index.

    Args:
        folder: holds the files.
        ignore: keys of config.json that are known not to change what the model computes.

    Raises:
        Inexpressible: the family or a value in config.json has no counterpart here; all such values are named.
        DamagedCheckpoint: a file is missing or broken, or tensors are missing, unknown or of another shape.
    """
    family, config = read_config(folder, ignore=ignore)
    with Shards(folder) as shards:
        parts = pieces(family, config)
        _refuse_unknown(shards, {piece.tensor for piece in parts}, config)
        parameters = from_tensors(parts, shards, parameter_shapes(family, config))
    bias = parameters.pop(BALANCING_BIAS, None)
    return Imported(family.name, config, parameters, bias)


def read_config(folder: Path, *, ignore: Iterable[str] = ()) -> tuple[Family, TransformerConfig]:
    """Family and shape of a checkpoint; arguments and errors as for `import_model`."""
    path = folder / "config.json"
    try:
        given = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(f"{path} cannot be read ({error}); give the folder of a checkpoint") from error
    family = next((family for family in FAMILIES if family.name == given.get("model_type")), None)
    if family is None:
        raise Inexpressible(
            f"{path}: model_type is {given.get('model_type')!r}; marin_models imports "
            + ", ".join(family.name for family in FAMILIES)
        )
    config = config_from_keys(family, given, ignore=ignore)
    return family, recorded_config(family, config, given[RECORD], path) if RECORD in given else config


def config_from_keys(family: Family, given: Mapping[str, Any], *, ignore: Iterable[str] = ()) -> TransformerConfig:
    """The shape that the keys of a config.json describe.

    Raises:
        Inexpressible: keys are missing, unknown or have a value without counterpart.
    """
    keys = Keys(given, ignored=ignore)
    attributes = {**read_common(keys), **family.read(keys)}
    keys.finish()
    mixture = attributes.pop("mixture", None)
    try:
        routed = None if mixture is None else MixtureOfExpertsConfig(**mixture)
        return TransformerConfig(**attributes, mixture=routed)
    except ValueError as error:
        raise Inexpressible(f"this config.json cannot be imported: {error}") from error


def _refuse_unknown(shards: Shards, known: set[str], config: TransformerConfig) -> None:
    unknown = sorted(name for name in shards.names() - known if not _without_effect(name, config))
    if unknown:
        raise DamagedCheckpoint(
            f"{shards.folder} holds tensors that its config.json has no place for:\n  "
            + "\n  ".join(f"unknown: {name} {shards.shape(name)}" for name in unknown)
        )


def _without_effect(name: str, config: TransformerConfig) -> bool:
    """A stored table of frequencies, a second copy of a tied head, or layers that predict further tokens ahead."""
    layer = re.match(r"model\.layers\.(\d+)\.", name)
    beyond = layer is not None and int(layer[1]) >= config.layers
    return beyond or name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and config.tied_head)
