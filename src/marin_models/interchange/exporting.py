"""From a model to a Hugging Face checkpoint."""

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import ml_dtypes  # noqa: F401  # gives numpy its bfloat16
import numpy as np
from jaxtyping import Array, Float, Int

from marin_models.generation import dropless
from marin_models.interchange.families import FAMILIES
from marin_models.interchange.family import Family, fitting
from marin_models.interchange.importing import import_model
from marin_models.interchange.keys import Inexpressible
from marin_models.interchange.record import RECORD, ROPE, record, written_keys
from marin_models.interchange.shards import write_shards
from marin_models.interchange.tensors import BALANCING_BIAS, parameter_shapes, pieces, to_tensors
from marin_models.interchange.tokenizer_files import TokenizerFiles, write_tokenizer
from marin_models.parameters import unflatten
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig

Precision = Literal["float32", "bfloat16"]

CHECKED_TOKENS = (2, 16)
"""Rows and tokens that logits are compared on."""

TOLERANCE = 1e-5
"""Largest difference of logits, as a share of the largest logit."""


def export_model(
    folder: str | Path,
    config: TransformerConfig,
    parameters: Mapping[str, Float[np.ndarray, "..."]],
    *,
    context_length: int,
    bias: Float[np.ndarray, "routed_layers experts"] | None = None,
    family: str | None = None,
    dtype: Precision = "float32",
    shard_bytes: int = 5_000_000_000,
    tokenizer: TokenizerFiles | None = None,
) -> str:
    """Write a checkpoint that `transformers`, vLLM and SGLang load.

    The files are written to a folder beside the wanted one and read again; only when the model that was read gives the
    same logits are they moved to where they belong.

    Args:
        folder: to be made; its parent exists.
        config: the model's shape.
        parameters: its parameters by name.
        context_length: longest text that the model is good for, in tokens, such as the length it was trained with.
        bias: the balancing bias in force; None: zeros.
        family: one of `FAMILIES`; None: the first that can express the config.
        dtype: of the tensors. ``"bfloat16"`` rounds them; the balancing bias stays fp32.
        shard_bytes: no safetensors file grows beyond it, unless a single tensor does.
        tokenizer: written beside the model.

    Returns:
        The family.

    Raises:
        Inexpressible: the family (or any) cannot express the config; every obstacle is named.
        FileExistsError: the folder exists.
        ValueError: the parameters are not those of the config, or not finite as they are to be written; the tokenizer
            has another vocabulary; or ``dtype``, ``context_length`` or ``shard_bytes`` is none.
    """
    folder = Path(folder)
    _check_arguments(dtype, context_length=context_length, shard_bytes=shard_bytes)
    chosen = _chosen(family, config)
    if folder.exists():
        raise FileExistsError(f"export: {folder} exists; give a folder that does not, or remove it")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"export: {folder.parent} is no folder; make it, or give {folder.name} another place")
    unflatten(config, parameters)
    written = _rounded({**parameters, **_bias(chosen, config, bias)}, dtype)
    partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    partial.mkdir()
    try:
        tensors = to_tensors(pieces(chosen, config), written, dtype=np.dtype(dtype))
        write_shards(partial, tensors, shard_bytes=shard_bytes, metadata={"format": "pt", "rope": ROPE})
        ends = {} if tokenizer is None else write_tokenizer(partial, tokenizer, config, context_length)
        _write_config(partial, chosen, config, {"dtype": dtype, "max_position_embeddings": context_length, **ends})
        _check(partial, config, written)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return chosen.name


def _check_arguments(dtype: str, **counts: int) -> None:
    if dtype not in get_args(Precision):
        raise ValueError(f"export: unknown dtype {dtype!r}; choose one of {', '.join(map(repr, get_args(Precision)))}")
    for name, count in counts.items():
        if type(count) is not int or count < 1:
            raise ValueError(f"export: {name} must be an integer of at least 1, not {count!r}")


def _chosen(name: str | None, config: TransformerConfig) -> Family:
    if name is None:
        return fitting(FAMILIES, config)
    family = next((family for family in FAMILIES if family.name == name), None)
    if family is None:
        raise Inexpressible(
            f"export: unknown family {name!r}; choose one of {', '.join(family.name for family in FAMILIES)}"
        )
    if problems := family.problems(config):
        raise Inexpressible(f"{name} cannot express this TransformerConfig:\n  " + "\n  ".join(problems))
    return family


def _bias(family: Family, config: TransformerConfig, bias: np.ndarray | None) -> dict[str, np.ndarray]:
    """The balancing bias as one more parameter, where the family has a place for it."""
    shape = parameter_shapes(family, config).get(BALANCING_BIAS)
    if shape is None:
        if bias is not None and np.any(bias):
            raise Inexpressible(
                f"{family.name} has no place for a balancing bias, and without it the router would choose other "
                "experts; leave bias out only if it is zero"
            )
        return {}
    bias = np.zeros(shape, np.float32) if bias is None else np.asarray(bias, np.float32)
    if bias.shape != shape:
        raise ValueError(f"export: bias has shape {bias.shape}; expected {shape}, a row for each routed layer")
    return {BALANCING_BIAS: bias}


def _rounded(parameters: Mapping[str, np.ndarray], dtype: Precision) -> dict[str, np.ndarray]:
    """The numbers that the tensors will hold, in fp32; only the balancing bias is never rounded."""
    rounded = {name: np.asarray(value, np.float32) for name, value in parameters.items()}
    if dtype != "float32":
        rounded |= {
            name: value.astype(dtype).astype(np.float32) for name, value in rounded.items() if name != BALANCING_BIAS
        }
    broken = [name for name, value in rounded.items() if not np.isfinite(value).all()]
    if broken:
        raise ValueError(
            f"export: numbers of {', '.join(broken)} are not finite as {dtype}; a model that has diverged cannot be "
            "exported, and one whose numbers are too large for bfloat16 only as float32"
        )
    return rounded


def _write_config(folder: Path, family: Family, config: TransformerConfig, more: Mapping[str, Any]) -> None:
    keys = {
        "architectures": [family.architecture],
        "model_type": family.name,
        **written_keys(family, config),
        **more,
        "torch_dtype": more["dtype"],  # what readers older than `dtype` look for
        RECORD: record(config),
    }
    (folder / "config.json").write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n", "utf-8")


def _check(folder: Path, config: TransformerConfig, written: Mapping[str, np.ndarray]) -> None:
    """The model in the folder gives the logits of the one that was written to it."""
    tokens = np.random.default_rng(0).integers(0, config.vocabulary, CHECKED_TOKENS).astype(np.int32)
    wanted = _logits(config, written, tokens)
    read = import_model(folder)
    bias = {} if read.bias is None else {BALANCING_BIAS: read.bias}
    found = _logits(read.config, {**read.parameters, **bias}, tokens)
    difference, peak = np.abs(found - wanted).max(), np.abs(wanted).max()
    if not difference <= TOLERANCE * peak:
        raise RuntimeError(
            f"export: the model read back gives logits that differ by {difference} (the largest is {peak}); nothing "
            "was exported. This is a defect of marin_models.interchange, please report it with the config"
        )


def _logits(config: TransformerConfig, parameters: Mapping[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    bias = parameters.get(BALANCING_BIAS)
    model = unflatten(dropless(config), {name: value for name, value in parameters.items() if name != BALANCING_BIAS})
    return np.asarray(_forward(model, tokens, bias))


@jax.jit
def _forward(
    model: Transformer,
    tokens: Int[np.ndarray | Array, "batch length"],
    bias: Float[np.ndarray | Array, "layers experts"] | None,
) -> Float[Array, "batch length vocabulary"]:
    return model(tokens, bias=bias)
