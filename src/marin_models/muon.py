"""Muon: momentum whose matrices are orthogonalized, whole matrices on whole devices."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, Float

from marin_models.newton_schulz import Coefficients, OrthogonalizationDtype, orthogonalize

MuonScale = Literal["rms", "spectral"]

ADAM_RMS = 0.2  # the usual root mean square of AdamW's updates (Liu et al. 2025, arXiv 2502.16982)


def update_scale(scale: MuonScale, inputs: int, outputs: int) -> float:
    """The factor on an orthogonalized [inputs, outputs] matrix.

    Args:
        scale: ``"rms"``: the update gets AdamW's usual root mean square, ``0.2 * sqrt(max(inputs, outputs))``;
            ``"spectral"``: its effect on activations does not depend on width, ``sqrt(max(1, outputs / inputs))``.
        inputs: rows.
        outputs: columns.
    """
    if scale == "rms":
        return ADAM_RMS * math.sqrt(max(inputs, outputs))
    return math.sqrt(max(1.0, outputs / inputs))


def nesterov(
    gradient: Float[Array, "*shape"],
    momentum: Float[Array, "*shape"],
    decay: float | Float[Array, ""],
    count: int | Float[Array, ""],
) -> Float[Array, "*shape"]:
    """The direction that Nesterov's momentum looks ahead to, free of the bias of its start.

    Args:
        gradient: of this step.
        momentum: exponential average of the gradients, this one included.
        decay: of the average.
        count: 1-based number of this step.

    Source: Dozat 2016, "Incorporating Nesterov Momentum into Adam".
    """
    return decay * momentum / (1 - decay ** (count + 1)) + (1 - decay) * gradient / (1 - decay**count)


def orthogonalize_together(
    stacks: Sequence[Float[Array, "..."]],
    *,
    coefficients: Coefficients = "quintic",
    dtype: OrthogonalizationDtype = "bfloat16",
) -> list[Float[Array, "..."]]:
    """Orthogonalize every matrix of several stacks, of which each is an array [*stack, rows, columns].

    On a mesh, arrays of one shape are put together, and their matrices dealt out to the devices: each device gets whole
    matrices, each matrix is worked on once. Axes of a stack that are split already (experts) stay where they are.

    Returns:
        The results, of ``dtype``, each split as it was given.
    """
    apply = functools.partial(orthogonalize, coefficients=coefficients, dtype=dtype)
    found: dict[int, Array] = {}
    for indices in _alike(stacks):
        group = [stacks[index].astype(dtype) for index in indices]
        alone = not _explicit(group[0])
        results = map(apply, group) if alone else _on_mesh(apply, jnp.stack(group))
        found |= zip(indices, results, strict=True)
    return [found[index] for index in range(len(stacks))]


def _alike(stacks: Sequence[Array]) -> list[list[int]]:
    """Positions of the arrays that have one shape and lie alike."""
    groups: dict[tuple, list[int]] = {}
    for index, one in enumerate(stacks):
        groups.setdefault((one.shape, str(jax.typeof(one).sharding.spec)), []).append(index)
    return list(groups.values())


def _explicit(x: Array) -> dict[str, int]:
    """The mesh axes that types of arrays speak of, with more than one device."""
    mesh = jax.typeof(x).sharding.mesh
    axes = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    return {name: size for name, size, kind in axes if kind == AxisType.Explicit and size > 1}


def _names(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else entry or ()


def _on_mesh(apply: Callable[[Array], Array], stack: Array) -> Array:
    """``apply`` to a stack [..., rows, columns] on a mesh: free axes of the mesh split the free axes of the stack."""
    whole = jax.typeof(stack).sharding.spec
    entries = [*whole, *[None] * (stack.ndim - len(whole))]
    last = stack.ndim - 2
    split = [axis for axis in range(last) if any(name in _explicit(stack) for name in _names(entries[axis]))]
    order = [axis for axis in range(last) if axis not in split] + split + [last, last + 1]
    moved = jnp.transpose(stack, order)
    count = math.prod(moved.shape[: last - len(split)])
    flat = moved.reshape(count, *moved.shape[last - len(split) :])
    route = _route([entries[axis] for axis in order[last - len(split) :]], _explicit(stack))
    share = math.prod(_explicit(stack).get(name, 1) for name in _names(route[-1][0]))
    found = jnp.pad(flat, [(0, -count % share)] + [(0, 0)] * (flat.ndim - 1))
    for spec in route:
        found = jax.sharding.reshard(found, spec)
    found = jax.shard_map(apply, in_specs=route[-1], out_specs=route[-1])(found)
    for spec in reversed(route):
        found = jax.sharding.reshard(found, spec)
    return jnp.transpose(found[:count].reshape(moved.shape), [order.index(axis) for axis in range(stack.ndim)])


def _route(entries: Sequence[str | tuple[str, ...] | None], sizes: Mapping[str, int]) -> list[PartitionSpec]:
    """How [count, *split, rows, columns] with a whole first axis goes to whole matrices, one all-to-all at a time.

    The first axis takes up the mesh axes from the others, the minor ones first, and at last those that split nothing.
    """
    current = [[], *(list(_names(entry)) for entry in entries)]
    specs = [_spec(current)]
    for axis in (len(current) - 1, len(current) - 2):
        while current[axis]:
            current[0].append(current[axis].pop())
            specs.append(_spec(current))
    current[0] += [name for name in sizes if not any(name in names for names in current)]
    return [*specs, _spec(current)]


def _spec(axes: Sequence[Sequence[str]]) -> PartitionSpec:
    return PartitionSpec(*(tuple(names) or None for names in axes))
