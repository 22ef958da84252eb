import inspect

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import TINY, tiny_model

from marin_models import MixtureOfExpertsConfig, Stops, flatten, generate, generate_batch, make_mesh, unflatten
from marin_models.generation import _generate, _read_prompts
from marin_models.sampling import sample

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


def test_a_longer_continuation_is_made_by_the_same_programs_as_a_shorter_one():
    continued([1, 2], 90, temperature=1.0)
    before = _generate._cache_size()
    continued([1, 2], 20, temperature=1.0)
    assert _generate._cache_size() == before


def batch(prompts, count, **arguments):
    return generate_batch(TINY, PARAMETERS, [np.array(prompt, np.int32) for prompt in prompts], count, **arguments)


PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [5], [2, 7, 1]]


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_each_prompt_of_a_batch_is_continued_as_it_would_be_alone(temperature):
    together = batch(PROMPTS, 40, temperature=temperature, seed=7)
    for row, prompt in enumerate(PROMPTS):
        assert together[row].tokens.tolist() == continued(prompt, 40, temperature=temperature, seed=7 + row)
        assert together[row].stop is None


def test_equal_prompts_of_a_batch_draw_differently():
    first, second, third = (one.tokens.tolist() for one in batch([[1], [1], [1]], 30, temperature=8.0))
    assert first != second != third != first


def test_a_batch_of_no_prompts_has_no_continuations():
    assert generate_batch(TINY, PARAMETERS, [], 5) == []


LATENT = MixtureOfExpertsConfig(experts=5, top_k=2, inner=6, latent=5, capacity_factor=1.0)
ROUTED = attrs.evolve(TINY, layers=1, mixture=LATENT)


def test_latent_experts_choose_by_the_bias_in_force_and_see_no_padding():
    parameters = {name: value * 4 for name, value in flatten(tiny_model(config=ROUTED)).items()}
    bias = np.random.default_rng(2).standard_normal((1, 5)).astype(np.float32)
    dropless = attrs.evolve(ROUTED, mixture=attrs.evolve(ROUTED.mixture, capacity_factor=None))
    model, prompts = unflatten(dropless, parameters), [[3, 1, 4, 1], [5]]
    logits = jax.jit(lambda tokens, bias: model(tokens, bias=bias))
    assert np.abs(logits(np.ones((1, 16), np.int32), bias) - logits(np.ones((1, 16), np.int32), 0 * bias)).max() > 0.1
    for prompt, found in zip(prompts, generate_batch(ROUTED, parameters, prompts, 6, bias=bias), strict=True):
        text = list(prompt)
        for _ in range(6):
            padded = np.zeros((1, 16), np.int32)
            padded[0, : len(text)] = text
            text.append(int(logits(padded, bias)[0, len(text) - 1].argmax()))
        assert found.tokens.tolist() == text[len(prompt) :]


def letters(tokens):
    return "".join(chr(ord("a") + token) for token in tokens)


def test_a_stop_ends_its_own_row_with_the_token_that_completes_it():
    free = [one.tokens.tolist() for one in batch(PROMPTS, 70, temperature=2.0)]
    sequence, string = tuple(free[0][40:42]), letters(free[2][3:5])
    stops = Stops(sequences=[sequence], strings=[string], decode=letters)
    stopped = batch(PROMPTS, 70, temperature=2.0, stops=stops)
    for whole, one in zip(free, stopped, strict=True):
        kept = one.tokens.tolist()
        assert kept == whole[: len(kept)]
        if one.stop is None:
            assert len(kept) == 70
        else:
            text = letters(kept)
            assert tuple(kept[-2:]) == sequence if one.stop == sequence else text.endswith(string)
    assert len(stopped[0].tokens) <= 42
    assert len(stopped[2].tokens) <= 5


def test_generation_ends_with_the_last_row():
    free = batch([[1], [2], [3]], 5)
    texts = []

    def decode(tokens):
        texts.append(len(tokens))
        return letters(tokens)

    stopped = batch([[1], [2], [3]], 500, stops=Stops(strings=[letters(one.tokens[:2]) for one in free], decode=decode))
    assert all(len(one.tokens) <= 2 for one in stopped)
    assert max(texts) <= 32


def test_samples_depend_on_the_seed_and_on_nothing_else():
    arguments = {"temperature": 8.0, "top_p": 0.95}
    assert continued([1], 30, seed=0, **arguments) == continued([1], 30, seed=0, **arguments)
    assert continued([1], 30, seed=0, **arguments) != continued([1], 30, seed=1, **arguments)


def test_prompts_of_many_lengths_share_one_program():
    continued([1], 5)
    before = _read_prompts._cache_size(), _generate._cache_size()
    continued([1, 2, 3], 20, temperature=0.7, top_p=0.5, seed=3)
    assert (_read_prompts._cache_size(), _generate._cache_size()) == before


def test_nothing_is_generated_when_nothing_is_asked():
    assert continued([1], 0) == []


@jax.jit
def many_samples(logits, temperature, top_p):
    return jax.vmap(lambda key: sample(logits, temperature, top_p, key))(jax.random.split(jax.random.key(0), 4000))


def frequencies(logits, temperature, top_p, draws=4000):
    drawn = many_samples(logits, jnp.float32(temperature), jnp.float32(top_p))
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
        ([], {}, r"a prompt has shape \(0,\); give at least one token"),
        ([17], {}, "tokens from 17 to 17, but the model's vocabulary is 17; encode it with"),
        ([-1], {}, "tokens from -1 to -1"),
        (np.array([2**32 + 3]), {}, "tokens from 4294967299 to 4294967299, but the model's vocabulary is 17"),
        ([1], {"temperature": float("nan")}, "temperature nan must not be negative"),
        ([1], {"bias": np.zeros((2, 4), np.float32)}, r"bias has shape \(2, 4\); expected none: the model has no rout"),
        ([1], {"temperature": -0.5}, r"temperature -0\.5 must not be negative"),
        ([1], {"count": -1}, r"count -1 and temperature 0\.0 must not be negative"),
        ([1], {"count": True}, "count True must be a whole number"),
        ([1], {"seed": True}, "seed True must be a whole number"),
        ([1], {"top_p": 0.0}, r"top_p 0\.0 must be above 0 and at most 1"),
        ([1], {"top_p": 1.5}, r"top_p 1\.5 must be above 0 and at most 1"),
    ],
)
def test_a_prompt_or_number_out_of_range_is_refused(prompt, arguments, message):
    with pytest.raises(ValueError, match=message):
        generate_batch(TINY, PARAMETERS, [[1], np.array(prompt, int)], **{"count": 3, **arguments})


@pytest.mark.parametrize("given", [float("inf"), 1.5, "2", None])
@pytest.mark.parametrize("name", ["count", "seed"])
def test_what_is_no_whole_number_is_refused_whoever_checks_types(name, given):
    """Without the tests' checker of annotations, as users run it: an infinite count went on for ever."""
    unchecked = inspect.unwrap(generate_batch)
    with pytest.raises(ValueError, match=f"generate: {name} {given!r} must be a whole number"):
        unchecked(TINY, PARAMETERS, [[1]], **{"count": 3, name: given})


def test_parameters_of_another_model_are_refused():
    others = {name: value for name, value in PARAMETERS.items() if name != "separate_head"} | {"tail": np.zeros(2)}
    expected = r"(?s)do not belong to this TransformerConfig .*missing: separate_head \(8, 17\)\n  unknown: tail \(2,\)"
    with pytest.raises(ValueError, match=expected):
        generate(TINY, others, [1], 3)


def test_a_mesh_of_other_processes_is_refused(monkeypatch):
    mesh = make_mesh(jax.devices()[:1])
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(ValueError) as error:
        generate(TINY, PARAMETERS, [1], 3, mesh=mesh)
    assert str(error.value) == (
        "generate: the mesh has devices of process 0, and this is process 1; give a mesh of devices of this process "
        "alone, such as make_mesh(jax.local_devices(), ...), and each process its own prompts"
    )
