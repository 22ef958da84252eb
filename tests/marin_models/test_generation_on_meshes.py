"""What a model writes does not depend on how many devices hold it."""

import functools

import attrs
import jax
import numpy as np
import pytest
from simulated_devices import on_devices
from tiny_models import ROUTED, TINY, random_model

from marin_models import Stops, flatten, generate, generate_batch, make_mesh
from marin_models.generation import dropless
from marin_models.parameters import unflatten

DENSE = attrs.evolve(TINY, layers=1, vocabulary=18, window=3, attention_bias=True, attention_gate=True)
MIXED = attrs.evolve(
    ROUTED, layers=2, vocabulary=18, mixture=attrs.evolve(ROUTED.mixture, latent=4, capacity_factor=1.0)
)
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [5], [2, 7, 1]]
TOKENS = 7
BIAS = np.linspace(-1, 1, 4, dtype=np.float32)[None]


@functools.cache
def parameters(config):
    return flatten(random_model(config))


def written(config, mesh, **arguments):
    bias = None if config.mixture is None else BIAS
    found = generate_batch(config, parameters(config), PROMPTS, TOKENS, bias=bias, mesh=mesh, **arguments)
    return [(one.tokens.tolist(), one.stop) for one in found]


SAMPLED = {"temperature": 1.5, "top_p": 0.9, "seed": 7}


MESHES = {"rows": {"data": 4, "expert": 2}, "all": {"data": 2, "expert": 2, "model": 2}}


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        pytest.param(DENSE, MESHES["rows"], id="dense-rows"),
        pytest.param(DENSE, MESHES["all"], id="dense-all", marks=pytest.mark.long),
        pytest.param(MIXED, MESHES["rows"], id="mixed-rows", marks=pytest.mark.long),
        pytest.param(MIXED, MESHES["all"], id="mixed-all"),
    ],
)
@on_devices(8)
def test_a_mesh_writes_the_same_tokens_as_one_device(config, sizes):
    for arguments in ({}, SAMPLED):
        assert written(config, make_mesh(**sizes), **arguments) == written(config, None, **arguments)


@on_devices(8)
def test_a_stop_ends_its_own_row_on_a_mesh_and_rows_that_fill_it_up_are_not_waited_for():
    stops = Stops(sequences=[(tokens[3],) for tokens, _ in written(DENSE, None)])
    found = written(DENSE, make_mesh(**MESHES["rows"]), stops=stops)
    assert found == written(DENSE, None, stops=stops)
    assert all(stopped is not None for _, stopped in found)


@on_devices(8)
def test_parameters_lie_in_pieces_on_a_mesh():
    mesh = make_mesh(data=4, expert=2)
    model = unflatten(MIXED, parameters(MIXED), mesh)
    gate = model.blocks.feed_forward.gate
    assert gate.sharding.shard_shape(gate.shape) == (1, 2, 1, 6)
    jax.tree.map(np.testing.assert_array_equal, model, unflatten(MIXED, parameters(MIXED)))


@on_devices(8)
def test_experts_travel_as_the_config_says_where_that_is_possible_and_drop_nothing():
    split, whole = make_mesh(data=4, expert=2), make_mesh(data=8)
    for given, mesh, wanted in (("local", split, "ring"), ("fixed", split, "fixed"), ("fixed", whole, "local")):
        config = attrs.evolve(MIXED, mixture=attrs.evolve(MIXED.mixture, implementation=given))
        mixture = dropless(config, mesh).mixture
        assert (mixture.implementation, mixture.capacity_factor) == (wanted, None)


@on_devices(8)
def test_a_mesh_that_cannot_split_the_model_is_refused():
    with pytest.raises(ValueError, match="vocabulary 18 cannot be split over the 8 devices of the axis 'model'"):
        generate(DENSE, parameters(DENSE), [1], 3, mesh=make_mesh(model=8))
    with pytest.raises(ValueError, match="experts 4 cannot be split over the 8 devices of the axis 'expert'"):
        generate(MIXED, parameters(MIXED), [1], 3, mesh=make_mesh(expert=8))
