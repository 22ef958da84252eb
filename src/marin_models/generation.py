"""Continuing prompts."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer, Key

from marin_models.key_value_cache import Caches, capacity_of, empty_caches, enlarged, extend
from marin_models.parameters import unflatten
from marin_models.sampling import sample
from marin_models.stopping import Stop, Stops, first_stop
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig

Prompt = Sequence[int] | Integer[np.ndarray, " _"]
Bias = Float[np.ndarray | Array, "routed_layers experts"] | None

SMALLEST_CACHE = 64  # caches hold powers of two from here on, so that texts of many lengths share a program
PIECE = 256  # tokens of a prompt read at once, which bounds the memory of attention scores
STRIDE = 32  # tokens generated between two looks for stops


@attrs.frozen(eq=False)
class Continuation:
    """What a model put after a prompt.

    Attributes:
        tokens: int32, the token that completes a stop included.
        stop: the token sequence or string that ended it; None if the number of tokens asked for did.
    """

    tokens: Int[np.ndarray, " _"]
    stop: Stop | None


def generate(
    model_config: TransformerConfig,
    parameters: Mapping[str, np.ndarray],
    prompt: Prompt,
    count: int,
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    bias: Bias = None,
) -> Int[np.ndarray, " count"]:
    """The ``count`` tokens that the model puts after one prompt; arguments and errors as for `generate_batch`."""
    choice = {"temperature": temperature, "top_p": top_p, "seed": seed}
    return generate_batch(model_config, parameters, [prompt], count, **choice, bias=bias)[0].tokens


def generate_batch(
    model_config: TransformerConfig,
    parameters: Mapping[str, np.ndarray],
    prompts: Sequence[Prompt],
    count: int,
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    bias: Bias = None,
    stops: Stops | None = None,
) -> list[Continuation]:
    """What the model puts after each of several prompts.

    Each token is read once: keys and values of what was read are kept. It all happens on one device, and experts drop
    no token.

    Args:
        model_config: the model's shape.
        parameters: its parameters by name.
        prompts: at least one token each; lengths may differ.
        count: tokens to generate for each, unless a stop ends one before.
        temperature: divides the logits before sampling; 0 takes the most likely token.
        top_p: sample only from the fewest tokens that together hold this probability (arXiv 1904.09751).
        seed: of the samples; prompt ``i`` of a batch draws as it would alone with ``seed + i``.
        bias: the balancing bias of each router; None: zeros.
        stops: what else ends a continuation.

    Returns:
        The continuations, in the order of the prompts. A longer count with the same arguments begins with a shorter
        one; a continuation with stops begins the one without.

    Raises:
        ValueError: a prompt is empty or outside the vocabulary, or a number is out of its range.
    """
    prompts = [np.asarray(prompt, np.int32) for prompt in prompts]
    _check(model_config, prompts, count, temperature, top_p)
    if not prompts or not count:
        return [Continuation(np.zeros(0, np.int32), None) for _ in prompts]
    model = unflatten(dropless(model_config), parameters)
    choice = _Choice(jnp.float32(temperature), jnp.float32(top_p), _keys(seed, len(prompts)))
    return _continued(model, prompts, count, choice, stops or Stops(), None if bias is None else jnp.asarray(bias))


def dropless(config: TransformerConfig) -> TransformerConfig:
    """The config with routed experts that run on one device and drop no token; the same parameters belong to it."""
    if config.mixture is None:
        return config
    return attrs.evolve(config, mixture=attrs.evolve(config.mixture, implementation="local", capacity_factor=None))


class _Choice(NamedTuple):
    """How tokens are drawn; a key for each row."""

    temperature: Float[Array, ""]
    top_p: Float[Array, ""]
    keys: Key[Array, " batch"]


class _State(NamedTuple):
    """Texts read so far and the logits of what follows.

    Attributes:
        caches: keys and values of the texts.
        lengths: tokens of each text.
        logits: of each text's next token.
    """

    caches: Caches
    lengths: Int[Array, " batch"]
    logits: Float[Array, "batch vocabulary"]


def _continued(
    model: Transformer, prompts: list[np.ndarray], count: int, choice: _Choice, stops: Stops, bias: Bias
) -> list[Continuation]:
    """Generate stride after stride until every row met a stop or has its tokens.

    The cache grows when the longest text needs it, whatever the count: the same tokens come from the same programs.
    """
    longest = max(map(len, prompts))
    state = _read_prompts(model, *_padded(prompts, _cache_size(longest + 1)), bias)
    tokens, done = np.zeros((len(prompts), 0), np.int32), [None] * len(prompts)
    while tokens.shape[1] < count and None in done:
        made = tokens.shape[1]
        if longest + made == capacity_of(state.caches):
            state = state._replace(caches=enlarged(state.caches, 2 * (longest + made)))
        steps = min(STRIDE, count - made, capacity_of(state.caches) - longest - made)
        state, new = _generate(model, state, choice, made, steps, bias)
        tokens = np.concatenate([tokens, np.asarray(new)[:, :steps]], axis=1)
        done = [end or first_stop(row, stops, searched=made) for end, row in zip(done, tokens, strict=True)]
    ends = (end or (count, None) for end in done)
    return [Continuation(row[:length], stop) for row, (length, stop) in zip(tokens, ends, strict=True)]


def _check(config: TransformerConfig, prompts: list[np.ndarray], count: int, temperature: float, top_p: float) -> None:
    for prompt in prompts:
        if prompt.ndim != 1 or not len(prompt):
            raise ValueError(
                f"generate: a prompt has shape {prompt.shape}; give at least one token, such as the start-of-text token"
            )
        if prompt.min() < 0 or prompt.max() >= config.vocabulary:
            raise ValueError(
                f"generate: a prompt holds tokens from {prompt.min()} to {prompt.max()}, but the model's vocabulary "
                f"is {config.vocabulary}; encode it with the tokenizer that the model was trained with"
            )
    if count < 0 or temperature < 0 or not 0 < top_p <= 1:
        raise ValueError(
            f"generate: count {count} and temperature {temperature} must not be negative, "
            f"and top_p {top_p} must be above 0 and at most 1"
        )


def _keys(seed: int, count: int) -> Key[Array, " {count}"]:
    return jnp.stack([jax.random.key(seed + row) for row in range(count)])


def _cache_size(tokens: int) -> int:
    return max(SMALLEST_CACHE, 1 << (tokens - 1).bit_length())


def _padded(prompts: list[np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray]:
    """[batch, size] tokens with zeros on the right, and lengths."""
    tokens = np.zeros((len(prompts), size), np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    return tokens, np.array([len(prompt) for prompt in prompts], np.int32)


def _logits(model: Transformer, hidden: Float[Array, "batch width"]) -> Float[Array, "batch vocabulary"]:
    return jnp.matmul(hidden, model.head, preferred_element_type=jnp.float32)


@jax.jit
def _read_prompts(
    model: Transformer,
    tokens: Int[np.ndarray | Array, "batch size"],
    lengths: Int[np.ndarray | Array, " batch"],
    bias: Bias,
) -> _State:
    """The state after the prompts, in a cache of as many slots as the padded prompts have."""
    batch, size = tokens.shape
    piece = min(PIECE, size)

    def read(carried: tuple[Caches, Array], begin: Array) -> tuple[tuple[Caches, Array], None]:
        caches, last = carried
        some = jax.lax.dynamic_slice_in_dim(tokens, begin, piece, axis=1)
        valid = begin + jnp.arange(piece) < lengths[:, None]
        hidden, caches = extend(model, caches, some, jnp.full(batch, begin), bias=bias, valid=valid)
        offset = lengths - 1 - begin
        own = jnp.take_along_axis(hidden, jnp.clip(offset, 0, piece - 1)[:, None, None], axis=1)[:, 0]
        return (caches, jnp.where(((offset >= 0) & (offset < piece))[:, None], own, last)), None

    start = (empty_caches(model, batch, size), jnp.zeros((batch, model.config.width), model.config.dtype))
    (caches, last), _ = jax.lax.scan(read, start, jnp.arange(0, size, piece))
    return _State(caches, jnp.asarray(lengths), _logits(model, last))


@partial(jax.jit, donate_argnames="state")
def _generate(
    model: Transformer, state: _State, choice: _Choice, made: int | Array, steps: int | Array, bias: Bias
) -> tuple[_State, Int[Array, "batch stride"]]:
    """``steps`` more tokens of each row, of which ``made`` have been generated before; at most `STRIDE`."""

    def put_next(step: Array, carried: tuple[_State, Array]) -> tuple[_State, Array]:
        state, tokens = carried
        keys = jax.vmap(jax.random.fold_in, (0, None))(choice.keys, made + step)
        token = jax.vmap(sample, (0, None, None, 0))(state.logits, choice.temperature, choice.top_p, keys)
        hidden, caches = extend(model, state.caches, token[:, None], state.lengths, bias=bias)
        return _State(caches, state.lengths + 1, _logits(model, hidden[:, 0])), tokens.at[:, step].set(token)

    return jax.lax.fori_loop(0, steps, put_next, (state, jnp.zeros((state.logits.shape[0], STRIDE), jnp.int32)))
