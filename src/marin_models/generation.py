"""Continuing prompts."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Integer, Key

from marin_kernels.expert_parallel import ExpertParallelImplementation
from marin_models.key_value_cache import Caches, capacity_of, empty_caches, enlarged, extend
from marin_models.mesh import BATCH, axis_sizes, per_shard, put, spec
from marin_models.parameters import check_bias, unflatten
from marin_models.sampling import sample
from marin_models.stopping import Stop, Stops, first_stop
from marin_models.transformer import Transformer, check_mesh
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
    mesh: Mesh | None = None,
) -> Int[np.ndarray, " count"]:
    """The ``count`` tokens that the model puts after one prompt; arguments and errors as for `generate_batch`."""
    choice = {"temperature": temperature, "top_p": top_p, "seed": seed}
    return generate_batch(model_config, parameters, [prompt], count, **choice, bias=bias, mesh=mesh)[0].tokens


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
    mesh: Mesh | None = None,
) -> list[Continuation]:
    """What the model puts after each of several prompts.

    Each token is read once: keys and values of what was read are kept. Experts drop no token.

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
        mesh: devices of this process (see `marin_models.make_mesh`) that hold the parameters in pieces and split the
            prompts between them, of which they get the same number each: rows that are thrown away fill up the rest.
            Where it splits experts, tokens travel as the config says, or by ``"ring"`` if it says ``"local"``. None:
            one device.

    Returns:
        The continuations, in the order of the prompts. A longer count with the same arguments begins with a shorter
        one; a continuation with stops begins the one without.

    Raises:
        ValueError: a prompt is empty or outside the vocabulary, a number is out of its range, ``bias`` has another
            shape than the model's routers, or the mesh cannot split the model or has devices of other processes.
    """
    _check_whole(count=count, seed=seed)
    _check(model_config, [np.asarray(prompt) for prompt in prompts], count, temperature, top_p)
    check_bias("generate", model_config, None if bias is None else bias.shape)
    prompts = [np.asarray(prompt, np.int32) for prompt in prompts]
    if not prompts or not count:
        return [Continuation(np.zeros(0, np.int32), None) for _ in prompts]
    _check_local(mesh)
    model = unflatten(dropless(model_config, mesh), parameters, mesh)
    with contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh):
        check_mesh(model_config, batch=_rows_together())
        filled = prompts + prompts[:1] * (-len(prompts) % _rows_together())
        choice = _Choice(jnp.float32(temperature), jnp.float32(top_p), _keys(seed, len(filled)))
        bias = None if bias is None else jnp.asarray(bias)
        return _continued(model, filled, len(prompts), count, choice, stops or Stops(), bias)


def dropless(config: TransformerConfig, mesh: Mesh | None = None) -> TransformerConfig:
    """The config with routed experts that drop no token, and run on the mesh; the same parameters belong to it."""
    if config.mixture is None:
        return config
    chosen: ExpertParallelImplementation = "local"
    if mesh is not None and mesh.shape.get("expert", 1) > 1:
        chosen = "ring" if config.mixture.implementation in ("local", "grouped_gpu") else config.mixture.implementation
    return attrs.evolve(config, mixture=attrs.evolve(config.mixture, implementation=chosen, capacity_factor=None))


def _check_local(mesh: Mesh | None) -> None:
    if mesh is None:
        return
    own = jax.process_index()
    others = sorted({device.process_index for device in mesh.devices.flat} - {own})
    if others:
        named = ", ".join(map(str, others))
        raise ValueError(
            f"generate: the mesh has devices of process {named}, and this is process {own}; give a mesh of devices of "
            "this process alone, such as make_mesh(jax.local_devices(), ...), and each process its own prompts"
        )


def _rows_together() -> int:
    """The rows of a batch are a multiple of this on the mesh in force."""
    return math.prod(axis_sizes().get(axis, 1) for axis in BATCH)


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
    model: Transformer,
    prompts: list[np.ndarray],
    wanted: int,
    count: int,
    choice: _Choice,
    stops: Stops,
    bias: Bias,
) -> list[Continuation]:
    """Generate stride after stride until each of the first ``wanted`` rows met a stop or has its tokens.

    The cache grows when the longest text needs it, whatever the count: the same tokens come from the same programs.
    """
    longest = max(map(len, prompts))
    state = _read_prompts(model, *_padded(prompts, _cache_size(longest + 1)), bias)
    tokens, done = np.zeros((wanted, 0), np.int32), [None] * wanted
    while tokens.shape[1] < count and None in done:
        made = tokens.shape[1]
        if longest + made == capacity_of(state.caches):
            state = state._replace(caches=enlarged(state.caches, 2 * (longest + made)))
        steps = min(STRIDE, count - made, capacity_of(state.caches) - longest - made)
        state, new = _generate(model, state, choice, made, steps, bias)
        tokens = np.concatenate([tokens, np.asarray(new)[:wanted, :steps]], axis=1)
        done = [end or first_stop(row, stops, searched=made) for end, row in zip(done, tokens, strict=True)]
    ends = (end or (count, None) for end in done)
    return [Continuation(row[:length], stop) for row, (length, stop) in zip(tokens, ends, strict=True)]


def _check_whole(**numbers: object) -> None:
    for name, number in numbers.items():
        if not isinstance(number, int | np.integer) or isinstance(number, bool):
            raise ValueError(f"generate: {name} {number!r} must be a whole number")


def _check(config: TransformerConfig, prompts: list[np.ndarray], count: int, temperature: float, top_p: float) -> None:
    for prompt in prompts:
        if prompt.ndim != 1 or not len(prompt):
            raise ValueError(
                f"generate: a prompt has shape {prompt.shape}; give at least one token, such as the start-of-text token"
            )
        if prompt.dtype.kind not in "iu":
            raise ValueError(f"generate: a prompt holds {prompt.dtype} numbers; give tokens, which are integers")
        if prompt.min() < 0 or prompt.max() >= config.vocabulary:
            raise ValueError(
                f"generate: a prompt holds tokens from {prompt.min()} to {prompt.max()}, but the model's vocabulary "
                f"is {config.vocabulary}; encode it with the tokenizer that the model was trained with"
            )
    if not (count >= 0 and temperature >= 0 and 0 < top_p <= 1):  # no number that is none passes
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
    return put(model.logits(hidden), BATCH, None)


@jax.jit
def _read_prompts(
    model: Transformer,
    tokens: Int[np.ndarray | Array, "batch size"],
    lengths: Int[np.ndarray | Array, " batch"],
    bias: Bias,
) -> _State:
    """The state after the prompts, in a cache of as many slots as the padded prompts have."""
    batch, size = tokens.shape
    tokens, lengths = put(jnp.asarray(tokens), BATCH, None), put(jnp.asarray(lengths), BATCH)
    piece = min(PIECE, size)
    place = per_shard(_place, (spec(BATCH, None, None), spec(BATCH)), spec(BATCH, None))

    def read(carried: tuple[Caches, Array], begin: Array) -> tuple[tuple[Caches, Array], None]:
        caches, last = carried
        some = jax.lax.dynamic_slice_in_dim(tokens, begin, piece, axis=1)
        valid = begin + jnp.arange(piece) < lengths[:, None]
        hidden, caches = extend(model, caches, some, jnp.full(batch, begin), bias=bias, valid=valid)
        offset = lengths - 1 - begin
        own = place(hidden, jnp.clip(offset, 0, piece - 1))
        return (caches, jnp.where(((offset >= 0) & (offset < piece))[:, None], own, last)), None

    nothing = put(jnp.zeros((batch, model.config.width), model.config.dtype), BATCH, None)
    (caches, last), _ = jax.lax.scan(read, (empty_caches(model, batch, size), nothing), jnp.arange(0, size, piece))
    return _State(caches, lengths, _logits(model, last))


def _place(hidden: Float[Array, "batch length width"], index: Int[Array, " batch"]) -> Float[Array, "batch width"]:
    """One position of each row."""
    return jnp.take_along_axis(hidden, index[:, None, None], axis=1)[:, 0]


@partial(jax.jit, donate_argnames="state")
def _generate(
    model: Transformer, state: _State, choice: _Choice, made: int | Array, steps: int | Array, bias: Bias
) -> tuple[_State, Int[Array, "batch stride"]]:
    """``steps`` more tokens of each row, of which ``made`` have been generated before; at most `STRIDE`."""
    rows, whole = spec(BATCH), spec()
    draw = per_shard(_drawn, (spec(BATCH, None), _Choice(whole, whole, rows), whole), rows)
    choice = choice._replace(keys=put(choice.keys, BATCH))

    def put_next(step: Array, carried: tuple[_State, Array]) -> tuple[_State, Array]:
        state, tokens = carried
        token = draw(state.logits, choice, made + step)
        hidden, caches = extend(model, state.caches, token[:, None], state.lengths, bias=bias)
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, token[:, None], step, axis=1)
        return _State(caches, state.lengths + 1, _logits(model, hidden[:, 0])), tokens

    tokens = put(jnp.zeros((state.logits.shape[0], STRIDE), jnp.int32), BATCH, None)
    return jax.lax.fori_loop(0, steps, put_next, (state, tokens))


def _drawn(logits: Float[Array, "batch vocabulary"], choice: _Choice, number: Int[Array, ""]) -> Int[Array, " batch"]:
    """The token of this number of each row."""
    keys = jax.vmap(jax.random.fold_in, (0, None))(choice.keys, number)
    return jax.vmap(sample, (0, None, None, 0))(logits, choice.temperature, choice.top_p, keys)
