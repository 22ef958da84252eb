"""The data recipes as expressions: what a page builds from them, evaluated in one store and again in another."""

import pytest

from library.baselines import (
    bigram_bits,
    byte_pair_counts,
    document_bytes,
    lzma_bits,
    uniform_bits,
    unigram_bits,
    zlib_bits,
)
from library.corpora import package_text, pydoc_topics, python_source, state_of_the_union
from library.intervals import bits_per_byte, bits_per_byte_difference
from library.normalization import normalize
from library.splitting import split
from library.token_store import open_token_store, tokenize
from library.tokenizers import byte_tokenizer, train_bpe
from marin_dsl import Failed, attempt, evaluate, op


@op
def said(outcome: object) -> str:
    """What a page would print of a failure."""
    return f"{type(outcome).__name__}: {outcome.message}"


def expressions():
    """One expression for each operator, by name."""
    corpora = {
        "python": python_source(limit_bytes=400_000),
        "manual": pydoc_topics(),
        "speeches": state_of_the_union(limit_bytes=400_000),
    }
    normalized = {name: normalize(corpus) for name, corpus in corpora.items()}
    splits = {name: split(result.field("corpus"), validation=0.3) for name, result in normalized.items()}
    training = [splits[name].field("train") for name in splits]
    held_out = splits["manual"].field("validation")
    bpe = train_bpe(training, vocabulary=400)
    counts = byte_pair_counts(training)
    bits = {
        "uniform": uniform_bits(held_out),
        "unigram": unigram_bits(counts, held_out),
        "bigram": bigram_bits(counts, held_out),
        "zlib": zlib_bits(held_out),
        "lzma": lzma_bits(held_out),
    }
    lengths = document_bytes(held_out)
    return {
        **corpora,
        **{f"normalized {name}": result for name, result in normalized.items()},
        **{f"split {name}": result for name, result in splits.items()},
        "bytes": byte_tokenizer(),
        "bpe": bpe,
        "tokens": tokenize(held_out, bpe),
        "byte tokens": tokenize(held_out, byte_tokenizer()),
        "counts": counts,
        "lengths": lengths,
        **bits,
        "interval": bits_per_byte(bits["zlib"], lengths),
        "difference": bits_per_byte_difference(bits["bigram"], bits["unigram"], lengths),
    }


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return [str(tmp_path_factory.mktemp(name)) for name in ("one", "other")]


@pytest.fixture(scope="module")
def outcomes(stores):
    named = expressions()
    return [dict(zip(named, evaluate(*named.values(), store=store, debug=True), strict=True)) for store in stores]


def test_evaluated_in_two_stores_every_recipe_gives_the_same_value(outcomes):
    one, other = ({name: outcome.digest for name, outcome in found.items()} for found in outcomes)
    assert one == other
    assert all(digest.startswith("sha256:") for digest in one.values())


def test_tokens_read_from_a_store_give_back_the_held_out_texts(outcomes):
    values = {name: outcome.value for name, outcome in outcomes[0].items() if name in ("tokens", "bpe", "split manual")}
    opened = open_token_store(values["tokens"])
    texts = [document.text for document in values["split manual"].validation.read()]
    assert [values["bpe"].decode(ids) for ids in opened.documents()] == texts
    assert len(texts) > 10


def test_what_knows_more_of_the_domain_needs_fewer_bits(outcomes):
    totals = {
        name: outcomes[0][name].value.sum() / outcomes[0]["lengths"].value.sum()
        for name in ("uniform", "unigram", "bigram", "zlib")
    }
    assert totals["uniform"] == 8 > totals["unigram"] > totals["bigram"] > totals["zlib"] > 1
    assert outcomes[0]["difference"].value.high < 0
    assert outcomes[0]["interval"].value.point == pytest.approx(totals["zlib"])


def test_a_corpus_that_is_not_installed_is_a_failure_that_a_page_can_show(stores):
    plays = package_text(
        "plays_that_nobody_packaged", "*.md", name="plays", version="3.0.0", licence="MIT", attribution="nobody"
    )
    outcome = evaluate(normalize(plays), said(attempt(plays)), store=stores[0], debug=True)
    assert not isinstance(outcome[0], Failed)  # skipped: what it needs failed
    assert outcome[1].value == (
        "Failed: corpus 'plays': package 'plays_that_nobody_packaged' is not installed; "
        "run: pip install plays_that_nobody_packaged==3.0.0"
    )
    assert evaluate(plays, store=stores[0], debug=True).exception.endswith("CorpusUnavailable")
