import json
import shutil

import attrs
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from small_models import CONFIGS, bias, parameters

from marin_models.interchange import (
    DamagedCheckpoint,
    Inexpressible,
    LeftOut,
    TokenizerFiles,
    export_model,
    exporting,
    import_model,
    read_config,
)


def exported(folder, case, **arguments):
    arguments = {"context_length": 64, "bias": bias(case), **arguments}
    assert export_model(folder, CONFIGS[case], parameters(case), **arguments) == case
    return folder


QUICK = ("qwen3", "glm4_moe")


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in CONFIGS]
)
def test_what_was_exported_is_imported_bit_for_bit(tmp_path, family):
    found = import_model(exported(tmp_path / "model", family))
    assert found.family == family
    assert found.config == CONFIGS[family]
    assert found.parameters.keys() == parameters(family).keys()
    for name, value in parameters(family).items():
        np.testing.assert_array_equal(found.parameters[name], value)
    np.testing.assert_array_equal(found.bias, bias(family))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_bfloat16_rounds_tensors_but_not_the_balancing_bias(tmp_path):
    found = import_model(exported(tmp_path / "model", "glm4_moe", dtype="bfloat16"))
    for name, value in parameters("glm4_moe").items():
        np.testing.assert_array_equal(found.parameters[name], value.astype(ml_dtypes.bfloat16).astype(np.float32))
    np.testing.assert_array_equal(found.bias, bias("glm4_moe"))
    assert json.loads((tmp_path / "model" / "config.json").read_text())["dtype"] == "bfloat16"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("interchange") / "model", "qwen3")


@pytest.fixture
def checkpoint(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


def edit(checkpoint, **changes):
    path = checkpoint / "config.json"
    keys = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in {**keys, **changes}.items() if value is not ...}))


def test_the_convention_of_rotary_positions_is_recorded(original):
    assert json.loads((original / "config.json").read_text())["marin_models"]["rope"] == "split halves"
    with safe_open(original / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt", "rope": "split halves"}


def test_without_the_record_only_what_the_family_says_is_known(checkpoint):
    edit(checkpoint, marin_models=...)
    assert read_config(checkpoint)[1] == attrs.evolve(CONFIGS["qwen3"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rms_norm_eps": 0.5}, r"rms_norm_eps is 0.5, recorded is 1e-05; remove 'marin_models' to go by the others"),
        ({"marin_models": {"rope": "split halves"}}, "is no config of this version .*; remove the key"),
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; marin_models imports qwen3, llama, glm4_moe"),
    ],
)
def test_a_config_that_contradicts_itself_or_is_of_no_family_is_refused(checkpoint, changes, message):
    edit(checkpoint, **changes)
    with pytest.raises(Inexpressible, match=message):
        import_model(checkpoint)


def test_other_pairs_of_rotary_positions_are_refused(checkpoint):
    record = json.loads((checkpoint / "config.json").read_text())["marin_models"]
    edit(checkpoint, marin_models={**record, "rope": "interleaved"})
    with pytest.raises(Inexpressible, match="records rope 'interleaved'; only 'split halves'"):
        import_model(checkpoint)


def retensor(checkpoint, change):
    tensors = load_file(checkpoint / "model.safetensors")
    change(tensors)
    save_file(tensors, checkpoint / "model.safetensors")


def test_missing_and_misshapen_tensors_are_named_together(checkpoint):
    def change(tensors):
        del tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.norm.weight"] = np.ones(3, np.float32)

    retensor(checkpoint, change)
    message = r"(?s)missing: model.layers.1.mlp.up_proj.weight \(24, 16\).*model.norm.weight: \(3,\), expected \(16,\)"
    with pytest.raises(DamagedCheckpoint, match=message):
        import_model(checkpoint)


@pytest.mark.parametrize("number", [np.nan, -np.inf, 1e300])
def test_tensors_whose_numbers_are_not_finite_are_refused_by_name(checkpoint, number):
    def change(tensors):
        tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.float64)
        tensors["model.norm.weight"][:2] = number

    retensor(checkpoint, change)
    with pytest.raises(DamagedCheckpoint, match=r"not finite in fp32, .*:\n  model.norm.weight: 2 of \d+ numbers$"):
        import_model(checkpoint)


def test_tensors_of_other_dtypes_than_a_model_has_are_refused(checkpoint):
    def change(tensors):
        tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.int8)
        tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].astype(np.float16)

    retensor(checkpoint, change)
    with pytest.raises(
        DamagedCheckpoint, match=r"config.json:\n  dtype of model.norm.weight: I8, expected F64, .*quant"
    ):
        import_model(checkpoint)


def test_a_folder_may_be_named_by_a_string(checkpoint):
    assert import_model(str(checkpoint)).config == CONFIGS["qwen3"]


@pytest.mark.parametrize("text", ["[]", "null", "3"])
def test_a_config_that_is_no_object_is_refused(checkpoint, text):
    (checkpoint / "config.json").write_text(text)
    with pytest.raises(DamagedCheckpoint, match=r"config.json holds a JSON \w+, expected an object; give the folder"):
        import_model(checkpoint)


def test_unknown_tensors_are_named(checkpoint):
    retensor(checkpoint, lambda tensors: tensors.update({"model.layers.0.mlp.extra": np.ones(2, np.float32)}))
    with pytest.raises(DamagedCheckpoint, match=r"no place for:\n  unknown: model.layers.0.mlp.extra \(2,\)"):
        import_model(checkpoint)


def with_further_layer(checkpoint, layers):
    """A checkpoint with one layer behind the last, of which config.json says that there are so many."""
    behind = CONFIGS["glm4_moe"].layers
    names = [
        f"model.layers.{behind}.{name}" for name in ("eh_proj.weight", "mlp.gate.weight", "shared_head.norm.weight")
    ]
    retensor(checkpoint, lambda tensors: tensors.update({name: np.ones(2, np.float32) for name in names}))
    path = checkpoint / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_nextn_predict_layers": layers}))
    return tuple(names)


def test_layers_that_predict_further_ahead_are_named_and_left_out(tmp_path):
    checkpoint = exported(tmp_path / "model", "glm4_moe")
    names = with_further_layer(checkpoint, 1)
    with pytest.warns(
        LeftOut, match=r"3 tensors of layers that predict tokens further ahead .*eh_proj.weight and so on"
    ):
        found = import_model(checkpoint)
    assert found.left_out == names
    assert found.config == CONFIGS["glm4_moe"]


def test_layers_that_nothing_announces_are_refused(tmp_path):
    checkpoint = exported(tmp_path / "model", "glm4_moe")
    with_further_layer(checkpoint, 0)
    with pytest.raises(DamagedCheckpoint, match=r"no place for:\n  unknown: model.layers.\d.eh_proj.weight \(2,\)"):
        import_model(checkpoint)


def test_tensors_without_effect_are_passed_over(checkpoint):
    def change(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]  # the head is tied
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)

    retensor(checkpoint, change)
    assert import_model(checkpoint).config == CONFIGS["qwen3"]


def test_a_folder_that_holds_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(DamagedCheckpoint, match=r"config.json cannot be read .*; give the folder of a checkpoint"):
        import_model(tmp_path)


def test_an_export_whose_logits_differ_leaves_nothing_behind(tmp_path, monkeypatch):
    honest = exporting.to_tensors

    def wrong(*arguments, **named):
        return ((name, array * np.float32(1 + 1e-3)) for name, array in honest(*arguments, **named))

    monkeypatch.setattr(exporting, "to_tensors", wrong)
    with pytest.raises(RuntimeError, match=r"logits that differ by .*; nothing was exported"):
        exported(tmp_path / "model", "qwen3")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(FileExistsError, match="model exists; give a folder that does not, or remove it"):
        exported(tmp_path / "model", "qwen3")


@pytest.mark.parametrize(
    ("case", "arguments", "message"),
    [
        ("qwen3", {"family": "gpt2"}, "unknown family 'gpt2'; choose one of qwen3, llama"),
        ("qwen3", {"family": "llama"}, r"(?s)llama cannot express .*qk_norm is 'head'.*window is 4"),
        ("mixtral", {"bias": np.ones((3, 4), np.float32)}, "mixtral has no place for a balancing bias"),
        ("glm4_moe", {"bias": np.ones((3, 4), np.float32)}, r"bias has shape \(3, 4\); expected \(2, 4\)"),
        ("qwen3", {"context_length": 0}, "context_length must be an integer of at least 1, not 0"),
        ("qwen3", {"shard_bytes": -1}, "shard_bytes must be an integer of at least 1, not -1"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path, case, arguments, message):
    with pytest.raises(ValueError, match=message):
        exported(tmp_path / "model", case, **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "dtype"), [(np.nan, "float32"), (np.float32(3.4e38), "bfloat16")])
def test_numbers_that_are_not_finite_are_named(tmp_path, number, dtype):
    broken = {**parameters("qwen3"), "final_norm.scale": np.full(16, number, np.float32)}
    with pytest.raises(
        ValueError, match=f"numbers of final_norm.scale are not finite as {dtype}; a model that has div"
    ):
        export_model(tmp_path / "model", CONFIGS["qwen3"], broken, context_length=64, dtype=dtype)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is no folder; make it, or give model another place"):
        exported(tmp_path / "nowhere" / "model", "qwen3")


def tokenizer_json(size):
    vocabulary = {chr(0x4E00 + n): n for n in range(size)}
    return json.dumps({"model": {"vocab": vocabulary}, "added_tokens": [{"id": size, "content": "<end>"}]})


def test_a_tokenizer_is_written_beside_the_model(tmp_path):
    folder = exported(tmp_path / "model", "qwen3", tokenizer=TokenizerFiles(tokenizer_json(32), 32))
    assert (folder / "tokenizer.json").read_text("utf-8") == tokenizer_json(32)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert (settings["eos_token"], settings["model_max_length"]) == ("<end>", 64)
    for name in ("config.json", "generation_config.json"):
        assert json.loads((folder / name).read_text())["eos_token_id"] == 32


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (TokenizerFiles(tokenizer_json(40), 40), "ids up to 40, the model a vocabulary of 33; give the tokenizer"),
        (TokenizerFiles("no JSON", 3), "the tokenizer is no tokenizer.json .*JSONDecodeError.*; give the contents of"),
        (TokenizerFiles("{}", 3), "the tokenizer is no tokenizer.json .*KeyError: 'model'"),
        (TokenizerFiles('{"model": {"vocab": [["a", 0.0]]}}', 3), "is no tokenizer.json .*with ids under 'model'"),
        (TokenizerFiles(tokenizer_json(32), 3), r"end_of_text 3 is none of the tokenizer's added tokens \(32\)"),
    ],
)
def test_a_tokenizer_that_does_not_fit_the_model_is_refused(tmp_path, files, message):
    with pytest.raises(ValueError, match=message):
        exported(tmp_path / "model", "qwen3", tokenizer=files)
    assert list(tmp_path.iterdir()) == []
