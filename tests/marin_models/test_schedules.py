import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_models.schedules import ScheduleNumbers, schedule_factor

STEPS = np.arange(20)


compiled = jax.jit(schedule_factor, static_argnames="schedule")


def factors(schedule, steps=20, **numbers):
    numbers = jax.tree.map(jnp.float32, ScheduleNumbers(**numbers))
    return np.asarray(compiled(schedule, numbers, jnp.arange(200), steps))[:steps]


def test_wsd_warms_up_stays_and_decays_to_one_last_small_step():
    # warm-up over 4 steps; the decay's first step is still a full one
    wanted = [0.25, 0.5, 0.75, *[1] * 13, 0.8, 0.6, 0.4, 0.2]
    np.testing.assert_allclose(factors("wsd", warmup=0.2, decay=0.25), wanted, rtol=1e-6)


def test_without_warmup_and_decay_every_step_is_full():
    np.testing.assert_array_equal(factors("wsd"), np.ones(20))
    np.testing.assert_array_equal(factors("constant"), np.ones(20))


def test_linear_and_cosine_go_from_the_end_of_the_warmup_to_the_final_factor():
    linear = factors("linear", warmup_steps=4, final=0.2)
    np.testing.assert_allclose(linear, np.minimum((STEPS + 1) / 4, 1 - 0.8 * np.maximum(0, STEPS - 4) / 16), rtol=1e-6)
    cosine = factors("cosine", warmup_steps=4, final=0.2)
    np.testing.assert_allclose(cosine[12], 0.6, rtol=1e-6)
    assert cosine[8] > linear[8]
    assert cosine[16] < linear[16]
    assert (np.diff(cosine[4:]) < 0).all()


@given(st.integers(0, 40), st.integers(1, 30), st.integers(0, 10), st.floats(0, 1))
def test_a_branch_is_its_trunk_up_to_its_start_and_ends_at_the_final_factor(start, length, warmup, final):
    trunk = factors("constant", steps=100, warmup_steps=warmup)
    branch = factors(
        "constant", steps=start + length, warmup_steps=warmup, branch_start=start, branch_steps=length, final=final
    )
    np.testing.assert_array_equal(branch[: start + 1], trunk[: start + 1])
    assert (branch <= trunk[: start + length] + 1e-6).all()
    if start >= warmup:
        np.testing.assert_allclose(branch[-1], final + (1 - final) / length, atol=1e-5)


@given(
    st.sampled_from(["wsd", "cosine", "linear", "constant"]),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.floats(0, 1),
    st.integers(1, 200),
)
def test_a_factor_lies_between_0_and_1_and_falls_after_the_warmup(schedule, warmup, decay, final, steps):
    found = factors(schedule, steps=steps, warmup=warmup, decay=decay, final=final)
    assert (found > 0).all()
    assert (found <= 1 + 1e-6).all()
    rest = found[round(warmup * steps) :]
    assert (np.diff(rest) <= 1e-6).all()


@pytest.mark.parametrize("schedule", ["wsd", "cosine", "linear"])
def test_a_final_factor_of_one_is_no_decay(schedule):
    np.testing.assert_allclose(factors(schedule, decay=0.5, final=1.0), np.ones(20), rtol=1e-6)
