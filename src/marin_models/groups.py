"""Optimizer groups: what kind of thing each parameter is, said where the parameter is defined."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

import equinox as eqx
import jax
from jaxtyping import PyTree

Group = Literal["matrix", "embedding", "head", "norm", "router", "bias"]

GROUPS: tuple[Group, ...] = get_args(Group)


Axes = tuple[str | tuple[str, ...] | None, ...]
"""The mesh axes that split each axis of an array."""


def parameter(group: Group, axes: Axes = ()) -> Any:
    """A module field that holds a parameter (or parameters) of one optimizer group.

    Args:
        group: ``"matrix"``: maps inputs to outputs in its last two axes, earlier axes stack independent matrices;
            ``"embedding"``: a row per token; ``"head"``: hidden state to logits; ``"norm"``: element-wise scales;
            ``"router"``: hidden state to scores of experts; ``"bias"``: numbers added to each output.
        axes: the mesh axes that split each of its last axes where it is stored (see `marin_models.mesh`).

    Raises:
        ValueError: there is no such group.
    """
    if group not in GROUPS:
        raise ValueError(f"parameter: unknown optimizer group {group!r}; choose one of {', '.join(map(repr, GROUPS))}")
    return eqx.field(metadata={"group": group, "axes": axes})


def parameter_groups(model: PyTree) -> PyTree:
    """The optimizer group of every parameter, in a tree of the model's own structure.

    Args:
        model: modules whose array fields were declared with `parameter`.

    Raises:
        TypeError: a parameter was declared without a group.
    """
    return jax.tree_util.tree_map_with_path(lambda path, _: declaration(model, path)["group"], model)


def declaration(model: PyTree, path: tuple) -> Mapping[str, Any]:
    """What `parameter` said about the parameter at a path: its ``group`` and its ``axes``.

    Raises:
        TypeError: it was declared without `parameter`.
    """
    declared, node, owner = None, model, type(model).__name__
    for key in path:
        if isinstance(key, jax.tree_util.GetAttrKey):
            field = next(f for f in dataclasses.fields(node) if f.name == key.name)
            declared = field.metadata if "group" in field.metadata else declared
            owner, node = f"{type(node).__name__}.{key.name}", getattr(node, key.name)
        else:
            node = node[getattr(key, "idx", getattr(key, "key", None))]
    if declared is None:
        raise TypeError(
            f"parameter {owner} has no optimizer group; declare the field with "
            f"`marin_models.parameter(group)`, where group is one of {', '.join(map(repr, GROUPS))}"
        )
    return declared
