"""How well a trained model, or a baseline, writes held-out documents; and what a model writes itself."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from library import baselines
from library.documents import Corpus
from library.token_store import TokenStore, open_token_store
from library.tokenizers import Tokenizer
from library.training import Run, check_vocabulary
from marin_dsl import context, op
from marin_models import Stops, document_bits, forward_flops_per_token, generate_batch

Baseline = Literal["uniform", "unigram", "bigram", "zlib", "lzma"]
BASELINES: tuple[Baseline, ...] = ("uniform", "unigram", "bigram", "zlib", "lzma")


@op(resources={"CPU": 1}, pin=["jax", "jaxlib"])
def held_out_bits(run: Run, stores: Mapping[str, TokenStore], *, length: int) -> dict[str, np.ndarray]:
    """Bits that a trained model needs for each held-out document.

    The first token is predicted from the end-of-document token, and the end of a document is not counted.

    Args:
        run: the trained model.
        stores: held-out tokens by domain, of the tokenizer that the model was trained with.
        length: tokens that the model sees at once.

    Returns:
        By domain: bits per document, float64 of shape [documents].

    Raises:
        VocabularyMismatch: a store's vocabulary is not the model's.
    """
    for name, store in stores.items():
        check_vocabulary(f"tokens of {name!r}", store.vocabulary, run.model)
    found, current, tokens = {}, context(), 0
    for done, (name, store) in enumerate(stores.items()):
        current.progress(done, len(stores), domain=name)
        documents = [document[:-1] for document in open_token_store(store).documents()]
        tokens += sum(map(len, documents))
        found[name] = document_bits(
            run.model,
            run.parameters,
            documents,
            length=length,
            start_token=store.end_of_document,
            bias=run.router_bias,
            check=current.check,
        )
    current.observe("flops", float(forward_flops_per_token(run.model, length)) * tokens)
    return found


@op
def baseline_bits(
    training: Mapping[str, Corpus], held_out: Mapping[str, Corpus], *, baseline: Baseline
) -> dict[str, np.ndarray]:
    """Bits that a method without a neural network needs for each held-out document.

    Args:
        training: corpora by domain, from which the byte frequencies of `unigram` and `bigram` come.
        held_out: corpora by domain.
        baseline: the method; see `library.baselines`.

    Returns:
        By domain: bits per document, float64 of shape [documents].
    """
    if baseline in ("unigram", "bigram"):
        counts = baselines.byte_pair_counts.function(list(training.values()))
        counted = baselines.unigram_bits if baseline == "unigram" else baselines.bigram_bits
        return {name: counted.function(counts, corpus) for name, corpus in held_out.items()}
    alone = {"uniform": baselines.uniform_bits, "zlib": baselines.zlib_bits, "lzma": baselines.lzma_bits}
    return {name: alone[baseline].function(corpus) for name, corpus in held_out.items()}


@op
def byte_lengths(held_out: Mapping[str, Corpus]) -> dict[str, np.ndarray]:
    """Length of each held-out document in UTF-8 bytes, by domain: int64 of shape [documents]."""
    return {name: baselines.document_bytes.function(corpus) for name, corpus in held_out.items()}


@op(resources={"CPU": 1}, pin=["jax", "jaxlib"])
def continuation(
    run: Run,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    tokens: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
) -> str:
    """What a trained model writes after a prompt.

    Args:
        run: the trained model.
        tokenizer: the one that it was trained with.
        prompt: text to continue, at the beginning of a document.
        tokens: number of tokens to write.
        temperature: 0 for the most likely token each time.
        top_p: sample only from the most likely tokens that together have this probability.
        seed: of the samples.
        stop: texts that end it; the first one met and what follows are left out.

    Raises:
        VocabularyMismatch: the tokenizer's vocabulary is not the model's.
    """
    check_vocabulary("tokens of the tokenizer", tokenizer.vocabulary, run.model)
    start = np.concatenate([[tokenizer.end_of_document], tokenizer.encode(prompt)]).astype(np.int32)
    [written] = generate_batch(
        run.model,
        run.parameters,
        [start],
        tokens,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        bias=run.router_bias,
        stops=Stops(strings=stop, decode=tokenizer.decode),
    )
    text = tokenizer.decode(written.tokens)
    return text[: text.index(written.stop)] if isinstance(written.stop, str) else text
