"""A model as a flat dictionary of named arrays, and back."""

from collections.abc import Mapping

import jax
import numpy as np
from jax.sharding import Mesh

from marin_models.mesh import parameter_shardings
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig


def abstract_model(config: TransformerConfig) -> Transformer:
    """The model's structure with shapes and dtypes in the place of arrays; nothing is computed."""
    return jax.eval_shape(lambda key: Transformer(config, key=key), jax.random.key(0))


def parameter_name(path: tuple) -> str:
    """The dotted name of a parameter, such as ``blocks.attention.query``."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def check_bias(function: str, config: TransformerConfig, shape: tuple[int, ...] | None) -> None:
    """Raise ``ValueError`` in the name of a function if balancing biases of a shape are not those of a config.

    Args:
        function: its name.
        config: the model's shape.
        shape: of the biases; None: there are none, which is always possible.
    """
    expected = None if config.mixture is None else (config.routed_layers, config.mixture.experts)
    if shape is not None and shape != expected:
        wanted = "none: the model has no routers" if expected is None else f"{expected}, a row for each routed layer"
        raise ValueError(f"{function}: bias has shape {shape}; expected {wanted}")


def flatten(model: Transformer) -> dict[str, np.ndarray]:
    """The model's parameters by dotted name (``blocks.attention.query``: all layers, stacked on axis 0)."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    return {parameter_name(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(config: TransformerConfig, parameters: Mapping[str, np.ndarray], mesh: Mesh | None = None) -> Transformer:
    """The model of ``config`` with these parameters.

    Args:
        config: its shape.
        parameters: by dotted name.
        mesh: each of its devices gets its pieces alone (see `marin_models.parameter_shardings`); None: all on one.

    Raises:
        ValueError: parameters are missing, unknown, or have another shape than the config implies.
    """
    expected, structure = jax.tree_util.tree_flatten_with_path(abstract_model(config))
    shapes = {parameter_name(path): leaf for path, leaf in expected}
    problems = [f"missing: {name} {leaf.shape}" for name, leaf in shapes.items() if name not in parameters]
    problems += [f"unknown: {name} {np.shape(value)}" for name, value in parameters.items() if name not in shapes]
    problems += [
        f"shape of {name}: {np.shape(parameters[name])} given, {leaf.shape} expected"
        for name, leaf in shapes.items()
        if name in parameters and np.shape(parameters[name]) != leaf.shape
    ]
    if problems:
        raise ValueError(
            "these parameters do not belong to this TransformerConfig (use the config they were trained with):\n  "
            + "\n  ".join(problems)
        )
    if mesh is None:
        return structure.unflatten([jax.numpy.asarray(parameters[name], leaf.dtype) for name, leaf in shapes.items()])
    arrays = structure.unflatten([np.asarray(parameters[name], leaf.dtype) for name, leaf in shapes.items()])
    return jax.device_put(arrays, parameter_shardings(arrays, mesh))
