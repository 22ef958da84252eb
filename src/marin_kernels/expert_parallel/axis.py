"""Collectives over the expert axis; none at all where it has one shard."""

import functools

import attrs
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int


@attrs.frozen
class ExpertAxis:
    """The members of one expert axis, as seen from inside of one of them.

    Attributes:
        size: number of shards.
        name: the mesh axis; not looked at when the size is 1.
    """

    size: int = 1
    name: str = "expert"

    def index(self) -> Int[Array, ""]:
        """Which shard this is."""
        return jnp.int32(0) if self.size == 1 else jax.lax.axis_index(self.name)

    def all_gather(self, values: Array) -> Array:
        """``[...] -> [shards, ...]``; gradients are summed in fp32."""
        if self.size == 1:
            return values[None]
        real = jnp.issubdtype(values.dtype, jnp.floating)
        return _all_gather(self.name, values) if real else jax.lax.all_gather(values, self.name)

    def reduce_scatter(self, values: Array, dtype: jnp.dtype) -> Array:
        """``[shards, ...] -> [...]``, the sum over shards, in fp32; the gradient travels in ``dtype``."""
        return values[0] if self.size == 1 else _reduce_scatter(self.name, dtype, values)

    def all_to_all(self, values: Array) -> Array:
        """``[destinations, ...] -> [sources, ...]``."""
        return values if self.size == 1 else jax.lax.all_to_all(values, self.name, 0, 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _all_gather(name: str, values: Array) -> Array:
    return jax.lax.all_gather(values, name)


def _all_gather_forward(name, values):
    return _all_gather(name, values), None


def _all_gather_backward(name, _, cotangent):
    summed = jax.lax.psum_scatter(cotangent.astype(jnp.float32), name)
    return (summed.astype(cotangent.dtype),)


_all_gather.defvjp(_all_gather_forward, _all_gather_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _reduce_scatter(name: str, dtype: jnp.dtype, values: Array) -> Array:
    return jax.lax.psum_scatter(values.astype(jnp.float32), name)


def _reduce_scatter_forward(name, dtype, values):
    return _reduce_scatter(name, dtype, values), None


def _reduce_scatter_backward(name, dtype, _, cotangent):
    return (jax.lax.all_gather(cotangent.astype(dtype), name).astype(jnp.float32),)


_reduce_scatter.defvjp(_reduce_scatter_forward, _reduce_scatter_backward)
