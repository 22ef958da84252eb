import functools

import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixtures import plain_weights
from simulated_devices import on_devices

from marin_kernels.expert_parallel import Extent, collective_bytes
from marin_models.balancing import begin_step, end_step, initial_balancing, sign_bias
from marin_models.groups import parameter_groups
from marin_models.mesh import make_mesh, parameter_shardings
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.mixture_of_experts import MixtureOfExperts, merged
from marin_models.pod_plan import collectives

SMALL = MixtureOfExpertsConfig(8, 2, 12, shared_inner=4, scale=2.5)
BARE = attrs.evolve(SMALL, shared_inner=0, router_z_loss=0.25)
LATENT = attrs.evolve(SMALL, latent=8)
LOSSES = attrs.evolve(BARE, balancing="auxiliary", auxiliary_coefficient=0.5)
WIDTH = 16
ALL = jnp.ones(32, bool)
BIAS = jnp.linspace(-0.2, 0.2, 8)


@functools.cache
def layer(config=SMALL):
    """A block of random parameters, drawn by numpy: to compile JAX's generators takes seconds."""
    make = functools.partial(MixtureOfExperts, config, WIDTH, scale=1.0, output_scale=1.0)
    random = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: jnp.asarray(random.standard_normal(leaf.shape) / leaf.shape[-2:][0] ** 0.5, jnp.float32),
        jax.eval_shape(lambda key: make(key=key), jax.random.key(0)),
    )


def hidden(tokens=32, seed=0):
    random = np.random.default_rng(seed)
    # A direction that all tokens share makes some experts popular.
    return jnp.asarray(random.standard_normal((tokens, WIDTH)) + 0.7 * random.standard_normal(WIDTH), jnp.float32)


_apply = jax.jit(lambda layer, x, bias, valid: layer(x, bias, valid))


def apply(layer, x, bias=BIAS, valid=ALL):
    return _apply(layer, x, bias, valid)


def swiglu(x, gate, up, down):
    return (x @ gate / (1 + np.exp(-x @ gate)) * (x @ up)) @ down


def plain(layer, x, bias):
    """The block written out in numpy, in double precision, one token and one expert at a time."""
    layer = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), layer)
    x = np.asarray(x, np.float64)
    logits = x @ layer.router.weight
    experts = np.argsort(-(1 / (1 + np.exp(-logits)) + bias), axis=-1)[:, : layer.config.top_k]
    out = swiglu(x, layer.shared.gate, layer.shared.up, layer.shared.down)
    if layer.latent is not None:
        x = x @ layer.latent.down
        x = x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-6) * layer.latent.norm.scale
    routed = np.zeros_like(x)
    for row, (chosen, weights) in enumerate(zip(experts, plain_weights(logits, experts, layer.config), strict=True)):
        for expert, weight in zip(chosen, weights, strict=True):
            routed[row] += weight * swiglu(x[row], layer.gate[expert], layer.up[expert], layer.down[expert])
    return out + (routed if layer.latent is None else routed @ layer.latent.up), experts


@pytest.mark.parametrize("config", [SMALL, LATENT], ids=["plain", "latent"])
def test_tokens_are_transformed_by_their_experts_and_the_shared_one(config):
    y, statistics = apply(layer(config), hidden())
    wanted, experts = plain(layer(config), hidden(), BIAS)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(statistics.load, np.bincount(experts.reshape(-1), minlength=8))


def test_statistics_describe_the_load_and_are_zero_where_nothing_happened():
    _, statistics = apply(layer(), hidden())
    shares = np.asarray(statistics.load) / 64
    np.testing.assert_allclose(statistics.max_violation, shares.max() * 8 - 1, rtol=1e-6)
    np.testing.assert_allclose(statistics.load_entropy, -np.sum(shares * np.log(np.maximum(shares, 1e-9))), rtol=1e-5)
    assert (statistics.dropped_by_sender, statistics.dropped_by_receiver, statistics.padding) == (0, 0, 0)
    assert statistics.loss == 0
    assert statistics.z_loss > 0


def test_padding_gets_zeros_from_routed_experts_and_changes_nothing_else():
    valid, x = jnp.arange(32) % 4 != 1, hidden()
    y, statistics = apply(layer(BARE), x, valid=valid)
    other, others = apply(layer(BARE), jnp.where(valid[:, None], x, 1e3 * x + 7), valid=valid)
    np.testing.assert_array_equal(y[~valid], 0)
    np.testing.assert_array_equal(y, other)
    jax.tree.map(np.testing.assert_array_equal, statistics, others)
    assert (statistics.padding, statistics.load.sum()) == (8 * 2, 24 * 2)


def test_what_is_dropped_is_counted_and_still_belongs_to_the_load():
    config = attrs.evolve(BARE, implementation="ring", capacity_factor=0.5)
    _, statistics = apply(layer(config), hidden())
    _, whole = apply(layer(BARE), hidden())
    assert (statistics.dropped_by_sender, statistics.dropped_by_receiver) == (0, 32)
    np.testing.assert_array_equal(statistics.load, whole.load)
    np.testing.assert_allclose(statistics.next_bias, whole.next_bias, atol=1e-6)


def test_a_batch_of_padding_is_zeros_and_asks_for_nothing():
    y, statistics = apply(layer(BARE), hidden(), valid=~ALL)
    np.testing.assert_array_equal(y, 0)
    np.testing.assert_array_equal(statistics.next_bias, BIAS)
    assert (statistics.loss, statistics.max_violation, statistics.load.sum()) == (0, 0, 0)


def test_bfloat16_goes_in_and_out_while_the_router_stays_exact():
    low = hidden().astype(jnp.bfloat16)
    y, statistics = apply(layer(), low)
    assert y.dtype == jnp.bfloat16
    exact, wanted = apply(layer(), low.astype(jnp.float32))
    np.testing.assert_allclose(y.astype(jnp.float32), exact, atol=3e-2 * float(jnp.abs(exact).max()))
    np.testing.assert_allclose(statistics.next_bias, wanted.next_bias, atol=1e-6)


@jax.jit
def both_gradients(layer, x, bias):
    """Of the statistics' loss, and of the output, to parameters, input and bias."""

    def both(layer, x, bias):
        y, statistics = layer(x, bias)
        return statistics.loss, jnp.sum(y**2)

    _, back = jax.vjp(both, layer, x, bias)
    return back((jnp.ones(()), jnp.zeros(()))), back((jnp.zeros(()), jnp.ones(())))


def test_losses_reach_the_router_and_outputs_reach_everything_but_the_bias():
    (of_loss, loss_x, loss_bias), (of_output, _, output_bias) = both_gradients(layer(LOSSES), hidden(), BIAS)
    of_router, of_experts = of_loss.router.weight, (of_loss.gate, of_loss.up, of_loss.down)
    assert np.any(of_router)
    assert not any(np.any(gradient) for gradient in of_experts)
    assert np.any(loss_x)
    assert all(np.any(gradient) for gradient in jax.tree.leaves(of_output))
    np.testing.assert_array_equal(loss_bias, 0)
    np.testing.assert_array_equal(output_bias, 0)


def test_the_loss_weighs_what_the_config_asks_for():
    for config, coefficient in ((BARE, 0.0), (LOSSES, 0.5)):
        _, statistics = apply(layer(config), hidden())
        wanted = coefficient * statistics.auxiliary_loss + 0.25 * statistics.z_loss
        np.testing.assert_allclose(statistics.loss, wanted, rtol=1e-6)


def test_every_parameter_has_its_group():
    groups = parameter_groups(layer())
    assert groups.router.weight == "router"
    assert {groups.gate, groups.up, groups.down, groups.shared.gate} == {"matrix"}
    assert layer(BARE).shared is layer(BARE).latent is None
    groups = parameter_groups(layer(LATENT)).latent
    assert (groups.down, groups.up, groups.norm.scale) == ("matrix", "matrix", "norm")


def test_router_and_experts_begin_different_with_the_deviations_they_were_told():
    config = MixtureOfExpertsConfig(16, 1, 64)
    make = functools.partial(MixtureOfExperts, config, 64, scale=0.4, output_scale=0.2)
    block = jax.jit(lambda key: make(key=key))(jax.random.key(0))
    np.testing.assert_allclose(np.std(block.gate, axis=(1, 2)), 0.4 / 8, rtol=0.05)
    np.testing.assert_allclose(np.std(block.down, axis=(1, 2)), 0.2 / 8, rtol=0.05)
    np.testing.assert_allclose(np.std(block.router.weight), 0.4 / 8, rtol=0.08)
    assert np.abs(block.up[0] - block.up[1]).max() > 0.01


def test_a_latent_space_begins_with_the_output_deviation_at_its_end_alone():
    config = MixtureOfExpertsConfig(16, 1, 64, shared_inner=64, latent=32)
    make = functools.partial(MixtureOfExperts, config, 64, scale=0.4, output_scale=0.2, norm_epsilon=1e-3)
    block = jax.jit(lambda key: make(key=key))(jax.random.key(0))
    for matrix, scale in (
        (block.latent.down, 0.4),
        (block.down, 0.4),
        (block.latent.up, 0.2),
        (block.shared.down, 0.2),
    ):
        np.testing.assert_allclose(np.std(matrix), scale / matrix.shape[-2] ** 0.5, rtol=0.05)
    assert (block.latent.norm.epsilon, block.router.weight.shape) == (1e-3, (64, 16))
    np.testing.assert_array_equal(block.latent.norm.scale, 1)


def trained_outputs(batches, evaluated=()):
    """Outputs of each step of a loop that moves nothing but the bias, and the state after it."""
    state, found = initial_balancing(1, 8), []
    for step, x in enumerate(batches):
        state = begin_step(state)
        y, statistics = apply(layer(), x, state.in_force[0])
        state = end_step(state, statistics.next_bias[None])
        found.append(np.asarray(y))
        if step in evaluated:
            apply(layer(), hidden(seed=99), state.in_force[0])
    return found, state


def test_what_a_batch_measures_changes_routing_only_from_the_next_step():
    batches = [hidden(seed=seed) for seed in range(4)]
    changed = [batches[0], hidden(seed=7), *batches[2:]]
    (before, _), (after, _) = trained_outputs(batches), trained_outputs(changed)
    _, first = apply(layer(), batches[0], jnp.zeros(8))
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_array_equal(after[1], apply(layer(), changed[1], first.next_bias)[0])
    assert np.any(before[2] != after[2])


def test_a_token_is_routed_without_a_look_at_the_others():
    x = hidden()
    (y, _), (other, _) = (apply(layer(), some) for some in (x, x.at[16:].set(hidden(16, seed=5))))
    np.testing.assert_allclose(y[:16], other[:16], rtol=1e-5, atol=1e-5)


def test_evaluation_changes_no_state():
    batches = [hidden(seed=seed) for seed in range(3)]
    (plain, state), (watched, same) = trained_outputs(batches), trained_outputs(batches, evaluated=(0, 2))
    jax.tree.map(np.testing.assert_array_equal, (plain, state), (watched, same))


def test_statistics_of_parts_become_those_of_the_batch():
    _, whole = apply(layer(BARE), hidden())
    first = jnp.arange(32) < 20
    parts = [apply(layer(BARE), hidden(), valid=valid)[1] for valid in (first, ~first, first & ~first)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    found = merged(stacked, BIAS, BARE)
    for name in ("load", "max_violation", "load_entropy", "z_loss", "loss", "dropped_by_sender"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-5, atol=1e-6, err_msg=name)
    asked = (20 * parts[0].next_bias + 12 * parts[1].next_bias) / 32
    np.testing.assert_allclose(found.next_bias, asked, atol=1e-6)
    by_sign = merged(
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts), None, attrs.evolve(BARE, balancing="sign")
    )
    np.testing.assert_array_equal(by_sign.next_bias, sign_bias(whole.load, jnp.zeros(8), BARE.sign_step))


def test_parts_without_a_valid_token_leave_the_bias():
    _, nothing = apply(layer(BARE), hidden(), valid=~ALL)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), nothing)
    for balancing in ("quantiles", "sign"):
        found = merged(stacked, BIAS, attrs.evolve(BARE, balancing=balancing))
        np.testing.assert_array_equal(found.next_bias, BIAS)


@jax.jit
@functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
def worked(block, x, bias, valid):
    """Loss with output and statistics, and gradients of parameters and input."""
    y, statistics = block(x, bias, valid)
    return jnp.sum(y**2) + statistics.loss, (y, statistics)


def worked_over(mesh, config, x, valid):
    """What `worked` gives where parameters lie on a mesh as they are stored there."""
    block = jax.device_put(layer(config), parameter_shardings(layer(config), mesh))
    with jax.set_mesh(mesh):
        x, valid = (jax.device_put(of, jax.P(("replica", "data", "expert"))) for of in (x, valid))
        return jax.device_get(worked(block, x, BIAS, valid))


@on_devices(8)
def shards_agree(sizes, config=SMALL):
    config = attrs.evolve(config, router_z_loss=0.1, grouped_matmul="ragged_dot")  # compiles faster than the default
    places = np.arange(64)
    mesh = make_mesh(**sizes)
    for valid in (places >= 0, places % 7 < places // 16 + 1, places >= 32):
        (_, (wanted, statistics)), of_one = worked(layer(config), hidden(64), BIAS, valid)
        over = attrs.evolve(config, implementation="ring")
        (_, (y, found)), gradients = worked_over(mesh, over, hidden(64), valid)
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found.load, statistics.load)
        np.testing.assert_allclose(found.next_bias, statistics.next_bias, atol=1e-6)
        np.testing.assert_allclose(found.loss, statistics.loss, rtol=1e-5)
        for got, of in zip(jax.tree.leaves(gradients), jax.tree.leaves(of_one), strict=True):
            np.testing.assert_allclose(got, of, rtol=1e-4, atol=1e-4 * float(jnp.abs(of).max()))


def test_a_layer_over_a_mesh_equals_the_local_one_also_with_an_idle_shard():
    shards_agree({"data": 2, "expert": 2, "model": 2})


@on_devices(8)
def compiled_bytes(config):
    """What all-gathers and reduce-scatters of a layer over four devices carry, its other matrices lying everywhere."""
    mesh, block = make_mesh(jax.devices()[:4], expert=4), layer(config)
    split = jax.NamedSharding(mesh, jax.P("expert"))
    whole = jax.tree.map(lambda _: jax.NamedSharding(mesh, jax.P()), block)
    places = eqx.tree_at(lambda one: (one.gate, one.up, one.down), whole, (split,) * 3)
    with jax.set_mesh(mesh):
        x = jax.device_put(hidden(64), jax.P("expert"))
        program = jax.jit(lambda block, x: block(x)[0]).lower(jax.device_put(block, places), x).compile()
    extent = Extent(tokens=16, top_k=2, experts=8, shards=4)
    counted = collective_bytes("ring", extent, width=config.expert_width(WIDTH), dtype=np.float32)
    found = {one.kind: one.bytes for one in collectives(program.as_text())[0]}
    assert found["all-gather"] == counted["all-gather"]
    assert found["reduce-scatter"] * 4 == counted["reduce-scatter"]


def test_vectors_travel_at_the_width_of_the_latent_space():
    compiled_bytes(attrs.evolve(LATENT, implementation="ring", grouped_matmul="ragged_dot"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("sizes", "config"),
    [
        ({"expert": 8}, SMALL),
        ({"replica": 2, "data": 2, "expert": 2}, SMALL),
        ({"data": 2, "expert": 2, "model": 2}, LATENT),
        ({"expert": 8}, LATENT),
    ],
)
def test_a_layer_over_other_meshes_equals_the_local_one(sizes, config):
    shards_agree(sizes, config)
