import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_models import ADAMW, MUON, tiny_model

from marin_models import OptimizerConfig, flatten
from marin_models.optimizers import Hyperparameters, clip_by_norm, optimizer
from marin_models.schedules import warmup_stable_decay

MATRIX, HEAD, EMBEDDING, NORM = "blocks.feed_forward.gate", "separate_head", "embedding", "final_norm.scale"


def random_like(model, seed=0):
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: random.standard_normal(leaf.shape, np.float32), model)


@jax.jit
def two_updates_adamw(model, hyperparameters, first, second):
    return two_updates("adamw", model, hyperparameters, first, second)


@jax.jit
def two_updates_muon(model, hyperparameters, first, second):
    return two_updates("muon", model, hyperparameters, first, second)


def two_updates(kind, model, hyperparameters, first, second):
    rule = optimizer(kind, hyperparameters)
    _, state = rule.update(first, rule.init(model), model)
    return rule.update(second, state, model)[0]


def updates(config, model=None):
    model = tiny_model() if model is None else model
    both = {"adamw": two_updates_adamw, "muon": two_updates_muon}[config.kind]
    found = both(model, Hyperparameters.of(config), random_like(model, 1), random_like(model, 2))
    return flatten(found), flatten(random_like(model, 1)), flatten(random_like(model, 2)), flatten(model)


def adam_update(first, second, rate, parameter, weight_decay, betas=(0.9, 0.95)):
    """The definition (Loshchilov & Hutter 2019) after two gradients."""
    (one, two), m, v = betas, 0, 0
    for gradient in (first, second):
        m, v = one * m + (1 - one) * gradient, two * v + (1 - two) * gradient**2
    direction = m / (1 - one**2) / (np.sqrt(v / (1 - two**2)) + 1e-8)
    return -rate * (direction + weight_decay * parameter)


def test_adamw_moves_every_group_by_its_definition_and_decays_matrices_and_head_alone():
    found, first, second, model = updates(ADAMW)
    for name, decay in ((MATRIX, 0.1), (HEAD, 0.1), (EMBEDDING, 0.0), (NORM, 0.0)):
        wanted = adam_update(first[name], second[name], 0.02, model[name], decay)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-6)


def test_under_muon_all_but_the_matrices_move_by_adamw_at_its_own_rate():
    found, first, second, model = updates(MUON)
    for name, decay in ((HEAD, 0.1), (EMBEDDING, 0.0), (NORM, 0.0)):
        wanted = adam_update(first[name], second[name], 0.01, model[name], decay)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-6)


def test_the_adam_rate_under_muon_is_the_learning_rate_unless_given():
    plain = updates(attrs.evolve(MUON, adam_learning_rate=None))[0]
    given = updates(attrs.evolve(MUON, adam_learning_rate=0.02))[0]
    np.testing.assert_array_equal(plain[EMBEDDING], given[EMBEDDING])


def test_muon_orthogonalizes_each_layer_by_itself():
    found = updates(attrs.evolve(MUON, weight_decay=0.0))[0][MATRIX]
    assert found.shape == (2, 8, 12)
    scale = 0.02 * 0.2 * np.sqrt(12)
    for layer in found:
        singular = np.linalg.svd(layer / scale, compute_uv=False)
        assert singular.min() > 0.6
        assert singular.max() < 1.3


def test_a_layer_of_muon_does_not_depend_on_the_other_layers():
    model = tiny_model()
    rule = optimizer("muon", Hyperparameters.of(MUON))

    def layer_zero(gradients):
        return flatten(jax.jit(lambda g: rule.update(g, rule.init(model), model)[0])(gradients))[MATRIX][0]

    gradients = random_like(model)
    gate = np.array(gradients.blocks.feed_forward.gate)
    gate[1] *= 100
    changed = eqx.tree_at(lambda m: m.blocks.feed_forward.gate, gradients, gate)
    np.testing.assert_allclose(layer_zero(gradients), layer_zero(changed), rtol=1e-5)


def test_muon_equals_optax_on_a_single_matrix():
    found, first, second, model = updates(MUON)
    peer = optax.contrib.muon(0.02, beta=0.95, weight_decay=0.1, consistent_rms=0.2)
    for layer in range(2):
        weights = {"w": model[MATRIX][layer]}
        _, state = peer.update({"w": first[MATRIX][layer]}, peer.init(weights), weights)
        wanted, _ = peer.update({"w": second[MATRIX][layer]}, state, weights)
        np.testing.assert_allclose(found[MATRIX][layer], wanted["w"], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("largest", [0.5, 1e6, float("inf")])
def test_gradients_above_the_norm_are_scaled_down_to_it(largest):
    gradients = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    clipped, norm = clip_by_norm(gradients, largest)
    assert float(norm) == 5.0
    np.testing.assert_allclose(clipped["b"], [[4.0 * min(1, largest / 5)]], rtol=1e-6)


def test_gradients_of_zero_stay_zero():
    clipped, norm = clip_by_norm({"a": jnp.zeros(2)}, float("inf"))
    assert float(norm) == 0
    np.testing.assert_array_equal(clipped["a"], np.zeros(2))


def test_the_schedule_warms_up_stays_and_decays_to_one_last_small_step():
    factor = warmup_stable_decay(jnp.arange(20), 20, 0.2, 0.25)
    wanted = [0.25, 0.5, 0.75, *[1] * 13, 0.8, 0.6, 0.4, 0.2]
    np.testing.assert_allclose(factor, wanted, rtol=1e-6)


def test_a_schedule_without_warmup_and_decay_is_constant():
    np.testing.assert_array_equal(warmup_stable_decay(jnp.arange(7), 7, 0.0, 0.0), np.ones(7))


def test_no_clipping_is_an_infinite_norm():
    assert float(Hyperparameters.of(attrs.evolve(ADAMW, clip=None)).clip) == float("inf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "sgd"}, "kind must be one of 'adamw', 'muon', not 'sgd'"),
        ({"learning_rate": 0.0}, r"learning_rate must be a finite number above 0, not 0\.0"),
        ({"learning_rate": "high"}, "learning_rate must be a finite number above 0, not 'high'"),
        (
            {"adam_learning_rate": 0.1},
            "adam_learning_rate only means something under kind='muon'; .*give learning_rate",
        ),
        (
            {"kind": "muon", "adam_learning_rate": -1.0},
            r"adam_learning_rate must be a finite number above 0, not -1\.0",
        ),
        ({"betas": (0.9, 1.0)}, r"betas must be two numbers from 0 to below 1, not \(0\.9, 1\.0\)"),
        ({"momentum": 2.0}, r"momentum must be a number from 0 to 1, not 2\.0"),
        ({"weight_decay": -0.1}, r"weight_decay must be a finite number of at least 0, not -0\.1"),
        ({"clip": 0.0}, r"clip must be a finite number above 0, not 0\.0"),
        ({"warmup": 0.7, "decay": 0.6}, r"warmup 0\.7 and decay 0\.6 overlap; their sum must be at most 1"),
    ],
)
def test_an_impossible_optimizer_is_refused_with_what_is_possible(change, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**{"kind": "adamw", "learning_rate": 0.1, **change})
