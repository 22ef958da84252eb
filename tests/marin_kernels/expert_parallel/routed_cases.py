"""Small routed layers, meshes for them, and how far a result may be from the oracle."""

import functools
from collections.abc import Callable
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from plain_planner import Sources

from marin_kernels.expert_parallel import Experts, Routing, moe
from marin_kernels.expert_parallel.reference import reference

AXES = ("replica", "data", "expert", "model")
TRANSPORTS = ("ring", "ring_dedup", "fixed", "pooled", "ragged", "hierarchical")
RULES = {"fixed": "fixed", "pooled": "pooled", "ring_dedup": "once", "hierarchical": "once"}
"""How the counting planner names what is dropped; those not named ask the receivers alone."""
FLOAT32 = {"forward": 1e-5, "backward": 2e-5}
BFLOAT16 = {"forward": 2e-2, "backward": 2e-2}


def mesh_of(*, replica=1, data=1, expert=1, model=1):
    """A mesh over the first of the devices."""
    shape = (replica, data, expert, model)
    devices = jax.devices()[: int(np.prod(shape))]
    return jax.make_mesh(shape, AXES, axis_types=(AxisType.Explicit,) * 4, devices=devices)


def layer(tokens=64, width=4, inner=8, experts=8, top_k=2, *, skew=2.0, padded=0, seed=0, dtype=np.float32):
    """Tokens, a routing that favours later experts, and experts; some tokens are padding, full of NaN."""
    random = np.random.default_rng(seed)
    shapes = (experts, width, inner), (experts, width, inner), (experts, inner, width)
    matrices = (random.standard_normal(shape) / shape[1] ** 0.5 for shape in shapes)
    scores = random.standard_normal((tokens, experts)) + skew * np.linspace(0, 1, experts)
    chosen = np.argsort(-scores, axis=1)[:, :top_k].astype(np.int32)
    weights = random.uniform(0.2, 1, (tokens, top_k)).astype(np.float32)
    valid = np.ones(tokens, bool)
    valid[random.permutation(tokens)[:padded]] = False
    x = random.standard_normal((tokens, width))
    return padding_of(valid, x.astype(dtype), chosen, weights, Experts(*(m.astype(dtype) for m in matrices)))


def padding_of(valid, x, chosen, weights, experts):
    """A case whose padding holds what must not be looked at."""
    hole = ~valid[:, None]
    x, weights = (np.where(hole, np.nan, value).astype(value.dtype) for value in (x, weights))
    return x, Routing(chosen, weights, valid), experts


def special_cases(**named):
    """Cases of one shape for four or fewer shards of experts: skewed, even, idle shards, one expert for all."""
    x, routing, experts = layer(padded=7, skew=4.0, **named)
    everything = np.ones(len(x), bool)
    idle = everything.copy()
    idle[: len(x) // 8] = idle[len(x) // 2 : -len(x) // 4] = False
    crowd = np.full_like(routing.experts, len(experts.gate))
    crowd[:, 0] = 5
    filled = layer(padded=0, skew=0.0, **named)
    return {
        "skewed": (x, routing, experts),
        "even": filled,
        "idle shards": padding_of(idle, filled[0], *filled[1][:2], experts),
        "one expert for all": padding_of(everything, filled[0], crowd, filled[1].weights, experts),
        "nothing but padding": padding_of(~everything, filled[0], *filled[1][:2], experts),
    }


def value_and_gradients(function: Callable, x, weights, experts):
    """What a layer returns and the gradients of x, combine weights and matrices.

    The cotangent is not constant, so that tokens and channels that change places are seen.
    """

    def scalar(x, weights, experts):
        y, counts = function(x, weights, experts)
        slope = jnp.cos(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape)
        return jnp.sum(y.astype(jnp.float32) * slope), (y, counts)

    gradients, (y, counts) = jax.grad(scalar, (0, 1, 2), has_aux=True)(x, weights, experts)
    return y, counts, gradients


@functools.cache
def compiled(options, shapes, mesh=None, oracle=False):
    """One compiled function for all cases of one shape; compiled fast rather than to be fast."""

    def call(x, routing, experts, keep=None):
        def layer(x, weights, experts):
            named = routing._replace(weights=weights)
            return (reference(x, named, experts, keep), ()) if oracle else moe(x, named, experts, **dict(options))

        return value_and_gradients(layer, x, routing.weights, experts)

    with nullcontext() if mesh is None else jax.set_mesh(mesh):
        lowered = jax.jit(call).lower(*jax.tree.unflatten(*shapes))
        return lowered.compile(compiler_options={"xla_backend_optimization_level": 0})


def shapes_of(*arguments):
    """What a compiled function is made for."""
    leaves, tree = jax.tree.flatten(arguments)
    return tree, tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)


def program(case, mesh=None, **options):
    """The compiled program of `moe` and its gradients."""
    options = {"grouped_matmul": "reference", **options}
    return compiled(tuple(sorted(options.items())), shapes_of(*case), mesh)


def run(case, mesh=None, **options):
    """`moe` on a case, as numpy arrays: outputs, counts, gradients."""
    return jax.tree.map(np.asarray, program(case, mesh, **options)(*case))


def counted(case, implementation, groups=1, shards=1, factor=None, lanes=1):
    """The keep mask and the drops, counted on fingers, of ``groups`` expert axes of so many shards."""
    _, routing, experts = case
    tokens, top_k = routing.experts.shape
    keep, drops = np.zeros((tokens, top_k), bool), np.zeros(2, int)
    chosen, valid, numbers = (
        values.reshape(groups, shards, -1, *values.shape[1:])
        for values in (routing.experts, routing.valid, np.arange(tokens))
    )
    for group in range(groups):
        sources = Sources(chosen[group].tolist(), valid[group].tolist(), len(experts.gate), factor, lanes)
        kept, *dropped = getattr(sources, RULES.get(implementation, "receivers"))()
        drops += dropped
        for source, token, k in kept:
            keep[numbers[group, source, token], k] = True
    return keep, *drops


def expected(case, keep):
    """The oracle in fp32: outputs, nothing, gradients."""
    x, routing, experts = case
    case = x.astype(np.float32), routing, Experts(*(np.asarray(m, np.float32) for m in experts))
    return jax.tree.map(np.asarray, compiled((), shapes_of(*case, keep), oracle=True)(*case, keep))


def check(case, implementation, *, groups=1, shards=1, factor=None, lanes=1, tolerances=FLOAT32, mesh=None, **options):
    """Everything that is promised of one call: outputs, gradients, drops, counts. Returns the result."""
    mesh = mesh or mesh_of(data=groups, expert=shards)
    options |= {"shards_per_host": lanes} if implementation == "hierarchical" else {}
    result = run(case, mesh, implementation=implementation, capacity_factor=factor, **options)
    lanes = lanes if implementation == "hierarchical" else 1
    keep, by_sender, by_receiver = counted(case, implementation, groups, shards, factor, lanes)
    (_, routing, experts), counts = case, result[1]
    real = routing.valid[:, None] & (routing.experts < len(experts.gate))
    np.testing.assert_array_equal(counts.load, np.bincount(routing.experts[real], minlength=len(experts.gate)))
    drops = (int(counts.dropped_by_sender), int(counts.dropped_by_receiver), int(counts.padding))
    assert drops == (by_sender, by_receiver, np.sum(~real))
    np.testing.assert_array_equal(result[2][1] != 0, keep)  # a dropped assignment has no gradient, a kept one has
    assert_agrees(result, expected(case, keep), routing, **tolerances)
    return result


def assert_close(result, oracle, tolerance):
    """The largest error over the peak of the oracle; NaN is an error, and so is a number where zero is due."""
    result, oracle = (np.asarray(value, np.float64) for value in (result, oracle))
    np.testing.assert_allclose(result, oracle, rtol=0, atol=tolerance * np.abs(oracle).max(initial=0))


def assert_agrees(result, oracle, routing, *, forward=1e-5, backward=2e-5):
    """Outputs and all gradients agree with an oracle's, expert by expert, each within its own peak."""
    (y, _, (d_x, d_weights, matrices)), (y_, _, (d_x_, d_weights_, matrices_)) = result, oracle
    for expert in range(len(matrices.gate)):
        tokens = routing.experts[:, 0] == expert
        assert_close(y[tokens], y_[tokens], forward)
        assert_close(d_x[tokens], d_x_[tokens], backward)
        assert_close(d_weights[tokens], d_weights_[tokens], backward)
        for matrix, matrix_ in zip(matrices, matrices_, strict=True):
            assert_close(matrix[expert], matrix_[expert], backward)
