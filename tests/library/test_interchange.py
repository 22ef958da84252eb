import os

import attrs
import jax
import numpy as np
import pytest
import tokenizers as hugging_face
from hypothesis import given
from hypothesis import strategies as st

from library.interchange import Model, export_checkpoint, import_checkpoint, tokenizer_json
from library.tokenizers import byte_tokenizer, train_bpe
from library.training import Run
from marin_dsl import Failed, Ok, evaluate, op
from marin_models import MixtureOfExpertsConfig, Stops, TransformerConfig, flatten, generate_batch
from marin_models.interchange import TokenizerFiles, export_model
from marin_models.parameters import abstract_model


@pytest.fixture(scope="module")
def tokenizers(corpus_of, prose):
    return [byte_tokenizer.function(), train_bpe.function([corpus_of(prose)], vocabulary=300)]


@given(st.text().filter(lambda text: "<|endoftext|>" not in text))
def test_the_exported_tokenizer_gives_the_same_ids(tokenizers, text):
    for tokenizer in tokenizers:
        exported = hugging_face.Tokenizer.from_str(tokenizer_json(tokenizer))
        assert exported.encode(text).ids == tokenizer.encode(text).tolist()
        assert exported.decode(tokenizer.encode(text).tolist()) == text


def test_the_end_of_a_document_is_the_last_id_of_the_exported_tokenizer(tokenizers):
    for tokenizer in tokenizers:
        exported = hugging_face.Tokenizer.from_str(tokenizer_json(tokenizer))
        assert exported.encode("a<|endoftext|>").ids[-1] == tokenizer.end_of_document
        assert exported.get_vocab_size() == tokenizer.vocabulary


SHAPE = TransformerConfig(vocabulary=257, width=16, layers=1, heads=2, key_value_heads=1, feed_forward=16)


def random_parameters(config, scale=0.25):
    random = np.random.default_rng(3)
    model = jax.tree.map(lambda leaf: scale * random.standard_normal(leaf.shape, np.float32), abstract_model(config))
    return flatten(model)


@op
def untrained(*, gate: bool = False) -> Model:
    config = attrs.evolve(SHAPE, attention_gate=gate)
    return Model("none", config, random_parameters(config), None)


def test_a_checkpoint_is_a_directory_that_is_imported_again(tmp_path):
    checkpoint = export_checkpoint(untrained(), byte_tokenizer(), context_length=32, shard_bytes=20_000)
    exported, imported = evaluate(checkpoint, import_checkpoint(checkpoint), store=str(tmp_path), debug=True)
    assert isinstance(exported, Ok)
    assert isinstance(imported, Ok)
    names = set(exported.value.files)
    assert {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} < names
    assert len([name for name in names if name.endswith(".safetensors")]) > 1
    assert imported.value.family == "qwen3"
    assert imported.value.config == SHAPE
    for name, value in untrained.function().parameters.items():
        np.testing.assert_array_equal(imported.value.parameters[name], value)


def test_the_balancing_bias_of_a_run_is_exported_with_it():
    mixture = MixtureOfExpertsConfig(experts=3, top_k=1, inner=8, shared_inner=8)
    config = attrs.evolve(SHAPE, mixture=mixture, rotary_fraction=0.5)
    nothing, bias = np.zeros(0), np.array([[0.5, 0.0, -0.5]], np.float32)
    run = Run(
        model=config,
        parameters=random_parameters(config),
        router_bias=bias,
        step=nothing,
        tokens=nothing,
        loss=nothing,
        gradient_norm=nothing,
        skipped=nothing,
        attention_peak=None,
        evaluated=nothing,
        held_out_loss={},
        held_out_bits={},
        source_tokens={},
        flops=0.0,
    )
    checkpoint = export_checkpoint.function(run, byte_tokenizer.function(), context_length=32)
    imported = import_checkpoint.function(checkpoint)
    assert (imported.family, imported.config) == ("glm4_moe", config)
    np.testing.assert_array_equal(imported.router_bias, bias)


def test_a_model_that_no_family_expresses_fails_with_the_reasons(tmp_path):
    checkpoint = export_checkpoint(untrained(gate=True), byte_tokenizer(), context_length=32)
    outcome = evaluate(checkpoint, store=str(tmp_path), debug=True)
    assert isinstance(outcome, Failed)
    assert "attention_gate is True; qwen3 expresses only False" in str(outcome)


@pytest.mark.interop
@pytest.mark.long
def test_transformers_loads_the_tokenizer_and_continues_as_we_do(tokenizers, tmp_path):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    for number, tokenizer in enumerate(tokenizers):
        config = attrs.evolve(SHAPE, vocabulary=tokenizer.vocabulary)
        parameters = random_parameters(config, scale=1)
        folder = tmp_path / str(number)
        files = TokenizerFiles(tokenizer_json(tokenizer), tokenizer.end_of_document)
        export_model(folder, config, parameters, context_length=64, tokenizer=files)
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        text = "the state  of\nthe union: naïve 👩‍👧"
        ids = tokenizer.encode(text).tolist()
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids
        assert theirs.decode(ids) == text
        assert theirs.eos_token_id == tokenizer.end_of_document
        theirs_model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        prompt = theirs(text, add_special_tokens=False, return_tensors="pt")
        written = theirs_model.generate(**prompt, do_sample=False, max_new_tokens=12, pad_token_id=0)[0].tolist()
        stops = Stops(sequences=[[tokenizer.end_of_document]])
        [ours] = generate_batch(config, parameters, [ids], 12, stops=stops)
        assert written == ids + ours.tokens.tolist()
