"""Logits equal those of `transformers` on CPU in fp32, for models made on either side."""

import os

import jax
import numpy as np
import pytest
import their_models
from small_models import ALL, bias, parameters

from marin_models import unflatten
from marin_models.interchange import export_model, import_model

pytestmark = [pytest.mark.interop, pytest.mark.long]

os.environ["HF_HUB_OFFLINE"] = "1"

TOKENS = np.random.default_rng(0).integers(0, 33, (2, 50)).astype(np.int32)  # beyond a context of 32 before extension


@jax.jit
def forward(model, tokens, bias):
    return model(tokens, bias=bias)


def our_logits(config, parameters, bias):
    return forward(unflatten(config, parameters), TOKENS, bias)


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


@pytest.mark.parametrize("case", their_models.CASES)
def test_a_model_of_theirs_gives_the_same_logits_here(tmp_path, case):
    model = their_models.model(case)
    model.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    found = import_model(tmp_path / "model")
    assert found.family == case.split("-")[0]
    assert_equal_logits(our_logits(found.config, found.parameters, found.bias), their_logits(model))
    written, recorded = their_models.without_numbers(tmp_path / "model"), their_models.recorded(case)
    written["config"].pop("transformers_version")
    assert written == recorded, "transformers writes other checkpoints than those that the quick tests know"


@pytest.mark.parametrize("case", ALL)
def test_a_model_of_ours_gives_the_same_logits_there(tmp_path, case):
    ours = our_logits(ALL[case], parameters(case), bias(case))
    export_model(
        tmp_path / "model",
        ALL[case],
        parameters(case),
        bias=bias(case),
        context_length=64,
        shard_bytes=20_000,
    )
    assert_equal_logits(ours, their_logits(loaded(tmp_path / "model")))
