"""From a Hugging Face checkpoint to a model."""

import json
import re
import warnings
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

COUNTS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
"""Keys whose numbers others are computed with while a config.json is read."""


@attrs.frozen(eq=False)
class Imported:
    """A model that was read from a checkpoint.

    Attributes:
        family: the ``model_type`` of its config.json.
        config: its shape. What a config.json does not say has the defaults of `TransformerConfig`, unless an export
            of ours recorded it.
        parameters: by dotted name, fp32.
        bias: the balancing bias of each router, fp32; None where the family has none.
        left_out: names of the tensors of layers that predict tokens further ahead, which no model here has.
    """

    family: str
    config: TransformerConfig
    parameters: dict[str, Float[np.ndarray, "..."]]
    bias: Float[np.ndarray, "routed_layers experts"] | None
    left_out: tuple[str, ...] = ()


class LeftOut(UserWarning):
    """A part of a checkpoint that changes no logits was not imported."""


def import_model(folder: str | Path, *, ignore: Iterable[str] = ()) -> Imported:
    """Read a checkpoint: config.json, and safetensors files with or without an index.

    Args:
        folder: holds the files.
        ignore: keys of config.json that are known not to change what the model computes.

    Raises:
        Inexpressible: the family or a value in config.json has no counterpart here; all such values are named.
        DamagedCheckpoint: a file is missing or broken, or tensors are missing, unknown or of another shape or dtype.

    Warns:
        LeftOut: the checkpoint has layers that predict tokens further ahead (``num_nextn_predict_layers``).
    """
    folder = Path(folder)
    family, config = read_config(folder, ignore=ignore)
    with Shards(folder) as shards:
        parts = pieces(family, config)
        left_out = _further_ahead(shards, config, _read_keys(folder).get("num_nextn_predict_layers") or 0)
        _refuse_unknown(shards, {piece.tensor for piece in parts}.union(left_out), config)
        parameters = from_tensors(parts, shards, parameter_shapes(family, config))
    if left_out:
        warnings.warn(
            f"{folder}: {len(left_out)} tensors of layers that predict tokens further ahead are left out "
            f"({left_out[0]} and so on): no model here has such layers, and the logits of the next token do not "
            "depend on them",
            LeftOut,
            stacklevel=2,
        )
    bias = parameters.pop(BALANCING_BIAS, None)
    return Imported(family.name, config, parameters, bias, left_out)


def read_config(folder: str | Path, *, ignore: Iterable[str] = ()) -> tuple[Family, TransformerConfig]:
    """Family and shape of a checkpoint; arguments and errors as for `import_model`."""
    path, given = Path(folder) / "config.json", _read_keys(Path(folder))
    family = next((family for family in FAMILIES if family.name == given.get("model_type")), None)
    if family is None:
        raise Inexpressible(
            f"{path}: model_type is {given.get('model_type')!r}; marin_models imports "
            + ", ".join(family.name for family in FAMILIES)
        )
    config = config_from_keys(family, given, ignore=ignore)
    return family, recorded_config(family, config, given[RECORD], path) if RECORD in given else config


def _read_keys(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(f"{path} cannot be read ({error}); give the folder of a checkpoint") from error
    if not isinstance(found, dict):
        raise DamagedCheckpoint(
            f"{path} holds a JSON {type(found).__name__}, expected an object; give the folder of a checkpoint"
        )
    return found


def config_from_keys(family: Family, given: Mapping[str, Any], *, ignore: Iterable[str] = ()) -> TransformerConfig:
    """The shape that the keys of a config.json describe.

    Raises:
        Inexpressible: keys are missing, unknown or have a value without counterpart.
    """
    keys = Keys(given, ignored=ignore)
    keys.check_counts(*COUNTS)
    try:
        attributes = {**read_common(keys), **family.read(keys)}
        keys.finish()
        mixture = attributes.pop("mixture", None)
        routed = None if mixture is None else MixtureOfExpertsConfig(**mixture)
        return TransformerConfig(**attributes, mixture=routed)
    except Inexpressible:
        raise
    except ValueError as error:
        raise Inexpressible(f"this config.json cannot be imported: {error}") from error
    except (TypeError, AttributeError, LookupError) as error:
        raise Inexpressible(
            f"this config.json cannot be imported: a value in it has another type than {family.name} has there "
            f"({error}); mend it, or fetch it again"
        ) from error


def _refuse_unknown(shards: Shards, known: set[str], config: TransformerConfig) -> None:
    unknown = sorted(name for name in shards.names() - known if not _without_effect(name, config))
    if unknown:
        raise DamagedCheckpoint(
            f"{shards.folder} holds tensors that its config.json has no place for:\n  "
            + "\n  ".join(f"unknown: {name} {shards.shape(name)}" for name in unknown)
        )


def _without_effect(name: str, config: TransformerConfig) -> bool:
    """A stored table of frequencies, or a second copy of a tied head."""
    return name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and config.tied_head)


def _further_ahead(shards: Shards, config: TransformerConfig, layers: int) -> tuple[str, ...]:
    """The tensors of so many layers behind those of the model."""
    found = ((name, re.match(r"model\.layers\.(\d+)\.", name)) for name in sorted(shards.names()))
    behind = range(config.layers, config.layers + layers)
    return tuple(name for name, layer in found if layer is not None and int(layer[1]) in behind)
