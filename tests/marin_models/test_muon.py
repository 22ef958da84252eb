import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax.contrib import MuonDimensionNumbers
from simulated_devices import on_devices

from marin_models import muon, parameter
from marin_models.muon import nesterov, orthogonalize_together, update_scale
from marin_models.newton_schulz import COEFFICIENTS
from marin_models.optimizers import Hyperparameters, OptimizerConfig, optimizer

SHAPES = {"wide": (3, 8, 24), "tall": (2, 12, 8), "experts": (2, 3, 8, 8)}


def gaussian(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def matrices(seed):
    return {name: gaussian(*shape, seed=seed + index) for index, (name, shape) in enumerate(SHAPES.items())}


class Model(eqx.Module):
    """Modules are what carries groups."""

    arrays: dict | list = parameter("matrix")
    head: jax.Array | None = parameter("head")

    def __init__(self, arrays, head=None):
        self.arrays, self.head = arrays, head


@pytest.mark.parametrize(("coefficients", "scale"), [("quintic", "rms"), ("simple", "spectral")])
def test_muon_is_optax_muon_step_after_step(coefficients, scale):
    config = OptimizerConfig(
        "muon", 0.02, momentum=0.9, coefficients=coefficients, scale=scale, orthogonalization="float32"
    )
    rule = optimizer(config.rule, Hyperparameters.of(config))
    peer = optax.contrib.muon(
        0.02,
        ns_coeffs=COEFFICIENTS[coefficients],
        beta=0.9,
        weight_decay=0.1,
        consistent_rms=0.2 if scale == "rms" else None,
        muon_weight_dimension_numbers={name: MuonDimensionNumbers(-2, -1) for name in SHAPES},
    )
    ours, theirs = Model(matrices(0)), matrices(0)
    state, peer_state = rule.init(ours), peer.init(theirs)
    update, peer_update = jax.jit(rule.update), jax.jit(peer.update)
    for step in range(1, 4):
        found, state = update(Model(matrices(10 * step)), state, ours)
        wanted, peer_state = peer_update(matrices(10 * step), peer_state, theirs)
        for name, expected in wanted.items():
            largest = float(jnp.abs(expected).max())
            np.testing.assert_allclose(found.arrays[name], expected, atol=1e-5 * largest)
        ours, theirs = optax.apply_updates(ours, found), optax.apply_updates(theirs, wanted)


def test_nesterov_of_equal_gradients_is_the_gradient():
    momentum = 0.0
    for count in range(1, 5):
        momentum = 0.95 * momentum + 0.05 * 3.0
        found = nesterov(jnp.full(2, 3.0), jnp.full(2, momentum), 0.95, count)
        correction = 0.95 * 3.0 * (1 - 0.95**count) / (1 - 0.95 ** (count + 1))
        np.testing.assert_allclose(found, correction + 0.05 * 3.0 / (1 - 0.95**count), rtol=1e-5)


@pytest.mark.parametrize(
    ("scale", "inputs", "outputs", "wanted"),
    [("rms", 16, 64, 1.6), ("rms", 64, 16, 1.6), ("spectral", 16, 64, 2.0), ("spectral", 64, 16, 1.0)],
)
def test_scales_of_updates(scale, inputs, outputs, wanted):
    assert update_scale(scale, inputs, outputs) == pytest.approx(wanted)


def test_alike_arrays_do_not_mix():
    one, other = gaussian(2, 8, 12), gaussian(2, 8, 12, seed=1)
    together = orthogonalize_together([one, other, one[:, :4]], dtype="float32")
    np.testing.assert_array_equal(together[1], orthogonalize_together([other], dtype="float32")[0])
    assert [found.shape for found in together] == [(2, 8, 12), (2, 8, 12), (2, 4, 12)]


MESH = {"replica": 1, "data": 4, "expert": 2, "model": 1}
STORED = {
    "query": ((3, 16, 24), (None, ("data", "expert"), None)),
    "key": ((3, 16, 24), (None, ("data", "expert"), None)),
    "down": ((3, 24, 16), (None, "model", "data")),  # an axis of one device
    "layers split": ((4, 8, 16), ("data", None, None)),
    "experts": ((3, 4, 16, 8), (None, "expert", "data", None)),
    "one": ((8, 16), ("data", None)),
}


@functools.cache
def mesh():
    explicit = (jax.sharding.AxisType.Explicit,) * 4
    return jax.make_mesh(tuple(MESH.values()), tuple(MESH), explicit)


def stored():
    """The arrays on the mesh, split as a model splits them."""
    spec = jax.sharding.PartitionSpec
    return [
        jax.device_put(gaussian(*shape, seed=seed), jax.sharding.NamedSharding(mesh(), spec(*axes)))
        for seed, (shape, axes) in enumerate(STORED.values())
    ]


@on_devices(8)
def test_on_a_mesh_the_result_is_that_of_one_device_and_lies_as_it_lay():
    wanted = [
        orthogonalize_together([gaussian(*shape, seed=n)], dtype="float32")[0]
        for n, (shape, _) in enumerate(STORED.values())
    ]
    with jax.set_mesh(mesh()):
        given = stored()
        found = jax.jit(functools.partial(orthogonalize_together, dtype="float32"))(given)
    for one, expected, before in zip(found, wanted, given, strict=True):
        assert one.sharding == before.sharding
        np.testing.assert_allclose(np.asarray(one), np.asarray(expected), atol=1e-6)


@on_devices(8)
def test_on_a_mesh_each_device_gets_whole_matrices_and_its_share_of_them():
    shapes, real = [], muon.orthogonalize

    def noting(matrices, **settings):
        shapes.append(matrices.shape)
        return real(matrices, **settings)

    muon.orthogonalize = noting
    try:
        with jax.set_mesh(mesh()):
            jax.eval_shape(orthogonalize_together, stored())
    finally:
        muon.orthogonalize = real
    # two of three layers on 8; three on 8; four layers on their 4, 2 axes left; 3 layers on 4 beside 4 experts on 2
    assert sorted(shapes) == sorted([(1, 16, 24), (1, 24, 16), (1, 1, 8, 16), (1, 2, 16, 8), (1, 8, 16)])


@on_devices(8)
def test_a_step_of_muon_on_a_mesh_is_that_of_one_device():
    config = OptimizerConfig("muonh", 0.02, orthogonalization="float32")
    rule = optimizer(config.rule, Hyperparameters.of(config))

    def step(model, gradients):
        return rule.update(gradients, rule.init(model), model)[0]

    def models(arrays):
        return [Model([scale * array for array in arrays], jnp.full((4, 4), scale)) for scale in (1.0, -0.5)]

    plain = jax.jit(step)(*models([gaussian(*shape, seed=n) for n, (shape, _) in enumerate(STORED.values())][-2:]))
    with jax.set_mesh(mesh()):
        spread = jax.jit(step)(*models(stored()[-2:]))
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(spread), strict=True):
        # the change is a difference of matrices with entries up to 4
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=5e-6)
