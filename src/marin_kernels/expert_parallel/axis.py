"""Collectives over the expert axis; none at all where it has one shard."""

import functools

import attrs
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

Groups = tuple[tuple[int, ...], ...]


@attrs.frozen
class ExpertAxis:
    """The members of one expert axis, or of one group of them, as seen from inside of one.

    Attributes:
        size: number of shards, or of those in a group.
        name: the mesh axis; not looked at when the size is 1.
        groups: which shards speak with each other; None: all.
    """

    size: int = 1
    name: str = "expert"
    groups: Groups | None = None

    def index(self) -> Int[Array, ""]:
        """Which shard of the whole axis this is."""
        return jnp.int32(0) if self.size == 1 and self.groups is None else jax.lax.axis_index(self.name)

    def all_gather(self, values: Array) -> Array:
        """``[...] -> [shards, ...]``; gradients are summed in fp32."""
        if self.size == 1:
            return values[None]
        real = jnp.issubdtype(values.dtype, jnp.floating)
        return _all_gather(self, values) if real else jax.lax.all_gather(values, self.name, **self._groups)

    def reduce_scatter(self, values: Array, dtype: jnp.dtype) -> Array:
        """``[shards, ...] -> [...]``, the sum over shards, in fp32; the gradient travels in ``dtype``."""
        return values[0] if self.size == 1 else _reduce_scatter(self, dtype, values)

    def all_to_all(self, values: Array) -> Array:
        """``[destinations, ...] -> [sources, ...]``."""
        return values if self.size == 1 else jax.lax.all_to_all(values, self.name, 0, 0, **self._groups)

    @property
    def _groups(self) -> dict[str, Groups | None]:
        return {"axis_index_groups": self.groups}


def hosts_and_lanes(shards: int, lanes: int) -> tuple[ExpertAxis, ExpertAxis]:
    """An axis of ``shards``, of which ``lanes`` neighbours share a host, split in two.

    Returns:
        The shards of equal lane, one of each host; and the shards of one host.
    """
    hosts = shards // lanes
    across = tuple(tuple(host * lanes + lane for host in range(hosts)) for lane in range(lanes))
    inside = tuple(tuple(host * lanes + lane for lane in range(lanes)) for host in range(hosts))
    return ExpertAxis(hosts, groups=across), ExpertAxis(lanes, groups=inside)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _all_gather(axis: ExpertAxis, values: Array) -> Array:
    return jax.lax.all_gather(values, axis.name, **axis._groups)


def _all_gather_forward(axis, values):
    return _all_gather(axis, values), None


def _all_gather_backward(axis, _, cotangent):
    summed = jax.lax.psum_scatter(cotangent.astype(jnp.float32), axis.name, **axis._groups)
    return (summed.astype(cotangent.dtype),)


_all_gather.defvjp(_all_gather_forward, _all_gather_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _reduce_scatter(axis: ExpertAxis, dtype: jnp.dtype, values: Array) -> Array:
    return jax.lax.psum_scatter(values.astype(jnp.float32), axis.name, **axis._groups)


def _reduce_scatter_forward(axis, dtype, values):
    return _reduce_scatter(axis, dtype, values), None


def _reduce_scatter_backward(axis, dtype, _, cotangent):
    return (jax.lax.all_gather(cotangent.astype(dtype), axis.name, **axis._groups).astype(jnp.float32),)


_reduce_scatter.defvjp(_reduce_scatter_forward, _reduce_scatter_backward)
