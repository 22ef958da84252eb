import functools

import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import ADAMW, MUON, tiny_model

from marin_models import OptimizerConfig, flatten, parameter
from marin_models.newton_schulz import orthogonalize
from marin_models.optimizers import Hyperparameters, clip_by_norm, optimizer

MATRIX, HEAD, EMBEDDING, NORM = "blocks.feed_forward.gate", "separate_head", "embedding", "final_norm.scale"


def random_like(model, seed=0):
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: random.standard_normal(leaf.shape, np.float32), model)


@functools.partial(jax.jit, static_argnames="rule")
def two_updates(rule, model, hyperparameters, first, second):
    rule = optimizer(rule, hyperparameters)
    _, state = rule.update(first, rule.init(model), model)
    return rule.update(second, state, model)[0]


def updates(config, model=None):
    model = tiny_model() if model is None else model
    found = two_updates(config.rule, model, Hyperparameters.of(config), random_like(model, 1), random_like(model, 2))
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


def test_muon_goes_where_its_own_momentum_looks_ahead_to():
    config = attrs.evolve(MUON, momentum=0.7, betas=(0.2, 0.5), orthogonalization="float32")
    found, first, second, model = updates(config)
    average = 0.7 * 0.3 * first[MATRIX] + 0.3 * second[MATRIX]
    ahead = 0.7 * average / (1 - 0.7**3) + 0.3 * second[MATRIX] / (1 - 0.7**2)
    wanted = -0.02 * (0.2 * np.sqrt(12) * orthogonalize(jnp.asarray(ahead), dtype="float32") + 0.1 * model[MATRIX])
    np.testing.assert_allclose(found[MATRIX], wanted, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_schedules_factor_acts_once_on_all_of_an_update(kind):
    model, hyperparameters = tiny_model(), Hyperparameters.of(attrs.evolve(MUON, adam_learning_rate=0.03))

    @jax.jit
    def change(gradients, factor):
        rule = optimizer(kind, hyperparameters, factor)
        return rule.update(gradients, rule.init(model), model)[0]

    whole, half = (flatten(change(random_like(model), factor)) for factor in (1.0, 0.5))
    for name, moved in whole.items():
        np.testing.assert_allclose(half[name], moved / 2, rtol=1e-5)


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


def test_groups_that_are_named_decay_and_no_others():
    plain = updates(attrs.evolve(ADAMW, weight_decay=0.0))[0]
    for decayed, names in (((), set()), (("embedding", "norm"), {EMBEDDING, NORM})):
        found, _, _, model = updates(attrs.evolve(ADAMW, decayed=decayed))
        for name in (MATRIX, HEAD, EMBEDDING, NORM):
            wanted = plain[name] - (0.02 * 0.1 * model[name] if name in names else 0)
            np.testing.assert_allclose(found[name], wanted, atol=1e-7)


class Router(eqx.Module):
    experts: jax.Array = parameter("matrix")
    router: jax.Array = parameter("router")
    bias: jax.Array = parameter("bias")


def test_routers_and_biases_move_by_adamw_beside_stacks_of_experts():
    random = np.random.default_rng(0)
    model, first, second = (
        Router(*(jnp.asarray(random.standard_normal(shape, np.float32)) for shape in ((2, 3, 4, 8), (4, 3), (3,))))
        for _ in range(3)
    )
    found = two_updates(MUON.rule, model, Hyperparameters.of(MUON), first, second)
    for name, decay in (("router", 0.1), ("bias", 0.0)):
        arrays = (np.asarray(getattr(one, name)) for one in (first, second))
        wanted = adam_update(*arrays, 0.01, np.asarray(getattr(model, name)), decay)
        np.testing.assert_allclose(getattr(found, name), wanted, rtol=1e-4, atol=1e-6)
    assert found.experts.shape == (2, 3, 4, 8)


def test_a_vector_called_a_matrix_is_refused_where_matrices_are_meant():
    model = Router(jnp.ones(3), jnp.ones((4, 3)), jnp.ones(3))
    with pytest.raises(ValueError, match=r"group 'matrix' has shape \(3,\), but 'muon' moves .* such as 'norm'"):
        optimizer("muon", Hyperparameters.of(MUON)).init(model)
    optimizer("adamw", Hyperparameters.of(ADAMW)).init(model)


def test_an_update_without_parameters_is_refused():
    rule = optimizer("adamw", Hyperparameters.of(ADAMW))
    with pytest.raises(ValueError, match="needs the parameters as its third argument"):
        rule.update(tiny_model(), rule.init(tiny_model()))


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


def test_no_clipping_is_an_infinite_norm():
    assert float(Hyperparameters.of(attrs.evolve(ADAMW, clip=None)).clip) == float("inf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "sgd"}, "kind must be one of 'adamw', 'muon', 'muonh', 'adamh', not 'sgd'"),
        ({"learning_rate": 0.0}, r"learning_rate must be a finite number above 0, not 0\.0"),
        ({"learning_rate": "high"}, "learning_rate must be a finite number above 0, not 'high'"),
        (
            {"adam_learning_rate": 0.1},
            "adam_learning_rate only means something beside a rule for matrices; .*give learning_rate",
        ),
        (
            {"kind": "muon", "adam_learning_rate": -1.0},
            r"adam_learning_rate must be a finite number above 0, not -1\.0",
        ),
        ({"betas": (0.9, 1.0)}, r"betas must be two numbers from 0 to below 1, not \(0\.9, 1\.0\)"),
        ({"betas": 0.9}, r"betas must be two numbers from 0 to below 1, not 0\.9"),
        ({"betas": ("a", "b")}, r"betas must be two numbers from 0 to below 1, not \('a', 'b'\)"),
        ({"momentum": 1.0}, r"momentum must be a number from 0 to below 1, not 1\.0"),
        ({"weight_decay": -0.1}, r"weight_decay must be a finite number of at least 0, not -0\.1"),
        ({"clip": 0.0}, r"clip must be a finite number above 0, not 0\.0"),
        ({"warmup": 0.7, "decay": 0.6}, r"warmup 0\.7 and decay 0\.6 overlap; their sum must be at most 1"),
        ({"coefficients": "cubic"}, "coefficients must be one of 'quintic', 'polar_express', 'simple', not 'cubic'"),
        ({"orthogonalization": "int8"}, "orthogonalization must be one of 'bfloat16', 'float32', not 'int8'"),
        ({"scale": 2}, "scale must be one of 'rms', 'spectral', not 2"),
        ({"schedule": "step"}, "schedule must be one of 'wsd', 'cosine', 'linear', 'constant', not 'step'"),
        ({"final": 2}, "final must be a number from 0 to 1, not 2"),
        ({"average": 1}, "average must be a number from 0 to below 1, not 1"),
        ({"decayed": ([],)}, r"decayed must be a tuple of groups, which are 'matrix', .*; not \(\[\],\)"),
        ({"branch": 3, "schedule": "constant"}, r"branch must be \(start, length\): .* at least 1; not 3"),
        ({"decayed": ("gates",)}, r"decayed must be a tuple of groups, which are 'matrix', .*; not \('gates',\)"),
        ({"branch": (3,), "schedule": "constant"}, r"branch must be \(start, length\): .* at least 1; not \(3,\)"),
        ({"branch": (3, 4)}, "a branch needs schedule='constant', not 'wsd', and warmup_steps, not None: a warm-up"),
    ],
)
def test_an_impossible_optimizer_is_refused_with_what_is_possible(change, message):
    with pytest.raises(ValueError, match=message):
        OptimizerConfig(**{"kind": "adamw", "learning_rate": 0.1, **change})
