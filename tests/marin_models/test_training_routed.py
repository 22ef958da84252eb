"""Training mixtures of experts: balancing one step ahead, micro-batches, checkpoints, and meshes."""

import functools

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from simulated_devices import on_devices
from test_training import same
from test_training_step import close
from tiny_models import ADAMW, MUON, ROUTED, SHORT, counting_stream, tiny_mixture, tiny_model

from marin_models import Checkpoints, Mixture, flatten, make_mesh, train
from marin_models.evaluation import held_out_windows, window_loss
from marin_models.training import Batch, Program, Run, batch_gradients, initial_state, train_chunk

TWO = attrs.evolve(ROUTED, layers=2)
RUN = Run.of(ADAMW, SHORT)
STEADY = attrs.evolve(SHORT, steps=8, batch=8, evaluate_every=4)
PROGRAM = Program(ADAMW.rule)
LONG = attrs.evolve(SHORT, steps=80, batch=16)
HELD_OUT = {"up": counting_stream(60)}


@functools.cache
def batch(seed=0, rows=4):
    return Batch(jnp.asarray(np.random.default_rng(seed).integers(0, 17, (rows, 7)), jnp.int32))


def step(state, seed):
    """One step by the program of `LONG`."""
    batches = Batch(jnp.zeros((10, 16, 7), jnp.int32).at[0].set(batch(seed, 16).tokens))
    state, metrics = train_chunk(state, batches, 1, Run.of(ADAMW, LONG), program=PROGRAM)
    return state, jax.tree.map(lambda values: values[0], metrics)


def copied(state):
    return jax.tree.map(jnp.copy, state)


def bitwise(one, other):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_bias_is_measured_on_one_batch_and_routes_the_next_one():
    state = initial_state(3, RUN.hyperparameters, config=TWO, rule=ADAMW.rule)
    np.testing.assert_array_equal(state.bias, 0)
    first, _ = step(state, 0)
    np.testing.assert_array_equal(first.bias, 0)
    pending = np.asarray(first.balancing.pending)
    assert (pending != 0).any()
    # What waits decides the next step; what is in force at its beginning does not.
    balancing = first.balancing._replace(in_force=first.balancing.in_force + 7)
    forgetful = copied(first)._replace(balancing=copied(balancing))
    second, metrics = step(first, 1)
    np.testing.assert_array_equal(second.bias, pending)
    assert metrics.router.max_violation.shape == (1,)
    bitwise(step(forgetful, 1)[0].model, second.model)


def test_evaluation_routes_by_the_bias_in_force_and_changes_nothing():
    model = tiny_model(config=TWO)
    tokens = held_out_windows(counting_stream(60), length=6, windows=8)
    even, uneven = jnp.zeros((1, 4)), jnp.array([[9.0, 9.0, 0.0, 0.0]])
    plain = window_loss(model, tokens, bias=even)
    assert window_loss(model, tokens, bias=uneven) != plain
    assert window_loss(model, tokens, bias=even) == plain


@pytest.mark.long
@pytest.mark.parametrize("balancing", ["sign", "auxiliary"])
def test_micro_batches_give_the_gradients_and_the_bias_of_the_whole_batch(balancing):
    config = attrs.evolve(TWO, mixture=attrs.evolve(TWO.mixture, balancing=balancing, auxiliary_coefficient=0.0))
    gradients = jax.jit(batch_gradients, static_argnums=3)
    bias = jnp.array([[0.1, 0.0, -0.1, 0.0]])
    whole = gradients(tiny_model(config=config), batch(), RUN, PROGRAM, bias)
    parts = gradients(tiny_model(config=config), batch(), RUN, Program(ADAMW.rule, micro_batches=2), bias)
    close((parts.loss, parts.gradients), (whole.loss, whole.gradients))
    np.testing.assert_array_equal(parts.router.load, whole.router.load)
    np.testing.assert_allclose(parts.router.next_bias, whole.router.next_bias, atol=1e-7)


def gone_on(model, optimizer, folder):
    """A whole run, after it was seen that one which was stopped goes on from a checkpoint as if it had not been."""

    class Stop(Exception):
        pass

    interrupted = Checkpoints(folder, every_steps=20)

    def check():
        if interrupted.steps():
            raise Stop

    run = functools.partial(train, model, optimizer, LONG, tiny_mixture(), held_out=HELD_OUT)
    whole = run()
    with pytest.raises(Stop):
        run(checkpoints=interrupted, check=check)
    resumed = run(checkpoints=Checkpoints(folder))
    assert 0 < resumed.timing.resumed < 80
    same(resumed, whole)
    np.testing.assert_array_equal(resumed.router_bias, whole.router_bias)
    bitwise(attrs.asdict(resumed.curve.router), attrs.asdict(whole.curve.router))
    return whole


def test_a_mixture_of_experts_learns_balances_and_goes_on_bit_for_bit(tmp_path):
    whole = gone_on(TWO, ADAMW, tmp_path)
    assert whole.curve.loss[-10:].mean() < whole.curve.loss[:3].mean() - 0.7
    violation = whole.curve.router.max_violation
    assert violation.shape == (80, 1)
    assert violation[5:].mean() < 0.6 * violation[0].mean()
    assert (whole.curve.router.dropped == 0).all()
    assert whole.router_bias.shape == (1, 4)


@pytest.mark.long
def test_experts_in_a_latent_space_learn_and_go_on_bit_for_bit(tmp_path):
    latent = attrs.evolve(TWO, mixture=attrs.evolve(TWO.mixture, latent=5))
    whole = gone_on(latent, MUON, tmp_path)
    assert whole.curve.loss[-10:].mean() < whole.curve.loss[:3].mean() - 0.7
    begun = flatten(tiny_model(config=latent, seed=LONG.seed))
    moved = {name for name, value in whole.parameters.items() if np.abs(value - begun[name]).max() > 0.01}
    assert moved == set(whole.parameters)


def eight():
    return Mixture({"up": counting_stream()}, {"up": 1})


@pytest.mark.long
@on_devices(8)
def test_training_on_eight_devices_is_training_on_one(tmp_path):
    model = attrs.evolve(TWO, vocabulary=18, mixture=attrs.evolve(TWO.mixture, implementation="ring"))
    alone = train(attrs.evolve(model, mixture=TWO.mixture), ADAMW, STEADY, eight(), held_out=HELD_OUT)
    checkpoints = Checkpoints(tmp_path, every_steps=4, keep=5)
    wide = make_mesh(data=4, expert=2)
    there = train(model, ADAMW, STEADY, eight(), held_out=HELD_OUT, checkpoints=checkpoints, mesh=wide)
    np.testing.assert_allclose(there.curve.loss, alone.curve.loss, rtol=2e-4)
    np.testing.assert_allclose(there.evaluations.loss["up"], alone.evaluations.loss["up"], rtol=2e-4)
    for name, value in alone.parameters.items():
        np.testing.assert_allclose(there.parameters[name], value, atol=2e-3, err_msg=name)
    assert checkpoints.steps() == (4,)
    again = train(
        model,
        ADAMW,
        STEADY,
        eight(),
        held_out=HELD_OUT,
        checkpoints=Checkpoints(tmp_path),
        mesh=make_mesh(data=8),
    )
    assert again.timing.resumed == 4
    np.testing.assert_array_equal(again.curve.loss[:4], there.curve.loss[:4])
    np.testing.assert_allclose(again.curve.loss, there.curve.loss, rtol=2e-4)
    here = train(
        model,
        ADAMW,
        STEADY,
        eight(),
        held_out=HELD_OUT,
        checkpoints=Checkpoints(tmp_path),
        mesh=wide,
    )
    same(here, there)
