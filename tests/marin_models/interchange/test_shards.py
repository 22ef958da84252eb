import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from marin_models.interchange import DamagedCheckpoint
from marin_models.interchange.shards import INDEX, WHOLE, Shards, write_shards


def write(folder, arrays, shard_bytes):
    write_shards(folder, arrays.items(), shard_bytes=shard_bytes, metadata={"format": "pt"})


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(1, 200))
def test_arrays_come_back_from_files_of_bounded_size(tmp_path_factory, sizes, shard_bytes):
    folder = tmp_path_factory.mktemp("shards")
    arrays = {f"array.{n}": np.arange(size, dtype=np.float32) for n, size in enumerate(sizes)}
    write(folder, arrays, shard_bytes)
    with Shards(folder) as shards:
        assert shards.names() == set(arrays)
        for name, array in arrays.items():
            assert shards.shape(name) == array.shape
            np.testing.assert_array_equal(shards.read(name), array)
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    if files == [WHOLE]:
        assert not (folder / INDEX).exists()
        assert len(arrays) == 1 or sum(array.nbytes for array in arrays.values()) <= shard_bytes
    else:
        index = json.loads((folder / INDEX).read_text())
        assert index["metadata"]["total_size"] == 4 * sum(sizes)
        for file in files:
            held = [4 * sizes[int(name.split(".")[1])] for name, where in index["weight_map"].items() if where == file]
            assert sum(held) <= shard_bytes or len([size for size in held if size]) == 1


@pytest.fixture
def sharded(tmp_path):
    write(tmp_path, {"a": np.ones(4, np.float32), "b": np.ones(4, np.float32)}, 16)
    assert (tmp_path / "model-00002-of-00002.safetensors").exists()
    return tmp_path


def refused(folder, message):
    with pytest.raises(DamagedCheckpoint, match=message), Shards(folder):
        pass


def test_a_missing_file_is_named(sharded):
    (sharded / "model-00002-of-00002.safetensors").unlink()
    refused(sharded, "model-00002-of-00002.safetensors cannot be read .*; fetch it again")


def test_a_file_that_was_cut_short_is_named(sharded):
    path = sharded / "model-00001-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    refused(sharded, "model-00001-of-00002.safetensors cannot be read")


def test_a_tensor_that_is_not_where_the_index_says_is_named(sharded):
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["c"] = "model-00001-of-00002.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    refused(sharded, "model-00001-of-00002.safetensors does not hold c, but model.safetensors.index.json says so")


def test_a_folder_without_tensors_is_refused(tmp_path):
    refused(tmp_path, "holds neither model.safetensors nor model.safetensors.index.json")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ("{}", "KeyError: 'weight_map'"),
        ('{"weight_map": ["a"]}', "AttributeError"),
        ('{"weight_map": {"a": 3}}', "3 is no name of a file"),
        ('{"weight_map": {"a": "../other/model.safetensors"}}', "'../other/model.safetensors' is no name of a file"),
    ],
)
def test_an_index_that_does_not_name_files_of_the_folder_is_refused(sharded, text, reason):
    (sharded / INDEX).write_text(text)
    refused(sharded, f"model.safetensors.index.json does not name a file of .*{reason}.*; fetch it again")


def test_a_tensor_that_the_index_does_not_name_is_seen_all_the_same(sharded):
    index = json.loads((sharded / INDEX).read_text())
    del index["weight_map"]["a"]
    index["weight_map"]["b"] = "model-00002-of-00002.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    save_file(
        {"b": np.full(4, 2, np.float32), "hidden": np.ones(1, np.float32)}, sharded / "model-00002-of-00002.safetensors"
    )
    with Shards(sharded) as shards:
        assert shards.names() == {"b", "hidden"}
        assert shards.read("b")[0] == 2
