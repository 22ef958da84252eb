"""Trees of arrays: any dtype and shape comes back, in whole or in part, and a part reads no more than its chunks."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl import Directory, context, digest, evaluate, op
from marin_dsl.array_tree import ArrayTree
from marin_dsl.encoding import LeafMissing, Undecodable, decode, encode
from marin_dsl.store import ContentDamaged, Store
from marin_dsl.testing import same

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "uint64", "bool",
          "complex64", "float8_e4m3fn", "float8_e5m2", "int4"]  # fmt: skip


def filled(shape, dtype="float32"):
    numbers = np.random.default_rng(0).integers(0, 7, size=shape)
    return numbers.astype(getattr(ml_dtypes, dtype) if hasattr(ml_dtypes, dtype) else dtype)


@pytest.fixture(params=["local", "memory", "google", pytest.param("s3", marks=pytest.mark.long)])
def store(request, new_url):
    return Store(new_url(request.param))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (7,), (50, 33), (4, 5, 6)])
def test_an_array_comes_back_as_it_was_written(tmp_path, dtype, shape):
    array = filled(shape, dtype)
    tree = ArrayTree.write(tmp_path / "tree", {"a": array}, chunk_bytes=64)
    assert tree.shape("a") == shape
    assert tree.dtype("a") == array.dtype
    assert same(tree.read("a"), array)


def test_a_nested_tree_is_named_by_its_keys_and_positions(tmp_path):
    blocks = [{"weight": filled((3, 3)), "bias": filled((3,))} for _ in range(2)]
    tree = ArrayTree.write(tmp_path / "tree", {"step": np.int64(5), "blocks": blocks, "pair": (filled(2), filled(3))})
    assert tree.names == (
        "blocks/0/bias", "blocks/0/weight", "blocks/1/bias", "blocks/1/weight", "pair/0", "pair/1", "step"
    )  # fmt: skip
    assert dict(tree.items()).keys() == set(tree.names)
    assert same(tree.read("blocks/1/weight"), blocks[1]["weight"])
    assert tree.read("step") == 5
    assert repr(tree) == f"<ArrayTree 7 arrays, {tree.directory.size} bytes>"


def test_arrays_of_jax_are_arrays(tmp_path):
    import jax.numpy as jnp

    tree = ArrayTree.write(tmp_path / "tree", {"a": jnp.ones((3, 2), jnp.bfloat16)})
    assert same(tree.read("a"), np.ones((3, 2), ml_dtypes.bfloat16))


def test_an_empty_tree_is_a_value(tmp_path):
    tree = ArrayTree.write(tmp_path / "tree", {})
    assert tree.names == ()
    assert decode(encode(tree)) == tree


PARTS = st.tuples(*[
    st.integers(-5, 4) | st.slices(9) | st.builds(slice, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3))
] * 3)  # fmt: skip


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    array = filled((5, 9, 7))
    return array, ArrayTree.write(tmp_path_factory.mktemp("cube") / "tree", {"a": array}, chunk_bytes=100)


@given(parts=PARTS, count=st.integers(0, 3), place=st.none() | st.integers(0, 3))
def test_a_part_is_what_numpy_gives(cube, parts, count, place):
    array, tree = cube
    parts = parts[:count]
    if place is not None and place <= count:
        parts = (*parts[:place], ..., *parts[place:])
    try:
        expected = array[parts]
        backwards = any(isinstance(part, slice) and (part.step or 1) < 0 for part in parts)
    except IndexError:
        expected = None
    if expected is None or backwards:
        with pytest.raises(IndexError):
            tree.read("a", parts)
    else:
        assert same(tree.read("a", parts), np.asarray(expected))


@pytest.mark.parametrize("part", [(0, 0, 0, 0), (..., ...), 5, -6, 1.5, True, "a", None, slice(None, None, -1)])
def test_what_is_no_part_is_said_to_be_none(cube, part):
    message = "is no part of an array of shape|is no index of an axis of length|goes backwards; read it forwards"
    with pytest.raises(IndexError, match=message):
        cube[1].read("a", part)


def test_an_array_that_is_not_there_is_named_with_those_that_are(cube):
    with pytest.raises(KeyError) as caught:
        cube[1].read("b")
    assert caught.value.args == ("no array `b` in the tree; it holds a",)


def test_a_tree_goes_through_a_store(store, tmp_path):
    arrays = {"w": filled((100, 50), "bfloat16"), "zeros": np.zeros((30, 30)), "deep": [{"b": filled(3)}]}
    tree = ArrayTree.write(tmp_path / "tree", arrays, chunk_bytes=1000)
    stored = store.put(tree)
    got = store.get(stored)
    assert got == tree
    assert hash(got) == hash(tree)
    assert digest(got) == digest(tree)
    assert got.names == ("deep/0/b", "w", "zeros")
    for name in got.names:
        assert same(got.read(name), tree.read(name))
    assert same(got.read("w", (slice(3, 20), 5)), arrays["w"][3:20, 5])


def test_a_part_reads_its_chunks_and_no_others(tmp_path):
    store = Store(tmp_path / "store")
    array = filled((40, 10))
    got = store.get(store.put(ArrayTree.write(tmp_path / "tree", {"a": array, "b": array}, chunk_bytes=160)))
    read = []
    files = store.files
    local = files.local
    files.local = lambda path: (read.append(path), local(path))[1]
    assert same(got.read("a", slice(5, 7)), array[5:7])
    assert len(read) == 2  # the description, and of the chunks of 4 rows the one that the part lies in
    read.clear()
    got.read("a", slice(5, 7))
    assert read == []


def test_a_chunk_that_is_damaged_or_gone_is_never_taken_for_zeros(tmp_path):
    store = Store(tmp_path / "store")
    tree = ArrayTree.write(tmp_path / "tree", {"a": filled((40, 10)) + 1}, chunk_bytes=160)
    stored = store.put(tree)
    chunk = tree.directory["a/c/1/0"]
    place = store.files.root / "blobs" / chunk.digest[7:9] / chunk.digest[9:]
    place.write_bytes(bytes(place.stat().st_size))
    with pytest.raises(ContentDamaged):
        store.get(stored).read("a", slice(4, 6))
    with pytest.raises(LeafMissing):
        store.get(stored).read("a", slice(4, 6))
    assert same(store.get(stored).read("a", slice(0, 4)), tree.read("a", slice(0, 4)))


def test_equal_trees_have_equal_digests_wherever_and_in_whatever_order_they_were_written(tmp_path):
    one = ArrayTree.write(tmp_path / "one", {"a": filled((9, 9)), "b": filled(3)}, chunk_bytes=100)
    other = ArrayTree.write(tmp_path / "other", {"b": filled(3), "a": filled((9, 9))}, chunk_bytes=100)
    assert digest(one) == digest(other)
    assert ArrayTree.of(tmp_path / "one") == one
    assert digest(ArrayTree.write(tmp_path / "third", {"a": filled((9, 9)), "b": filled(4)})) != digest(one)


def test_a_written_tree_is_read_where_it_lies_and_makes_no_second_copy(tmp_path, monkeypatch):
    from marin_dsl import array_tree

    monkeypatch.setattr(array_tree, "temporary_folder", None)
    tree = ArrayTree.write(tmp_path / "tree", {"a": filled((9, 9))})
    assert tree.read("a").sum() > 0
    assert ArrayTree.of(tmp_path / "tree").read("a").sum() > 0


def test_the_folder_of_a_tree_is_private_to_its_owner(tmp_path):
    tree = ArrayTree.write(tmp_path / "tree", {"a": filled(3)})
    assert (tmp_path / "tree").stat().st_mode & 0o077 == 0
    store = Store(tmp_path / "store")
    got = store.get(store.put(tree))
    got.read("a")
    assert got._folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(ValueError) as caught:
        ArrayTree.write(tmp_path, {"a": filled(3)})
    assert str(caught.value) == f"{tmp_path} is not empty; a tree of arrays is written into a folder of its own"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "/etc", "c", "zarr.json", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    with pytest.raises(ValueError) as caught:
        ArrayTree.write(tmp_path / "tree", {name: filled(3)})
    assert str(caught.value) == (
        f"{name!r} cannot be a name in a tree of arrays: it must be one of a file, and neither c nor zarr.json"
    )
    assert not (tmp_path / "tree").exists() or list((tmp_path / "tree").iterdir()) == []


def test_what_is_no_array_is_refused_with_its_name(tmp_path):
    with pytest.raises(TypeError) as caught:
        ArrayTree.write(tmp_path / "tree", {"a": {"b": "text"}})
    assert str(caught.value) == (
        "`a/b` of a tree of arrays is a str; it holds arrays in nested dicts, lists and tuples"
    )
    with pytest.raises(TypeError) as caught:
        ArrayTree.write(tmp_path / "other", {"a": np.array(["x"])})
    assert str(caught.value) == "an array of dtype <U1 cannot be in a tree of arrays; pass numbers or booleans"


def test_another_directory_is_no_tree(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_text("x")
    message = "'x' belongs to no array; a tree of arrays holds what `ArrayTree.write` wrote"
    with pytest.raises(ValueError) as caught:
        ArrayTree.of(tmp_path / "d")
    assert str(caught.value) == message
    tree = ArrayTree.write(tmp_path / "tree", {"a": filled(3)})
    tree.directory = Directory.of(tmp_path / "d")
    with pytest.raises(Undecodable, match="belongs to no array"):
        decode(encode(tree))


@op(version="1")
def save(scale: float) -> ArrayTree:
    weights = {"layers": [np.full((64, 64), scale * n, ml_dtypes.bfloat16) for n in range(3)], "step": np.int64(7)}
    return ArrayTree.write(context().scratch / "checkpoint", weights)


@op(version="1")
def first_row(checkpoint: ArrayTree) -> float:
    return float(checkpoint.read("layers/2", 0).astype(np.float32).sum())


def test_a_checkpoint_passes_from_one_operator_to_the_next(tmp_path):
    outcome = evaluate(first_row(save(0.5)), store=tmp_path / "store", debug=True)
    assert outcome.value == 64.0


def test_a_tree_is_read_by_a_process_that_has_not_imported_its_class(tmp_path):
    store = Store(tmp_path / "store")
    stored = store.put(ArrayTree.write(tmp_path / "tree", {"a": filled(3)}))
    program = (
        "import sys, json; from marin_dsl.store import Store, StoredValue; "
        "value = Store(sys.argv[1]).get(StoredValue.from_record(json.loads(sys.argv[2]))); "
        "print('tensorstore' in sys.modules, value.read('a').tolist())"
    )
    import json

    given = [sys.executable, "-c", program, str(tmp_path / "store"), json.dumps(stored.as_record())]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert done.stdout == f"False {filled(3).tolist()}\n"
