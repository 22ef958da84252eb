"""How many bits a model needs for a document."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer

from marin_kernels import token_cross_entropy
from marin_models.mesh import BATCH, axis_sizes, put, spec
from marin_models.parameters import check_bias, unflatten
from marin_models.transformer import Transformer
from marin_models.transformer_config import TransformerConfig
from marin_models.windows import check_vocabulary


class ScoredWindows(NamedTuple):
    """Windows that together score each token once.

    Attributes:
        tokens: what the model reads and, one later, predicts; zeros pad the right.
        scored: which predictions count.
        document: whose they are.
    """

    tokens: Int[np.ndarray, "windows length_and_one"]
    scored: Bool[np.ndarray, "windows length"]
    document: Int[np.ndarray, " windows"]


def document_bits(
    model_config: TransformerConfig,
    parameters: Mapping[str, np.ndarray],
    documents: Sequence[Integer[np.ndarray, " _"]],
    *,
    length: int,
    start_token: int | None = None,
    stride: int | None = None,
    batch: int = 32,
    bias: Float[np.ndarray | Array, "layers experts"] | None = None,
    check: Callable[[], None] | None = None,
) -> Float[np.ndarray, " documents"]:
    """Bits of each document under the model; divided by its bytes: bits per byte.

    Every token is scored exactly once, with at least ``length - stride`` and at most ``length`` tokens before it
    (fewer only where the document begins).

    Args:
        model_config: the model's shape.
        parameters: its parameters by name.
        documents: token ids of each document.
        length: tokens that the model sees at once.
        start_token: put before each document, to predict its first token from. None: the first token costs
            ``log2(vocabulary)``, as if drawn uniformly.
        stride: tokens scored per window after a document's first; ``length // 2`` unless given.
            ``length``: windows do not overlap, which is twice as fast and a little pessimistic.
        batch: windows scored at once.
        bias: of the routers, in force; None: zeros.
        check: called after every batch; whatever it raises ends the evaluation.

    Returns:
        Bits per document, fp64; 0 for an empty one.

    Raises:
        ValueError: the stride is not in ``1 .. length``, ``batch`` is below 1, a token is outside the vocabulary, or
            ``bias`` has another shape than the model's routers.
    """
    stride = max(1, length // 2) if stride is None else stride
    if not 1 <= stride <= length:
        raise ValueError(
            f"document_bits: stride {stride} must be from 1 to length {length}, so that no token is missed"
        )
    if batch < 1:
        raise ValueError(f"document_bits: batch {batch} must be at least 1, the windows that are scored at once")
    advice = "encode the documents with the tokenizer that the model was trained with"
    for tokens in (*documents, *([] if start_token is None else [np.array([start_token])])):
        check_vocabulary("document_bits", "", np.asarray(tokens), model_config.vocabulary, advice=advice)
    check_bias("document_bits", model_config, None if bias is None else bias.shape)
    model = unflatten(model_config, parameters)
    work = scored_windows(documents, length=length, stride=stride, start_token=start_token)
    first = math.log2(model_config.vocabulary) if start_token is None else 0.0
    bits = np.array([first if len(document) else 0.0 for document in documents], np.float64)
    for begin in range(0, len(work.tokens), batch):
        tokens, scored, document = (part[begin : begin + batch] for part in work)
        missing = ((0, batch - len(tokens)), (0, 0))
        nats = _window_nats(model, np.pad(tokens, missing), np.pad(scored, missing), bias)
        np.add.at(bits, document, np.asarray(nats, np.float64)[: len(tokens)] / math.log(2))
        if check is not None:
            check()
    return bits


def scored_windows(
    documents: Sequence[Integer[np.ndarray, " _"]], *, length: int, stride: int, start_token: int | None
) -> ScoredWindows:
    """Cut documents into windows that overlap by ``length - stride`` and score every token once."""
    tokens, scored, owners = [], [], []
    for owner, document in enumerate(documents):
        start = [] if start_token is None else [start_token]
        text = np.concatenate([np.asarray(start, np.int32), np.asarray(document, np.int32)])
        done = 0  # predictions scored so far; prediction p is of text[p + 1]
        while done < len(text) - 1:
            begin = 0 if done == 0 else done + stride - length
            end = min(begin + length, len(text) - 1)
            window = np.zeros(length + 1, np.int32)
            window[: end - begin + 1] = text[begin : end + 1]
            positions = np.arange(begin, begin + length)
            tokens.append(window)
            scored.append((positions >= done) & (positions < end))
            owners.append(owner)
            done = end
    return ScoredWindows(
        np.array(tokens, np.int32).reshape(-1, length + 1),
        np.array(scored, bool).reshape(-1, length),
        np.array(owners, np.int64),
    )


def held_out_windows(
    stream: Integer[np.ndarray, " tokens"], *, length: int, windows: int
) -> Int[np.ndarray, "windows length_and_one"]:
    """Windows at even distances over a stream; they overlap by one token at most, so there may be fewer.

    Raises:
        ValueError: the stream is shorter than one window.
    """
    if len(stream) < length + 1:
        raise ValueError(
            f"held_out_windows: a window holds {length + 1} tokens (length + 1), but the held-out stream has "
            f"{len(stream)}; use a shorter length or more held-out text"
        )
    count = min(windows, (len(stream) - 1) // length)
    starts = np.linspace(0, len(stream) - length - 1, count).astype(np.int64) if count > 1 else np.zeros(1, np.int64)
    return np.stack([stream[start : start + length + 1] for start in starts]).astype(np.int32)


def window_loss(
    model: Transformer,
    tokens: Int[np.ndarray, "windows length_and_one"],
    *,
    bias: Float[Array, "layers experts"] | None = None,
    batch: int = 32,
) -> float:
    """Mean cross-entropy of the predictions in windows, nats per token.

    Args:
        model: is not changed.
        tokens: the model reads ``[:, :-1]`` and predicts ``[:, 1:]``.
        bias: of the routers, in force; None: zeros.
        batch: windows scored at once.
    """
    scored = np.ones((len(tokens), tokens.shape[1] - 1), bool)
    nats = 0.0
    for begin in range(0, len(tokens), batch):
        part = tokens[begin : begin + batch], scored[begin : begin + batch]
        padded = (np.pad(each, ((0, batch - len(each)), (0, 0))) for each in part)
        nats += float(np.sum(np.asarray(_window_nats(model, *padded, bias), np.float64)))
    return nats / scored.size


@jax.jit
def _window_nats(
    model: Transformer,
    tokens: Int[Array, "batch length_and_one"],
    scored: Bool[Array, "batch length"],
    bias: Float[Array, "layers experts"] | None = None,
) -> Float[Array, " batch"]:
    hidden = model.hidden(tokens[:, :-1], bias=bias)

    def of_rows(hidden: Array, head: Array, targets: Array, scored: Array) -> Array:
        losses = token_cross_entropy(hidden.reshape(-1, hidden.shape[-1]), head, targets.reshape(-1))
        return jnp.sum(jnp.where(scored, losses.reshape(scored.shape), 0.0), axis=1)

    if not axis_sizes():
        return of_rows(hidden, model.head, tokens[:, 1:], scored)
    rows = spec(BATCH, None)
    shards = jax.shard_map(
        of_rows,
        in_specs=(spec(BATCH, None, None), spec(None, None), rows, rows),
        out_specs=spec(BATCH),
        check_vma=False,
    )
    return shards(hidden, put(model.head, None, None), put(tokens[:, 1:], BATCH, None), put(scored, BATCH, None))
