"""Training and evaluating a model on token stores, as operators."""

import attrs
import numpy as np
import pytest

from library import evaluation
from library.token_store import TokenStoreDamaged, tokenize
from library.tokenizers import byte_tokenizer
from library.training import Run, VocabularyMismatch, train
from marin_dsl import Directory, Failed, Ok, evaluate
from marin_dsl.encoding import decode, encode, encode_with_leaves
from marin_models import (
    Diverged,
    MixtureOfExpertsConfig,
    OptimizerConfig,
    RotaryScaling,
    TrainingConfig,
    TransformerConfig,
    flops_per_token,
)

MODEL = TransformerConfig(vocabulary=257, width=16, layers=1, heads=2, key_value_heads=1, feed_forward=16)
OPTIMIZER = OptimizerConfig("adamw", learning_rate=0.01)
TRAINING = TrainingConfig(steps=12, batch=4, length=16, seed=3)


@pytest.fixture(scope="module")
def stores(corpus_of, prose):
    tokenizer = byte_tokenizer.function()
    halves = {"first": prose[:20], "second": prose[20:]}
    return {name: tokenize.function(corpus_of(texts, name), tokenizer) for name, texts in halves.items()}


@pytest.fixture(scope="module")
def run(stores) -> Run:
    return trained(stores)


def trained(stores, **settings) -> Run:
    given = {"model": MODEL, "optimizer": OPTIMIZER, "training": TRAINING} | settings
    return train.function(stores, {"first": 1.0, "second": 3.0, "third": 1.0}, **given)


def test_a_run_has_a_point_for_each_step_and_counts_what_it_read(run):
    assert run.step.tolist() == list(range(1, 13))
    assert run.tokens.tolist() == [step * 4 * 16 for step in range(1, 13)]
    assert sum(run.source_tokens.values()) == run.tokens[-1]
    assert set(run.source_tokens) == {"first", "second"}
    assert run.flops == flops_per_token(MODEL, 16) * 768
    assert run.loss[-1] < run.loss[0]
    assert run.attention_peak is None


def test_a_run_that_clips_queries_and_keys_has_their_peaks_and_refuses_models_that_normalize_them(stores):
    clipped = attrs.evolve(OPTIMIZER, query_key_clip=100.0)
    peaks = trained(stores, optimizer=clipped, model=attrs.evolve(MODEL, qk_norm="none")).attention_peak
    assert (peaks.shape, peaks.dtype) == ((12,), np.float32)
    with pytest.raises(ValueError, match="query_key_clip is for models without QK-norm"):
        trained(stores, optimizer=clipped)


def test_a_model_whose_context_was_not_extended_is_the_value_that_it_was_before_one_could_be():
    longer = attrs.evolve(MODEL, rotary_scaling=RotaryScaling("llama3", 8.0, original_length=64))
    assert b"rotary_scaling" not in encode(MODEL)
    assert b"rotary_scaling" in encode(longer)
    for config in (MODEL, longer):
        assert decode(encode(config)) == config


def test_equal_arguments_give_equal_bytes(stores, run):
    assert encode_with_leaves(trained(stores)).digest == encode_with_leaves(run).digest
    other = trained(stores, training=attrs.evolve(TRAINING, seed=4))
    assert encode_with_leaves(other).digest != encode_with_leaves(run).digest


def test_a_run_comes_back_from_its_encoding(run):
    encoded = encode_with_leaves(run)
    found = decode(encoded.data, read_leaf=lambda digest, size: b"".join(encoded.leaves[digest].chunks()))
    assert found.model == MODEL
    assert {name: value.tobytes() for name, value in found.parameters.items()} == {
        name: value.tobytes() for name, value in run.parameters.items()
    }


def test_seconds_and_operations_are_observed_beside_the_result(stores, tmp_path):
    expression = train(stores, {"first": 1.0, "second": 1.0}, model=MODEL, optimizer=OPTIMIZER, training=TRAINING)
    seen = []
    outcome = evaluate(expression, store=str(tmp_path), debug=True, watch=seen.append)
    assert isinstance(outcome, Ok)
    assert [event["content"]["total"] for event in seen if event["event"] == "progress"] == [12, 12]
    from marin_dsl import Store, lineage

    store = Store(str(tmp_path))
    found = lineage.ancestors(store, expression.key)[expression.key]
    seconds = found.observation(store, "seconds")
    assert seconds.shape == (12,)
    assert (np.diff(seconds) >= 0).all()
    assert found.observation(store, "flops") == outcome.value.flops


def test_a_vocabulary_that_is_not_the_stores_is_refused(stores):
    with pytest.raises(VocabularyMismatch) as error:
        trained(stores, model=attrs.evolve(MODEL, vocabulary=300))
    assert str(error.value) == (
        "the tokens of 'first' have a vocabulary of 257 and the model one of 300; give the model the tokenizer's "
        "vocabulary"
    )


def test_tokens_of_another_vocabulary_are_refused_in_evaluation_and_generation(stores, run):
    other = attrs.evolve(stores["first"], vocabulary=200)
    with pytest.raises(VocabularyMismatch, match="the tokens of 'first' have a vocabulary of 200 and the model one of"):
        evaluation.held_out_bits.function(run, {"first": other}, length=16)
    tokenizer = attrs.evolve(byte_tokenizer.function(), vocabulary=300)
    with pytest.raises(
        VocabularyMismatch, match="tokens of the tokenizer have a vocabulary of 300 and the model one of"
    ):
        evaluation.continuation.function(run, tokenizer, "a", tokens=1)


def test_a_store_without_a_weight_is_refused(stores):
    with pytest.raises(
        ValueError, match="'second' has no weight among those of 'first'; say how much of training each"
    ):
        train.function(stores, {"first": 1.0}, model=MODEL, optimizer=OPTIMIZER, training=TRAINING)


def test_a_run_keeps_the_average_and_what_its_routers_reported(stores, run):
    assert (run.average, run.router) == (None, None)
    assert b"average" not in encode_with_leaves(attrs.evolve(run, parameters={})).data
    routed = attrs.evolve(MODEL, mixture=MixtureOfExpertsConfig(experts=4, top_k=2, inner=8))
    found = trained(stores, model=routed, optimizer=attrs.evolve(OPTIMIZER, average=0.9))
    assert found.router.max_violation.shape == (12, 1)
    assert found.average.keys() == found.parameters.keys()
    assert any((found.average[name] != value).any() for name, value in found.parameters.items())
    encoded = encode_with_leaves(found)
    again = decode(encoded.data, read_leaf=lambda digest, size: b"".join(encoded.leaves[digest].chunks()))
    np.testing.assert_array_equal(again.router.dropped, found.router.dropped)
    np.testing.assert_array_equal(again.average["embedding"], found.average["embedding"])


def test_a_learning_rate_far_too_high_is_stopped_by_the_guard(stores):
    with pytest.raises(Diverged, match=r"training diverged at step \d+: loss .* at learning rate"):
        trained(
            stores,
            optimizer=OptimizerConfig("adamw", learning_rate=30.0, warmup=0.0, decay=0.0),
            training=TrainingConfig(steps=60, batch=4, length=16),
        )


def test_a_token_store_cut_short_fails_the_node_and_names_the_file(stores, tmp_path):
    folder = tmp_path / "cut"
    folder.mkdir()
    for name, file in stores["first"].files.files.items():
        content = file.read_bytes()
        (folder / name).write_bytes(content[:-7] if name == "tokens.bin" else content)
    cut = attrs.evolve(stores["first"], files=Directory.of(folder))
    expression = train({"first": cut}, {"first": 1.0}, model=MODEL, optimizer=OPTIMIZER, training=TRAINING)
    outcome = evaluate(expression, store=str(tmp_path / "store"), debug=True)
    assert isinstance(outcome, Failed)
    assert outcome.exception == f"{TokenStoreDamaged.__module__}.TokenStoreDamaged"
    assert "tokens.bin" in outcome.message
    assert "evaluate the tokens again" in outcome.message


def test_a_trained_model_needs_fewer_bits_than_knowing_nothing(run, stores, corpus_of, prose):
    bits = evaluation.held_out_bits.function(run, stores, length=16)
    lengths = evaluation.byte_lengths.function({"first": corpus_of(prose[:20]), "second": corpus_of(prose[20:])})
    assert {name: len(of) for name, of in bits.items()} == {"first": 20, "second": 20}
    for name, of in bits.items():
        assert 0 < of.sum() / lengths[name].sum() < 8


def test_the_end_of_a_document_is_not_counted(run, corpus_of):
    tokenizer = byte_tokenizer.function()
    store = tokenize.function(corpus_of(["a"]), tokenizer)
    (bits,) = evaluation.held_out_bits.function(run, {"one": store}, length=16)["one"]
    whole = tokenize.function(corpus_of(["aa"]), tokenizer)
    (longer,) = evaluation.held_out_bits.function(run, {"one": whole}, length=16)["one"]
    assert 0 < bits < longer


def test_baselines_are_those_of_the_library_by_domain(corpus_of, prose):
    training, held_out = {"first": corpus_of(prose[:20])}, {"first": corpus_of(prose[20:])}
    found = {
        name: evaluation.baseline_bits.function(training, held_out, baseline=name)["first"].sum()
        for name in evaluation.BASELINES
    }
    assert found["uniform"] == 8 * held_out["first"].bytes
    assert found["bigram"] < found["unigram"] < found["uniform"]
    assert min(found["lzma"], found["zlib"]) > 0


def test_a_continuation_is_the_same_for_the_same_seed(run):
    tokenizer = byte_tokenizer.function()

    def write(**settings):
        return evaluation.continuation.function(run, tokenizer, "the ", tokens=12, **settings)

    assert write() == write()
    assert write(temperature=1.0, seed=1) == write(temperature=1.0, seed=1)
    assert len({write(temperature=1.0, seed=seed) for seed in range(4)}) > 1
    whole = write(temperature=1.0, seed=1)
    assert write(temperature=1.0, seed=1, stop=[whole[4:6]]) == whole[: whole.index(whole[4:6])]


def test_a_misspelt_keyword_is_named_with_the_one_that_was_meant(stores):
    with pytest.raises(TypeError) as error:
        train(stores, {}, model=MODEL, optimiser=OPTIMIZER, training=TRAINING)
    message = str(error.value)
    assert "test_train_and_evaluate.py:" in message
    assert "train(...): unexpected argument `optimiser`; did you mean `optimizer`?" in message


def test_a_wrong_type_is_named_with_what_was_expected(stores):
    with pytest.raises(TypeError, match=r"argument `model` is 64 \(a int\); expected TransformerConfig"):
        train(stores, {}, model=64, optimizer=OPTIMIZER, training=TRAINING)
