import jax.numpy as jnp
import numpy as np

from marin_models.averaging import moving_average


def test_the_average_is_the_weighted_sum_of_all_steps():
    average, steps = {"a": jnp.zeros(2)}, [{"a": jnp.full(2, value)} for value in (1.0, 5.0, 2.0)]
    for parameters in steps:
        average = moving_average(average, parameters, 0.9)
    np.testing.assert_allclose(average["a"], np.full(2, 0.1 * (0.81 * 1 + 0.9 * 5 + 2)), rtol=1e-6)


def test_parameters_that_stay_are_their_average():
    parameters = {"a": jnp.asarray([0.1, 1e-8, 3e7])}
    np.testing.assert_array_equal(moving_average(parameters, parameters, 0.999)["a"], parameters["a"])
