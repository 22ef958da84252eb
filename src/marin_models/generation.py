"""Continuing a prompt."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer, Key

from marin_models.parameters import unflatten
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig

SHORTEST_BUFFER = 64  # buffers are powers of two from here on, so that prompts of many lengths share a program


def generate(
    model_config: TransformerConfig,
    parameters: Mapping[str, np.ndarray],
    prompt: Sequence[int] | Integer[np.ndarray, " _"],
    count: int,
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
) -> Int[np.ndarray, " count"]:
    """The tokens that the model puts after a prompt.

    The model re-reads a fixed buffer for each token: simple, exact, and quick enough for short texts.

    Args:
        model_config: the model's shape.
        parameters: its parameters by name.
        prompt: at least one token.
        count: tokens to generate.
        temperature: divides the logits before sampling; 0 takes the most likely token.
        top_p: sample only from the fewest tokens that together hold this probability (arXiv 1904.09751).
        seed: of the samples.

    Returns:
        The continuation, int32; a longer count with the same arguments begins with a shorter one.

    Raises:
        ValueError: the prompt is empty or outside the vocabulary, or a number is out of its range.
    """
    prompt = np.asarray(prompt, np.int32)
    _check(model_config, prompt, count, temperature, top_p)
    size = max(SHORTEST_BUFFER, 1 << (len(prompt) + count - 1).bit_length())
    buffer = np.zeros(size, np.int32)
    buffer[: len(prompt)] = prompt
    model = unflatten(model_config, parameters)
    choice = (jnp.float32(temperature), jnp.float32(top_p), jax.random.key(seed))
    filled = _fill(model, buffer, len(prompt), len(prompt) + count, *choice)
    return np.asarray(filled)[len(prompt) : len(prompt) + count]


def _check(config: TransformerConfig, prompt: np.ndarray, count: int, temperature: float, top_p: float) -> None:
    if prompt.ndim != 1 or not len(prompt):
        raise ValueError(
            f"generate: the prompt has shape {prompt.shape}; give at least one token, such as the start-of-text token"
        )
    if prompt.min() < 0 or prompt.max() >= config.vocabulary:
        raise ValueError(
            f"generate: the prompt holds tokens from {prompt.min()} to {prompt.max()}, but the model's vocabulary is "
            f"{config.vocabulary}; encode it with the tokenizer that the model was trained with"
        )
    if count < 0 or temperature < 0 or not 0 < top_p <= 1:
        raise ValueError(
            f"generate: count {count} and temperature {temperature} must not be negative, "
            f"and top_p {top_p} must be above 0 and at most 1"
        )


@jax.jit
def _fill(
    model: Transformer,
    buffer: Int[Array, " size"],
    start: int | Int[Array, ""],
    end: int | Int[Array, ""],
    temperature: Float[Array, ""],
    top_p: Float[Array, ""],
    key: Key[Array, ""],
) -> Int[Array, " size"]:
    """The buffer with positions ``start .. end - 1`` generated one after the other."""

    def put_next(position: Array, buffer: Array) -> Array:
        last = model.hidden(buffer[None])[0, position - 1]
        logits = jnp.matmul(last, model.head, preferred_element_type=jnp.float32)
        token = sample(logits, temperature, top_p, jax.random.fold_in(key, position - start))
        return buffer.at[position].set(token)

    return jax.lax.fori_loop(start, end, put_next, buffer)


def sample(
    logits: Float[Array, " vocabulary"], temperature: Float[Array, ""], top_p: Float[Array, ""], key: Key[Array, ""]
) -> Int[Array, ""]:
    """One token: the most likely at temperature 0, else drawn from the nucleus of probability ``top_p``."""
    order = jnp.argsort(-logits)
    scaled = logits[order] / jnp.where(temperature > 0, temperature, 1.0)
    probabilities = jax.nn.softmax(scaled)
    before = jnp.cumsum(probabilities) - probabilities
    nucleus = jnp.where((before < top_p).at[0].set(True), scaled, -jnp.inf)
    drawn = jax.random.categorical(key, nucleus)
    return order[jnp.where(temperature > 0, drawn, 0)].astype(jnp.int32)
