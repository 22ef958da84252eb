import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import TINY, tiny_model

from marin_models import flatten, generate, unflatten
from marin_models.generation import _fill, sample

PARAMETERS = {name: value * 4 for name, value in flatten(tiny_model(seed=2)).items()}


def continued(prompt, count, **arguments):
    return generate(TINY, PARAMETERS, prompt, count, **arguments).tolist()


@jax.jit
def forward(model, tokens):
    return model(tokens)


def test_greedy_generation_takes_the_most_likely_token_of_the_plain_forward_pass():
    model, text = unflatten(TINY, PARAMETERS), [3, 1, 4]
    for _ in range(12):
        padded = np.zeros(16, np.int32)
        padded[: len(text)] = text
        text.append(int(forward(model, padded[None])[0, len(text) - 1].argmax()))
    assert continued([3, 1, 4], 12) == text[3:]


def test_a_longer_continuation_begins_with_a_shorter_one():
    arguments = {"temperature": 1.0, "seed": 5}
    long = continued([1, 2], 90, **arguments)  # needs a larger buffer
    assert long[:20] == continued([1, 2], 20, **arguments)
    assert all(0 <= token < 17 for token in long)


def test_samples_depend_on_the_seed_and_on_nothing_else():
    arguments = {"temperature": 8.0, "top_p": 0.95}
    assert continued([1], 30, seed=0, **arguments) == continued([1], 30, seed=0, **arguments)
    assert continued([1], 30, seed=0, **arguments) != continued([1], 30, seed=1, **arguments)


def test_prompts_of_many_lengths_share_one_program():
    continued([1], 5)
    before = _fill._cache_size()
    continued([1, 2, 3], 20, temperature=0.7, top_p=0.5, seed=3)
    assert _fill._cache_size() == before


def test_nothing_is_generated_when_nothing_is_asked():
    assert continued([1], 0) == []


def frequencies(logits, temperature, top_p, draws=4000):
    keys = jax.random.split(jax.random.key(0), draws)
    drawn = jax.jit(jax.vmap(lambda key: sample(logits, jnp.float32(temperature), jnp.float32(top_p), key)))(keys)
    return np.bincount(drawn, minlength=len(logits)) / draws


def test_samples_follow_the_tempered_distribution():
    logits = jnp.log(jnp.array([0.1, 0.6, 0.3]))
    np.testing.assert_allclose(frequencies(logits, 1.0, 1.0), [0.1, 0.6, 0.3], atol=0.03)
    tempered = np.array([0.1, 0.6, 0.3]) ** 2
    np.testing.assert_allclose(frequencies(logits, 0.5, 1.0), tempered / tempered.sum(), atol=0.03)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(1e-6, [0, 1, 0]), (0.6, [0, 1, 0]), (0.65, [0, 2 / 3, 1 / 3]), (0.95, [0.1, 0.6, 0.3])]
)
def test_the_nucleus_is_the_fewest_tokens_that_hold_the_probability(top_p, kept):
    logits = jnp.log(jnp.array([0.1, 0.6 + 1e-5, 0.3 - 1e-5]))
    np.testing.assert_allclose(frequencies(logits, 1.0, top_p), kept, atol=0.03)


@pytest.mark.parametrize(
    ("prompt", "arguments", "message"),
    [
        ([], {}, r"the prompt has shape \(0,\); give at least one token"),
        ([17], {}, "tokens from 17 to 17, but the model's vocabulary is 17; encode it with"),
        ([-1], {}, "tokens from -1 to -1"),
        ([1], {"temperature": -0.5}, r"temperature -0\.5 must not be negative"),
        ([1], {"top_p": 0.0}, r"top_p 0\.0 must be above 0 and at most 1"),
    ],
)
def test_a_prompt_or_number_out_of_range_is_refused(prompt, arguments, message):
    with pytest.raises(ValueError, match=message):
        generate(TINY, PARAMETERS, np.array(prompt, int), 3, **arguments)
