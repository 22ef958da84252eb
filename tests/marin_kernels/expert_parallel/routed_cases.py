"""Small routed layers, meshes for them, and how far a result may be from the oracle."""

import functools
from collections.abc import Callable
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

from marin_kernels.expert_parallel import Experts, Routing, moe

AXES = ("replica", "data", "expert", "model")


def mesh_of(*, replica=1, data=1, expert=1, model=1):
    """A mesh over the first of the devices."""
    shape = (replica, data, expert, model)
    devices = jax.devices()[: int(np.prod(shape))]
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Explicit,) * 4, devices=devices)


def layer(tokens=32, width=4, inner=8, experts=8, top_k=2, *, skew=2.0, padded=0, seed=0, dtype=jnp.float32):
    """Tokens, a routing that favours later experts, and experts; the last ``padded`` tokens are padding."""
    keys = jax.random.split(jax.random.key(seed), 6)
    shapes = (experts, width, inner), (experts, width, inner), (experts, inner, width)
    matrices = (jax.random.normal(key, shape) / shape[1] ** 0.5 for key, shape in zip(keys, shapes, strict=False))
    scores = jax.random.normal(keys[3], (tokens, experts)) + skew * jnp.linspace(0, 1, experts)
    chosen = jax.lax.top_k(scores, top_k)[1]
    weights = jax.random.uniform(keys[4], (tokens, top_k), minval=0.2)
    valid = jnp.arange(tokens) < tokens - padded if padded else None
    x = jax.random.normal(keys[5], (tokens, width)).astype(dtype)
    return x, Routing(chosen, weights, valid), Experts(*(matrix.astype(dtype) for matrix in matrices))


@functools.partial(jax.jit, static_argnames=("function",))
def value_and_gradients(function: Callable, x, routing: Routing, experts: Experts):
    """The outputs of a layer, what it returns besides, and the gradients of x, combine weights and matrices.

    The cotangent is not constant, so that tokens and channels that change places are seen.
    """

    def scalar(x, weights, experts):
        y, counts = function(x, routing._replace(weights=weights), experts)
        slope = jnp.cos(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape)
        return jnp.sum(y.astype(jnp.float32) * slope), (y, counts)

    gradients, (y, counts) = jax.grad(scalar, (0, 1, 2), has_aux=True)(x, routing.weights, experts)
    return y, counts, gradients


def run(case, mesh=None, **options):
    """`moe` on a case, as numpy arrays: outputs, counts, gradients."""
    with nullcontext() if mesh is None else jax.set_mesh(mesh):
        return jax.tree.map(np.asarray, value_and_gradients(_moe(tuple(sorted(options.items()))), *case))


@functools.cache
def _moe(options):
    return functools.partial(moe, **dict(options))


def assert_close(result, expected, tolerance):
    """The largest error over the peak of what is expected; NaN is an error."""
    result, expected = (np.asarray(value, np.float64) for value in (result, expected))
    peak = np.abs(expected).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance * (peak or 1.0))


def assert_agrees(result, oracle, *, forward=1e-5, backward=2e-5):
    """Outputs and all gradients agree with an oracle's; those of matrices by expert."""
    (y, _, (d_x, d_weights, d_experts)), (y_, _, (d_x_, d_weights_, d_experts_)) = result, oracle
    assert_close(y, y_, forward)
    assert_close(d_x, d_x_, backward)
    assert_close(d_weights, d_weights_, backward)
    for name, matrices, matrices_ in zip(Experts._fields, d_experts, d_experts_, strict=True):
        for expert in range(len(matrices)):
            try:
                assert_close(matrices[expert], matrices_[expert], backward)
            except AssertionError as error:
                raise AssertionError(f"gradient of `{name}` of expert {expert}: {error}") from None
