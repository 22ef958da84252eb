"""Rotary positions in config.json: what older and newer `transformers` write, read and written."""

import json
import math

import attrs
import pytest
import their_models
from small_models import CONFIGS, bias, parameters

from marin_models import RotaryScaling
from marin_models.interchange import FAMILIES, Inexpressible, export_model, read_config
from marin_models.interchange.importing import config_from_keys
from marin_models.interchange.record import written_keys

BY_NAME = {family.name: family for family in FAMILIES}

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
PARAMETERS = {
    "linear": ({"rope_type": "linear", "factor": 2}, RotaryScaling("linear", 2.0)),
    "llama3": (LLAMA3, RotaryScaling("llama3", 8.0, original_length=8192)),
    "yarn": (YARN, RotaryScaling("yarn", 4.0, original_length=32768)),
    "yarn, all given": (
        {**YARN, "beta_slow": 2, "beta_fast": 16.0, "attention_factor": 1.5, "truncate": False},
        RotaryScaling(
            "yarn",
            4.0,
            original_length=32768,
            slow_turns=2.0,
            fast_turns=16.0,
            attention_factor=1.5,
            whole_pairs=False,
        ),
    ),
}


def read(case="llama", **changes):
    given = {**their_models.recorded(case)["config"], **changes}
    return config_from_keys(BY_NAME[given["model_type"]], given)


def older(case="llama", **changes):
    return read(case, **{"rope_parameters": None, **changes})


@pytest.mark.parametrize("case", PARAMETERS)
def test_both_spellings_of_a_longer_context_are_understood(case):
    given, scaling = PARAMETERS[case]
    newer = read(rope_parameters={**given, "rope_theta": 5e5})
    assert newer == attrs.evolve(read(), rope_theta=5e5, rotary_scaling=scaling)
    assert older(rope_theta=5e5, rope_scaling=given) == newer
    named = {("type" if key == "rope_type" else key): value for key, value in given.items()}
    assert older(rope_theta=500_000, rope_scaling=named) == newer
    assert read(rope_scaling=named, rope_parameters={**given, "rope_theta": 5e5}) == newer


@pytest.mark.parametrize("case", PARAMETERS)
@pytest.mark.parametrize("family", ["llama", "glm4_moe"])
def test_both_spellings_are_written_and_read_back(family, case):
    config = attrs.evolve(CONFIGS[family], rotary_scaling=PARAMETERS[case][1])
    written = json.loads(json.dumps(written_keys(BY_NAME[family], config)))
    rest = {"rope_theta": 5000.0, **({"partial_rotary_factor": 0.5} if family == "glm4_moe" else {})}
    assert written["rope_parameters"] == {**written["rope_scaling"], **rest}
    assert written["rope_theta"] == 5000.0
    for key in ("rope_scaling", "rope_parameters"):
        found = config_from_keys(BY_NAME[family], {**written, key: None})
        assert (found.rotary_scaling, found.rope_theta) == (config.rotary_scaling, 5000.0)
        assert found.rotary_fraction == config.rotary_fraction


def test_without_a_longer_context_none_is_written():
    written = written_keys(BY_NAME["llama"], CONFIGS["llama"])
    assert written["rope_scaling"] is None
    assert written["rope_parameters"] == {"rope_type": "default", "rope_theta": 5000.0}


def test_a_base_is_found_in_either_place():
    assert older(rope_theta=250.0, rope_scaling=None).rope_theta == 250.0
    assert older().rope_theta == 10000.0
    assert older("glm4_moe", rope_theta=1e6, partial_rotary_factor=0.25).rotary_fraction == 0.25


def test_what_is_left_out_is_what_transformers_assumes():
    short = {key: value for key, value in YARN.items() if key != "original_max_position_embeddings"}
    assert older(rope_scaling=short).rotary_scaling.original_length == 64
    assert older(rope_scaling=short, original_max_position_embeddings=16).rotary_scaling.original_length == 16
    scaled = older(rope_scaling={**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}).rotary_scaling
    assert scaled.amplitude == (1 + math.log(4) / 10) / (1 + math.log(4) / 20)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"rope_type": "dynamic", "factor": 2.0},
            "rope_type is 'dynamic'; marin_models .* 'yarn', whose frequencies do not change with the length",
        ),
        ({"rope_type": "longrope"}, "rope_type is 'longrope'; marin_models expresses only 'default', 'linear'"),
        ({"rope_type": "llama3", "factor": 8.0}, "(?s)'llama3' needs low_freq_factor, which is miss.*high_freq_factor"),
        ({"rope_type": "linear"}, "rope_type 'linear' needs factor, which is missing"),
        ({**YARN, "finetuned": True}, "finetuned is True, which rope_type 'yarn' does not have; remove it"),
        ({"factor": 2.0}, r"factor is 2\.0, which rope_type 'default' does not have"),
        ({**LLAMA3, "low_freq_factor": 5}, r"'llama3' has values that cannot be: .*slow_turns 5\.0 must be below fast"),
        ({"full_attention": {"rope_type": "default"}}, "full_attention is .*, which rope_type 'default' does not have"),
    ],
)
def test_rotary_positions_that_cannot_be_expressed_are_refused_by_name(parameters, message):
    with pytest.raises(Inexpressible, match=message):
        read(rope_parameters=parameters)
    with pytest.raises(Inexpressible, match=message):
        older(rope_scaling=parameters)


def test_spellings_that_contradict_each_other_are_refused():
    with pytest.raises(Inexpressible, match=r"rope_scaling is .*'yarn'.* and rope_parameters are .*remove one of them"):
        read(rope_scaling=YARN)


def test_a_model_with_a_longer_context_is_exported_and_recorded(tmp_path):
    config = attrs.evolve(CONFIGS["llama"], rotary_scaling=RotaryScaling("yarn", 4.0, original_length=8))
    export_model(tmp_path / "model", config, parameters("llama"), context_length=32, bias=bias("llama"))
    assert read_config(tmp_path / "model")[1] == config
    path = tmp_path / "model" / "config.json"
    keys = json.loads(path.read_text())
    del keys["marin_models"]["config"]["rotary_scaling"]  # as before there was any
    path.write_text(json.dumps(keys))
    with pytest.raises(Inexpressible, match=r"rope_scaling is .*'yarn'.*recorded is None; rope_parameters"):
        read_config(tmp_path / "model")
    path.write_text(json.dumps({**keys, "rope_scaling": None, "rope_parameters": None}))
    assert read_config(tmp_path / "model")[1] == CONFIGS["llama"]
