import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec
from simulated_devices import on_devices
from tiny_models import ROUTED, TINY, random_model

from marin_models import Transformer
from marin_models.mesh import AXES, axis_sizes, make_mesh, parameter_shardings, parameter_specs, product, put, spec
from marin_models.parameters import abstract_model

GATED = attrs.evolve(
    TINY,
    vocabulary=18,
    window=3,
    local_to_global=(1, 1),
    attention_bias=True,
    attention_gate=True,
    norm_gate=2,
)
MIXED = attrs.evolve(
    GATED, dense_layers=1, rotary_fraction=0.5, mixture=attrs.evolve(ROUTED.mixture, implementation="ring", latent=4)
)


@jax.jit
def loss_and_gradients(model, tokens, segment_ids):
    def loss(model):
        bias = jnp.linspace(-1, 1, 4)[None] if model.config.mixture else None
        hidden, statistics, _ = model.forward(tokens, segment_ids, bias=bias)
        logits = hidden @ model.head
        targets = jnp.roll(tokens, -1, axis=1)[..., None] == jnp.arange(logits.shape[-1])
        routers = 0 if statistics is None else jnp.sum(statistics.loss)
        return routers - jnp.sum(jnp.where(targets, jax.nn.log_softmax(logits), 0)) / tokens.size, statistics

    return jax.value_and_grad(loss, has_aux=True)(model)


@functools.cache
def inputs():
    tokens = jax.random.randint(jax.random.key(1), (8, 6), 0, 17)
    return tokens, jnp.repeat(jnp.array([[0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, -1]]), 4, axis=0)


def on_mesh(transformer, **sizes):
    """Loss and gradients, computed on a mesh of the first devices; and the shardings of the gradients."""
    mesh = make_mesh(jax.devices()[: int(np.prod(list(sizes.values()) or [1]))], **sizes)
    with jax.set_mesh(mesh):
        placed = jax.device_put(transformer, parameter_shardings(transformer, mesh))
        loss, gradients = loss_and_gradients(placed, *jax.device_put(inputs(), jax.NamedSharding(mesh, spec(None))))
    return jax.device_get(loss), gradients


def assert_equal_numbers(found, expected, tolerance):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=tolerance, atol=tolerance)


@on_devices(8)
def test_a_model_gives_the_same_numbers_on_one_device_and_on_a_mesh_of_eight():
    model = random_model(MIXED)
    plain = loss_and_gradients(model, *inputs())
    loss, gradients = on_mesh(model, data=2, expert=2, model=2)
    assert_equal_numbers((loss, gradients), plain, 2e-5)
    gate = gradients.blocks.feed_forward.gate
    assert gate.sharding.shard_shape(gate.shape) == (1, 2, 2, 3)
    latent = gradients.blocks.feed_forward.latent
    assert latent.down.sharding.shard_shape(latent.down.shape) == (1, 2, 2)
    assert latent.up.sharding.shard_shape(latent.up.shape) == (1, 2, 2)


@on_devices(8)
def test_a_single_head_lies_on_a_mesh_too():
    for heads in (2, 1):
        model = random_model(attrs.evolve(TINY, layers=1, heads=heads, key_value_heads=1))
        plain = loss_and_gradients(model, *inputs())
        assert_equal_numbers(on_mesh(model, data=2), plain, 2e-5)


@pytest.mark.long
@pytest.mark.parametrize("config", [MIXED, GATED], ids=["mixed", "dense"])
@on_devices(8)
def test_a_model_gives_the_same_numbers_on_every_mesh(config):
    model = random_model(config)
    plain = loss_and_gradients(model, *inputs())
    assert_equal_numbers(on_mesh(model), plain, 0 if config.mixture is None else 1e-6)
    for sizes in ({"data": 2, "expert": 2, "model": 2}, {"replica": 2, "data": 2}, {"expert": 4}, {"model": 2}):
        assert_equal_numbers(on_mesh(model, **sizes), plain, 2e-5)


@on_devices(8)
def test_parameters_lie_in_pieces_and_come_back_whole():
    model = random_model(GATED)
    mesh = make_mesh(data=2, expert=2, model=2)
    placed = jax.device_put(model, parameter_shardings(model, mesh))
    query = placed.blocks.attention.query
    assert query.sharding.shard_shape(query.shape) == (2, 2, 8)
    assert_equal_numbers(placed, model, 0)


@on_devices(8)
def test_a_mesh_has_all_axes_and_explicit_types():
    mesh = make_mesh(expert=8)
    assert dict(mesh.shape) == {"replica": 1, "data": 1, "expert": 8, "model": 1}
    assert set(mesh.axis_types) == {AxisType.Explicit}
    with pytest.raises(ValueError, match=r"data=3, expert=1, model=1 is a mesh of 3 devices, but there are 8; change"):
        make_mesh(data=3)
    with jax.set_mesh(mesh):
        assert axis_sizes() == dict(mesh.shape)
        per_device = jax.shard_map(lambda x: x * len(axis_sizes()), in_specs=spec("expert"), out_specs=spec("expert"))
        np.testing.assert_array_equal(jax.jit(per_device)(put(jnp.ones(8), "expert")), np.zeros(8))


def test_without_a_mesh_nothing_is_moved_and_no_axis_is_named():
    x = jnp.ones((2, 3))
    assert put(x, "data", "model") is x
    assert spec(("data", "expert"), "model", None) == PartitionSpec(None, None, None)
    np.testing.assert_array_equal(product(x, jnp.ones((3, 2)), "data", None), 3 * np.ones((2, 2)))


def test_a_spec_drops_the_axes_that_the_mesh_lacks():
    model = abstract_model(GATED)
    specs = parameter_specs(model, AbstractMesh((2, 2), ("data", "model")))
    assert specs.blocks.feed_forward.gate == PartitionSpec(None, "data", "model")
    assert specs.blocks.attention.output == PartitionSpec(None, "model", "data")
    assert specs.blocks.attention_norm.norm.scale == PartitionSpec(None, None)
    assert specs.embedding == PartitionSpec("model", "data")


def test_a_parameter_is_split_as_far_as_its_size_divides():
    model = abstract_model(attrs.evolve(TINY, width=6))
    specs = parameter_specs(model, AbstractMesh((1, 2, 2, 2), AXES))
    assert specs.blocks.feed_forward.gate == PartitionSpec(None, "data", "model")
    assert specs.embedding == PartitionSpec(None, "data")


def test_heads_that_do_not_divide_are_an_error_that_names_them():
    model = abstract_model(GATED)
    with (
        jax.sharding.use_abstract_mesh(AbstractMesh((1, 1, 1, 4), AXES, axis_types=(AxisType.Explicit,) * 4)),
        pytest.raises(ValueError, match="vocabulary 18 cannot be split over the 4 devices of the axis 'model' of"),
    ):
        jax.eval_shape(Transformer.__call__, model, jax.ShapeDtypeStruct((4, 4), jnp.int32))
