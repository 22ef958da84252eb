import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny_model

from marin_models import OptimizerConfig, flatten
from marin_models.hyperball import radius, step_on_sphere
from marin_models.optimizers import Hyperparameters, optimizer

MATRIX, HEAD, EMBEDDING = "blocks.feed_forward.gate", "separate_head", "embedding"
step = jax.jit(step_on_sphere)


def gaussian(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def norms(matrices):
    return np.sqrt(np.sum(np.square(np.asarray(matrices, np.float64)), (-2, -1)))


@given(st.integers(0, 2**31), st.floats(1e-4, 2), st.integers(-8, 8))
@settings(max_examples=20)
def test_every_matrix_of_a_stack_keeps_its_own_norm(seed, rate, exponent):
    sizes = 2.0 ** jnp.arange(6).reshape(2, 3, 1, 1)
    matrices = gaussian(2, 3, 8, 12, seed=seed) * sizes
    moved = matrices + step(matrices, gaussian(2, 3, 8, 12, seed=seed + 1) * 2.0**exponent, rate, radius(matrices))
    np.testing.assert_allclose(norms(moved), norms(matrices), rtol=1e-6)


def test_norms_do_not_drift_over_many_steps():
    matrices, norm = gaussian(2, 8, 8), radius(gaussian(2, 8, 8))

    def body(index, matrices):
        return matrices + step_on_sphere(matrices, jnp.sin(index * matrices), 0.1, norm)

    end = jax.jit(lambda matrices: jax.lax.fori_loop(0, 5000, body, matrices))(matrices)
    np.testing.assert_allclose(norms(end), norms(matrices), rtol=1e-6)


def test_the_length_of_the_direction_does_not_matter_and_a_step_goes_against_it():
    matrices, direction = gaussian(8, 12), gaussian(8, 12, seed=1)
    one, other = (step(matrices, scale * direction, 0.01, radius(matrices)) for scale in (1.0, 1000.0))
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert float(jnp.sum(one * direction)) < 0


def test_without_a_direction_nothing_moves():
    matrices = gaussian(2, 4, 4)
    np.testing.assert_allclose(step(matrices, jnp.zeros_like(matrices), 0.1, radius(matrices)), 0, atol=1e-6)


@pytest.mark.parametrize("kind", ["muonh", "adamh"])
def test_matrices_and_head_stay_on_their_spheres_and_the_rest_moves_by_adamw(kind):
    model = tiny_model()
    config = OptimizerConfig(kind, 0.05, adam_learning_rate=0.02, weight_decay=0.1)
    rule = optimizer(config.rule, Hyperparameters.of(config))
    update = jax.jit(rule.update)
    state, moved = rule.init(model), model
    random = np.random.default_rng(0)
    for _ in range(3):
        gradients = jax.tree.map(lambda leaf: random.standard_normal(leaf.shape, np.float32), model)
        changes, state = update(gradients, state, moved)
        moved = optax.apply_updates(moved, changes)
    before, after = flatten(model), flatten(moved)
    for name in (MATRIX, HEAD):
        np.testing.assert_allclose(norms(after[name]), norms(before[name]), rtol=1e-6)
        assert np.abs(after[name] - before[name]).max() > 1e-3
    assert abs(norms(after[EMBEDDING]) / norms(before[EMBEDDING]) - 1) > 1e-4
    first_steps = np.sqrt(np.sum(np.square(after[HEAD] - before[HEAD]))) / norms(before[HEAD])
    assert first_steps < 3 * 0.02 * 1.1
