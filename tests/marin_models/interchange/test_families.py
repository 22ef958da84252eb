"""What families call things, checked against what `transformers` wrote (tests that run it: test_transformers_agree)."""

import re

import attrs
import pytest
import their_models
from small_models import CONFIGS, DENSE, SIGMOID, SOFTMAX

from marin_models.interchange import FAMILIES, Inexpressible
from marin_models.interchange.family import fitting
from marin_models.interchange.importing import config_from_keys
from marin_models.interchange.record import written_keys
from marin_models.interchange.tensors import pieces

BY_NAME = {family.name: family for family in FAMILIES}


def family_of(case):
    return BY_NAME[their_models.recorded(case)["config"]["model_type"]]


@pytest.mark.parametrize("case", their_models.CASES)
def test_the_tensors_of_a_config_are_those_that_transformers_writes(case):
    recorded, family = their_models.recorded(case), family_of(case)
    config = config_from_keys(family, recorded["config"])
    assert {piece.tensor: list(piece.tensor_shape) for piece in pieces(family, config)} == recorded["tensors"]


@pytest.mark.parametrize("case", their_models.CASES)
def test_the_keys_of_a_config_are_those_that_it_was_read_from(case):
    given, family = their_models.recorded(case)["config"], family_of(case)
    given["rope_parameters"].pop("type", None)  # which stands beside rope_type where a config was made with it
    written = written_keys(family, config_from_keys(family, given))
    renamed = {"num_experts": "num_local_experts"} if family.name == "qwen3_moe" else {}
    same = {key: value for key, value in written.items() if renamed.get(key, key) in given}
    different = {key: (value, given[renamed.get(key, key)]) for key, value in same.items()}
    allowed = {"head_dim", "num_nextn_predict_layers", "max_window_layers", "sliding_window"}
    assert {key for key, (ours, theirs) in different.items() if ours != theirs} <= allowed


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_config_is_read_as_it_was_written(family):
    config = CONFIGS[family.name]
    found = config_from_keys(family, written_keys(family, config))
    assert found.windows == config.windows
    unsaid = {"local_to_global": config.local_to_global}
    if found.mixture is not None and not config.dense_layers:
        unsaid["feed_forward"] = config.feed_forward
    assert attrs.evolve(found, **unsaid) == config


def test_the_first_family_that_can_express_a_config_is_taken():
    assert {name: fitting(FAMILIES, config).name for name, config in CONFIGS.items()} == {
        name: name for name in CONFIGS
    }


def changed(case, **changes):
    return {**their_models.recorded(case)["config"], **changes}


@pytest.mark.parametrize(
    ("case", "changes", "message"),
    [
        ("qwen3", {"hidden_act": "gelu"}, "hidden_act is 'gelu'; marin_models expresses only 'silu'"),
        ("qwen3", {"attention_bias": True}, "attention_bias is True; marin_models expresses only False"),
        ("qwen3", {"head_dim": None}, "head_dim is missing"),
        ("llama", {"mlp_bias": True}, "mlp_bias is True; marin_models expresses only False"),
        ("llama", {"vocab_size": None}, "vocab_size is missing"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantization_config is .*expresses only None"),
        ("llama", {"soft_cap": 30}, r"soft_cap is 30, and marin_models does not know .*ignore=\['soft_cap'\]"),
        ("llama", {"num_attention_heads": 3}, "cannot be imported: .* 3 heads cannot share 2 key_value_heads"),
        ("qwen3-windows", {"layer_types": ["full_attention", *["sliding_attention"] * 2]}, "layer_types is .*repeated"),
        ("qwen3_moe", {"mlp_only_layers": [2]}, r"mlp_only_layers is \[2\]; marin_models expresses only the first"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step is 2; marin_models expresses only 1"),
        ("olmoe", {"clip_qkv": 8.0}, r"clip_qkv is 8\.0; marin_models expresses only None"),
        ("glm4_moe", {"n_group": 2}, "n_group is 2; marin_models expresses only 1"),
        (
            "llama",
            {"hidden_size": "16"},
            "hidden_size is '16'; marin_models expresses only integers from 1 to 16777216",
        ),
        ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; .* only integers from 1 to 4096"),
        ("llama", {"tie_word_embeddings": 1}, "tied_head must be one of False, True, not 1"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear", "factor": "2"}},
            "values that cannot be: RotaryScaling: factor must be a fin",
        ),
        ("qwen3_moe", {"mlp_only_layers": 2}, "a value in it has another type than qwen3_moe has there .*; mend it"),
    ],
)
def test_a_key_that_cannot_be_expressed_is_refused_by_name(case, changes, message):
    with pytest.raises(Inexpressible, match=message):
        config_from_keys(family_of(case), changed(case, **changes))


def test_all_keys_that_cannot_be_expressed_are_named_at_once():
    with pytest.raises(Inexpressible, match=r"(?s)hidden_act is 'relu'.*mlp_bias is True"):
        config_from_keys(BY_NAME["llama"], changed("llama", hidden_act="relu", mlp_bias=True))


def test_a_key_that_is_known_to_have_no_effect_may_be_ignored():
    given = changed("llama", comment="hello")
    assert config_from_keys(BY_NAME["llama"], given, ignore=["comment"]).width == 16


def problems(family, **changes):
    return "\n".join(BY_NAME[family].problems(attrs.evolve(CONFIGS[family], **changes)))


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("qwen3", {"attention_gate": True}, "attention_gate is True; qwen3 expresses only False"),
        ("qwen3", {"norm_gate": 4}, "norm_gate is 4; qwen3 expresses only 0"),
        ("qwen3", {"mixture": SOFTMAX}, "mixture is Mixture.*; qwen3 expresses only None"),
        ("llama", {"window": 8}, "window is 8; llama expresses only None"),
        ("llama", {"qk_norm": "head"}, "qk_norm is 'head'; llama expresses only 'none'"),
        ("llama", {"width": 18, "head_size": 4}, "width is 18 with 4 heads"),
        ("qwen3_moe", {"mixture": None, "dense_layers": 0}, "mixture is None; qwen3_moe has routed experts"),
        ("qwen3_moe", {"mixture": SIGMOID}, "mixture.scoring is 'sigmoid'; qwen3_moe expresses only 'softmax'"),
        (
            "qwen3_moe",
            {"window": 4, "local_to_global": (1, 1)},
            r"local_to_global is \(1, 1\) with window 4; here either all layers",
        ),
        ("mixtral", {"mixture": attrs.evolve(SOFTMAX, balancing="sign")}, "balancing is 'sign'.*'none' or 'auxiliary'"),
        ("olmoe", {"head_size": 6}, "head_size is 6; here 4 of them must make up the width, 16"),
        ("glm4_moe", {"mixture": attrs.evolve(SIGMOID, shared_inner=15)}, "shared_inner is 15; .* multiple of .* 12"),
        ("glm4_moe", {"mixture": attrs.evolve(SIGMOID, latent=8)}, "mixture.latent is 8; glm4_moe expresses only 0"),
        ("mixtral", {"mixture": attrs.evolve(SOFTMAX, latent=8)}, "mixture.latent is 8; mixtral expresses only 0"),
        ("glm4_moe", {"mixture": attrs.evolve(SIGMOID, balance_on="logits")}, "balance_on is 'logits'.*'scores'"),
    ],
)
def test_what_a_family_cannot_express_is_named(family, changes, message):
    assert re.search(message, problems(family, **changes))


def test_every_family_says_what_is_in_its_way():
    with pytest.raises(Inexpressible) as caught:
        fitting(FAMILIES, attrs.evolve(DENSE, attention_gate=True))
    assert "no Hugging Face family expresses this TransformerConfig" in str(caught.value)
    assert all(f"\n  {family.name}: " in str(caught.value) for family in FAMILIES)


def test_no_family_has_experts_in_a_latent_space():
    for mixture in (SIGMOID, SOFTMAX):
        with pytest.raises(Inexpressible) as caught:
            fitting(FAMILIES, attrs.evolve(DENSE, mixture=attrs.evolve(mixture, latent=4)))
        for family in FAMILIES:
            assert f"mixture.latent is 4; {family.name} expresses only 0" in str(caught.value)
