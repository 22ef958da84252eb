"""One layer after the other, compiled once: a scan over layers whose parameters lie behind one another."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
from jaxtyping import Array, PyTree

from marin_kernels.expert_parallel.saved import SAVED
from marin_models.transformer_config import Remat

UNROLLED_LAYERS = 4  # up to here the layers are compiled one by one: faster steps, longer compilation

Layer = Callable[[Array, Any, Any], tuple[Array, Any]]
"""``layer(x, parameters of one layer, its kind) -> (x, anything)``."""


def period(kinds: Sequence[Hashable]) -> int:
    """The smallest ``p`` such that every kind equals the one ``p`` places before it; at least 1.

    >>> period(["local", "local", "global", "local"])
    3
    """
    return next(p for p in range(1, len(kinds) + 1) if list(kinds[p:]) == list(kinds[:-p]))


def through_layers(
    layer: Layer, x: Array, layers: PyTree, kinds: Sequence[Hashable], *, remat: Remat = "none"
) -> tuple[Array, PyTree]:
    """``x`` after all layers, and what each layer gave beside it, stacked.

    One turn of the scan is one period of the kinds; what is left over at the end follows on its own.

    Args:
        layer: one layer; its parameters have no layer axis.
        x: what enters the first layer.
        layers: parameters (and other arrays) of all layers, stacked on the first axis.
        kinds: what is known of each layer when it is compiled, such as its window.
        remat: what is computed again in the reverse pass; see `TransformerConfig`.
    """
    every = period(kinds)
    turns, rest = divmod(len(kinds), every)
    if rest:
        first, last = _split(layers, (turns * every, rest))
        x, given = through_layers(layer, x, first, kinds[:-rest], remat=remat)
        x, given_last = through_layers(layer, x, last, kinds[-rest:], remat=remat)
        return x, jax.tree.map(lambda *parts: jax.numpy.concatenate(parts), given, given_last)
    looped = len(kinds) > UNROLLED_LAYERS and turns > 1
    turn = _turn(_rematerialized(layer, remat, looped=looped), kinds[:every])
    x, given = jax.lax.scan(turn, x, _grouped(layers, every), unroll=1 if looped else turns)
    return x, _ungrouped(given, every)


def _turn(layer: Layer, kinds: Sequence[Hashable]) -> Callable[[Array, PyTree], tuple[Array, PyTree]]:
    """The layers of one period as one step of a scan."""
    if len(kinds) == 1:
        return lambda x, parameters: layer(x, parameters, kinds[0])

    def turn(x: Array, grouped: PyTree) -> tuple[Array, PyTree]:
        given = []
        for parameters, kind in zip(_split(grouped, (1,) * len(kinds)), kinds, strict=True):
            x, one = layer(x, jax.tree.map(lambda leaf: leaf[0], parameters), kind)
            given.append(one)
        return x, jax.tree.map(lambda *parts: jax.numpy.stack(parts), *given)

    return turn


def _split(layers: PyTree, sizes: Sequence[int]) -> list[PyTree]:
    """Pieces of the layer axis; the reverse pass is one concatenation."""
    leaves, structure = jax.tree.flatten(layers)
    pieces = [jax.lax.split(leaf, sizes) for leaf in leaves]
    return [structure.unflatten([piece[index] for piece in pieces]) for index in range(len(sizes))]


def _grouped(layers: PyTree, every: int) -> PyTree:
    if every == 1:
        return layers
    return jax.tree.map(lambda leaf: leaf.reshape(-1, every, *leaf.shape[1:]), layers)


def _ungrouped(given: PyTree, every: int) -> PyTree:
    if every == 1:
        return given
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), given)


def _rematerialized(layer: Layer, remat: Remat, *, looped: bool) -> Layer:
    """The layer, computing again what is not to be kept; between turns of a loop the compiler cannot undo that."""
    if remat == "none":
        return layer
    names = SAVED if remat == "save_moe" else ()
    policy = jax.checkpoint_policies.save_only_these_names(*names)
    return jax.checkpoint(layer, policy=policy, prevent_cse=not looped, static_argnums=(2,))
