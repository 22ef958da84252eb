"""Logits equal those of `transformers` on CPU in fp32, for models made on either side."""

import os

import jax
import numpy as np
import pytest
from small_models import CONFIGS, bias, parameters

from marin_models import unflatten
from marin_models.interchange import export_model, import_model

pytestmark = [pytest.mark.interop, pytest.mark.long]

os.environ["HF_HUB_OFFLINE"] = "1"

COMMON = {
    "vocab_size": 33,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "bos_token_id": 32,
    "eos_token_id": 32,
}
THEIRS = {
    "qwen3": {"head_dim": 6},
    "qwen3 with windows": {
        "head_dim": 6,
        "use_sliding_window": True,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "tie_word_embeddings": True,
    },
    "llama": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
}
TOKENS = np.random.default_rng(0).integers(0, 33, (2, 13)).astype(np.int32)


@jax.jit
def our_logits(model, tokens):
    return model(tokens)


def their_logits(model):
    import torch

    with torch.no_grad():
        return model.eval()(torch.tensor(TOKENS.astype(np.int64))).logits.float().numpy()


def assert_equal_logits(ours, theirs):
    assert np.abs(theirs).max() > 0.3  # not merely both near zero
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


def loaded(folder):
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model


def randomized(model):
    """Norms, biases and small matrices away from their initial values."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point() and tensor.numel() != len(rotary_frequencies(model)):
                tensor.add_(0.3 * torch.randn(tensor.shape, generator=generator))
    return model


def rotary_frequencies(model):
    return model.model.rotary_emb.inv_freq


@pytest.mark.parametrize("case", THEIRS)
def test_a_model_of_theirs_gives_the_same_logits_here(tmp_path, case):
    import transformers

    family = case.split()[0]
    config = transformers.AutoConfig.for_model(family, **COMMON, **THEIRS[case])
    model = randomized(transformers.AutoModelForCausalLM.from_config(config))
    model.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    found = import_model(tmp_path / "model")
    assert found.family == family
    assert_equal_logits(our_logits(unflatten(found.config, found.parameters), TOKENS), their_logits(model))


@pytest.mark.parametrize("family", CONFIGS)
def test_a_model_of_ours_gives_the_same_logits_there(tmp_path, family):
    ours = our_logits(unflatten(CONFIGS[family], parameters(family)), TOKENS)
    export_model(
        tmp_path / "model",
        CONFIGS[family],
        parameters(family),
        bias=bias(family),
        context_length=64,
        shard_bytes=20_000,
    )
    assert_equal_logits(ours, their_logits(loaded(tmp_path / "model")))
