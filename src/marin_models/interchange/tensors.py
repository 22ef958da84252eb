"""Which tensor of a checkpoint is which part of which parameter.

`transformers` keeps a matrix as [outputs, inputs] and one tensor for each layer and expert; here a matrix is
[inputs, outputs] and layers and experts are stacked. Rotary positions turn the same pairs on both sides (entries half a
rotated part apart: "split halves"), so queries and keys need no reordering.
"""

import functools
from collections.abc import Iterator, Mapping

import attrs
import jax
import numpy as np
from jaxtyping import Float

from marin_models.interchange.family import MODEL_NAMES, Family
from marin_models.interchange.keys import Inexpressible
from marin_models.interchange.shards import DamagedCheckpoint, Shards
from marin_models.parameters import abstract_model, parameter_name
from marin_models.transformer_config import TransformerConfig

BALANCING_BIAS = "balancing_bias"
"""The name under which the bias of all routers, [routed layers, experts], stands among the parameters here."""

READABLE = ("F64", "F32", "F16", "BF16")
"""Dtypes of tensors that hold a model's numbers as they are."""


@attrs.frozen
class Piece:
    """One tensor of a checkpoint.

    Attributes:
        tensor: its name.
        parameter: the dotted name of the parameter that it is a part of.
        index: the layer, or layer and expert, in the parameter's first axes; nothing for a whole parameter.
        shape: of the part of the parameter.
        transposed: whether the tensor is the transposed part.
    """

    tensor: str
    parameter: str
    index: tuple[int, ...]
    shape: tuple[int, ...]
    transposed: bool

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self.shape[::-1] if self.transposed else self.shape


def parameter_shapes(family: Family, config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter of a config, the balancing bias included where the family has one."""
    shapes = dict(_model_shapes(config))
    if BALANCING_BIAS in family.names and config.mixture is not None:
        shapes[BALANCING_BIAS] = (config.routed_layers, config.mixture.experts)
    return shapes


@functools.lru_cache(maxsize=8)
def _model_shapes(config: TransformerConfig) -> tuple[tuple[str, tuple[int, ...]], ...]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(abstract_model(config))
    return tuple((parameter_name(path), tuple(leaf.shape)) for path, leaf in leaves)


def pieces(family: Family, config: TransformerConfig) -> list[Piece]:
    """All tensors of a checkpoint, layer after layer."""
    found = [
        piece for name, shape in parameter_shapes(family, config).items() for piece in _of(family, config, name, shape)
    ]
    return sorted(found, key=lambda piece: _place(piece, config))


def _of(family: Family, config: TransformerConfig, name: str, shape: tuple[int, ...]) -> Iterator[Piece]:
    if name in MODEL_NAMES:
        yield Piece(MODEL_NAMES[name], name, (), shape, transposed=name == "separate_head")
        return
    first, local_name = _first_layer(config, name)
    template = family.names.get(local_name)
    if template is None:
        raise Inexpressible(f"{family.name} has no tensor for the parameter {name}")
    stacked = 2 if "{expert}" in template else 1
    for index in np.ndindex(*shape[:stacked]):
        expert = index[1] if stacked == 2 else None
        tensor = f"model.layers.{first + index[0]}.{template.format(expert=expert)}"
        yield Piece(tensor, name, index, shape[stacked:], transposed=len(shape) - stacked == 2)


def _first_layer(config: TransformerConfig, name: str) -> tuple[int, str]:
    """The layer that a stacked parameter begins with, and its name inside of a layer."""
    if name == BALANCING_BIAS:
        return config.dense_layers, name
    stack, _, local_name = name.partition(".")
    if stack == "dense_blocks" or config.mixture is None:
        return 0, local_name
    kind, _, rest = local_name.partition(".")
    return config.dense_layers, f"mixture.{rest}" if kind == "feed_forward" else local_name


def _place(piece: Piece, config: TransformerConfig) -> tuple[int, str]:
    """Embedding first, then layers, then the rest."""
    if piece.parameter in MODEL_NAMES:
        return (-1 if piece.parameter == "embedding" else config.layers), piece.tensor
    return int(piece.tensor.split(".")[2]), piece.tensor


def to_tensors(
    parts: list[Piece], parameters: Mapping[str, Float[np.ndarray, "..."]], dtype: np.dtype
) -> Iterator[tuple[str, np.ndarray]]:
    """Names and arrays of a checkpoint, made one at a time."""
    for piece in parts:
        part = parameters[piece.parameter][piece.index]
        kept = np.dtype(np.float32) if piece.parameter == BALANCING_BIAS else dtype
        yield piece.tensor, (part.T if piece.transposed else part).astype(kept)


def from_tensors(parts: list[Piece], shards: Shards, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The parameters that a checkpoint's tensors make up, in fp32.

    Raises:
        DamagedCheckpoint: tensors are missing, have another shape or dtype, or numbers that are not finite in fp32; all
            are named.
    """
    problems = [_problem(piece, shards) for piece in parts]
    if any(problems):
        raise DamagedCheckpoint(
            f"the tensors in {shards.folder} do not fit its config.json:\n  " + "\n  ".join(filter(None, problems))
        )
    parameters = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
    broken = []
    for piece in parts:
        tensor = shards.read(piece.tensor)
        with np.errstate(over="ignore"):  # what is too large for fp32 becomes infinite, and is named
            part = (tensor.T if piece.transposed else tensor).astype(np.float32)
        parameters[piece.parameter][piece.index] = part
        if not np.isfinite(part).all():
            broken.append(f"{piece.tensor}: {np.count_nonzero(~np.isfinite(part)):,} of {part.size:,} numbers")
    if broken:
        raise DamagedCheckpoint(
            f"tensors in {shards.folder} hold numbers that are not finite in fp32, of which no model could compute "
            "anything:\n  " + "\n  ".join(broken)
        )
    return parameters


def _problem(piece: Piece, shards: Shards) -> str | None:
    if piece.tensor not in shards.names():
        return f"missing: {piece.tensor} {piece.tensor_shape}"
    found, dtype = shards.shape(piece.tensor), shards.dtype(piece.tensor)
    if found != piece.tensor_shape:
        return f"shape of {piece.tensor}: {found}, expected {piece.tensor_shape}"
    if dtype not in READABLE:
        return f"dtype of {piece.tensor}: {dtype}, expected {', '.join(READABLE)}; quantized tensors cannot be imported"
    return None
