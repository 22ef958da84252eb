"""Arrays as values: content and dtype, never layout; large ones are referred to, not copied."""

import contextlib
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_dsl.encoding import Undecodable, Unencodable, decode, encode, encode_with_leaves, leaves_of
from marin_dsl.encoding.arrays import LazyArray
from marin_dsl.testing import arrays, same, values

ML_DTYPES = [name for name in vars(ml_dtypes) if isinstance(getattr(ml_dtypes, name), type) and name[1] != "o"]
ML_DTYPES = [name for name in ML_DTYPES if issubclass(getattr(ml_dtypes, name), np.generic)]


def read_back(value):
    encoded = encode_with_leaves(value)
    return decode(encoded.data, read_leaf=lambda digest, size: b"".join(encoded.leaves[digest].chunks()))


@given(arrays(), st.sampled_from("CFA"))
def test_order_in_memory_is_no_part_of_an_array(array, order):
    assert encode(array.copy(order)) == encode(array)


@given(arrays())
def test_byte_order_is_no_part_of_an_array_for_pickling_changes_it(array):
    assert encode(array.astype(array.dtype.newbyteorder(">"))) == encode(array)
    assert encode(array.astype(array.dtype.newbyteorder("<"))) == encode(array)


@given(arrays())
def test_a_decoded_array_is_read_only_and_plain(array):
    back = read_back(array)
    assert type(back) is np.ndarray
    assert not back.flags.writeable
    assert back.flags.c_contiguous
    with pytest.raises(ValueError, match="WRITEABLE"):
        back.flags.writeable = True


@pytest.mark.parametrize("name", ML_DTYPES)
def test_every_dtype_of_ml_dtypes_comes_back(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    array = np.zeros((2, 3), dtype)
    array[0] = [1, 0, 1]
    assert same(read_back(array), array)
    assert same(read_back(array[0, 0]), array[0, 0])
    assert read_back(array).dtype == dtype


def test_all_dtypes_of_ml_dtypes_differ_and_differ_from_numpys():
    names = {encode(np.ones(1, getattr(ml_dtypes, name))) for name in ML_DTYPES}
    plain = {encode(np.ones(1, code)) for code in ("f2", "u1", "i1", "f4")}
    assert len(names | plain) == len(ML_DTYPES) + 4
    assert len(ML_DTYPES) >= 10


def test_a_jax_array_is_the_numpy_array_of_its_content():
    import jax
    import jax.numpy as jnp

    for array in (jnp.arange(6).reshape(2, 3), jnp.ones(3, jnp.bfloat16), jnp.float32(2), jax.random.PRNGKey(0)):
        assert encode(array) == encode(np.asarray(array))
        assert same(read_back(array), np.asarray(array))


def test_a_large_jax_array_on_the_cpu_is_not_copied():
    import jax.numpy as jnp

    array = jnp.zeros(4_000_000).block_until_ready()
    assert _peak(lambda: encode_with_leaves(array)) < 1_000_000


def test_a_large_array_is_referred_to_and_never_copied():
    array = np.zeros(64 * 1024 * 1024 // 8)
    views = {"all": array, "part": array[1000:], "shaped": array.reshape(1024, -1), "bytes": array.view(np.uint8)}
    held = []
    assert _peak(lambda: held.append(encode_with_leaves(views))) < 1_000_000
    (encoded,) = held
    assert _peak(lambda: [len(piece) for leaf in encoded.leaves.values() for piece in leaf.chunks()]) < 1_000_000
    assert sum(leaf.size for leaf in encoded.leaves.values()) > 100_000_000
    assert len(encoded.data) < 1000


def test_large_bytes_are_not_copied_either():
    data = bytes(64 * 1024 * 1024)
    assert _peak(lambda: encode_with_leaves([data, data])) < 1_000_000


def test_a_mapped_file_is_read_without_being_loaded(tmp_path):
    array = np.arange(1_000_000.0)
    encoded = encode_with_leaves(array)
    (leaf,) = encoded.leaves.values()
    place = tmp_path / "leaf"
    place.write_bytes(b"".join(leaf.chunks()))
    held = []
    assert _peak(lambda: held.append(decode(encoded.data, read_leaf=lambda digest, size: place))) < 1_000_000
    assert same(held[0], array)


@pytest.mark.parametrize("array", [np.arange(1_000_000.0), np.arange(1_000_000.0).reshape(1000, 1000)])
def test_a_large_array_is_encoded_without_a_second_copy(array):
    encode_with_leaves(np.zeros(1))  # what is imported at the first array is no copy of it
    assert _peak(lambda: encode_with_leaves(array)) < array.nbytes / 100


def _peak(action):
    """Bytes that an action allocates at most (NumPy reports what it allocates too)."""
    tracemalloc.start()
    action()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_lazily_read_array_says_what_it_is_and_encodes_as_itself():
    encoded = encode_with_leaves({"w": np.zeros((300, 400), np.float32), "small": np.ones(2)})
    lazy = decode(encoded.data, lazy=True)
    assert isinstance(lazy["w"], LazyArray)
    assert (lazy["w"].dtype, lazy["w"].shape) == ("<f4", [300, 400])
    assert same(lazy["small"], np.ones(2))
    again = encode_with_leaves(lazy)
    assert again.data == encoded.data
    assert set(again.leaves) == set(encoded.leaves)


@pytest.mark.parametrize("size", [65535, 65536])
def test_an_array_is_a_leaf_from_64_kib_on(size):
    assert len(encode_with_leaves(np.zeros(size, np.uint8)).leaves) == (size >= 64 * 1024)


def test_two_equal_large_arrays_are_one_leaf():
    encoded = encode_with_leaves([np.zeros(10_000), np.zeros(10_000), np.zeros((100, 100))])
    assert len(encoded.leaves) == 1


def test_a_text_array_of_no_width_comes_back():
    array = np.zeros(3, np.dtype([("a", "U0"), ("b", "i4")]))["a"]
    assert array.dtype.itemsize == 0
    assert read_back(array).tolist() == ["", "", ""]


def test_text_scalars_keep_their_final_nuls():
    for scalar in (np.str_("a\0\0"), np.bytes_(b"a\0\0"), np.str_("\ud800")):
        back = read_back(scalar)
        assert type(back) is type(scalar)
        assert len(back) == len(scalar)
        assert list(back) == list(scalar)


REFUSED = {
    "object array": (
        lambda: np.array([None]),
        (
            "an array of dtype object has no encoding; pass numbers, booleans, times or fixed-width text, and records "
            "as a dict of arrays"
        ),
    ),
    "structured array": (
        lambda: np.zeros(2, "i4,i4"),
        (
            "an array of dtype [('f0', '<i4'), ('f1', '<i4')] has no encoding; pass numbers, booleans, times or "
            "fixed-width text, and records as a dict of arrays"
        ),
    ),
    "void array": (lambda: np.zeros(2, "V4"), "an array of raw void bytes has no encoding; view it as uint8"),
    "void scalar": (lambda: np.zeros(2, "V4")[0], "an array of raw void bytes has no encoding; view it as uint8"),
    "long double": (
        lambda: np.ones(1, np.longdouble),
        f"dtype {np.dtype(np.longdouble)} differs from machine to machine; convert it to float64 or complex128",
    ),
    "long double scalar": (
        lambda: np.clongdouble(1),
        f"dtype {np.dtype(np.clongdouble)} differs from machine to machine; convert it to float64 or complex128",
    ),
    "masked array": (
        lambda: np.ma.array([1], mask=[True]),
        "a masked array has no encoding; pass the data and the mask as two arrays",
    ),
    "matrix": (
        lambda: np.matrix([1]),
        "a numpy.matrix would come back as a plain array; pass numpy.asarray(...) of it",
    ),
    "dtype": (lambda: np.dtype("f4"), "a Float32DType of NumPy is no array; pass an array, or the name as text"),
    "generator": (
        lambda: np.random.default_rng(0),
        "a Generator of NumPy is no array; pass an array, or the name as text",
    ),
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_has_no_exact_way_back_is_refused_with_advice(kind):
    make, message = REFUSED[kind]
    with pytest.raises(Unencodable) as caught:
        encode({"deep": [1, make()]})
    assert str(caught.value) == f"at `['deep'][1]`: {message}"


def test_a_random_key_of_jax_is_refused_with_the_way_out():
    import jax

    with pytest.raises(Unencodable, match=r"cannot become a NumPy array .* `jax.random.key_data\(key\)`$"):
        encode(jax.random.key(0))


def test_a_traced_array_of_jax_is_refused():
    import jax

    with pytest.raises(
        Unencodable, match=r"DynamicJaxprTracer cannot become a NumPy array .*; pass numbers that are at"
    ):
        jax.jit(lambda x: encode(x))(1.0)


def test_a_users_own_array_class_is_refused():
    class Units(np.ndarray):
        pass

    with pytest.raises(Unencodable, match=r"Units has no encoding; pass numpy.asarray\(...\) of it$"):
        encode(np.zeros(2).view(Units))


def test_an_array_read_from_a_buffer_that_can_be_written_is_read_only():
    content = bytearray(np.arange(20_000.0).tobytes())
    back = decode(encode(np.arange(20_000.0)), read_leaf=lambda digest, size: memoryview(content))
    with pytest.raises(ValueError, match="read-only"):
        back[0] = 1


@given(values())
def test_the_leaves_of_a_value_are_found_without_reading_or_building_anything(value):
    large = {"a": [np.arange(10_000.0), ("x" * 70_000, b"y" * 70_000)], (1, "key"): value}
    encoded = encode_with_leaves(large)
    assert leaves_of(encoded.data) == {leaf.digest: leaf.size for leaf in encoded.leaves.values()}
    assert leaves_of(encode(value)) == {leaf.digest: leaf.size for leaf in encode_with_leaves(value).leaves.values()}


@given(st.binary(max_size=60))
def test_the_leaves_of_bytes_that_are_no_value_are_none_or_refused(data):
    with contextlib.suppress(Undecodable):
        assert isinstance(leaves_of(data), dict)


def test_bytes_that_are_no_value_are_refused_when_their_leaves_are_asked_for():
    with pytest.raises(Undecodable, match=r"^these 1 bytes are no encoded value: they end after 1 bytes"):
        leaves_of(b"\x82")
