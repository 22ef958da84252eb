"""Arrays: dtype, shape and C-order bytes; large ones as leaves, read back lazily."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_dsl.encoding.leaves import Leaf
from marin_dsl.encoding.registry import Unencodable

if TYPE_CHECKING:
    from marin_dsl.encoding.writer import Encoder

_PLAIN = re.compile(r"[<|][biufcSUMm]\d*(\[\w+\])?")
_TEXT_SCALARS = {"U": np.str_, "S": np.bytes_}


def write_array(encoder: Encoder, value: Any) -> None:
    """Write an array or a scalar of NumPy, JAX or ml_dtypes.

    A JAX array is written as the NumPy array of the same content. Layout is no part of a value: axes are written in C
    order, numbers in little-endian order.
    """
    if isinstance(value, np.generic):
        encoder.write_tagged("NUMPY_SCALAR", *_scalar_parts(value))
        return
    if isinstance(value, np.dtype) or not hasattr(value, "__array__"):
        raise Unencodable(f"a {type(value).__name__} of NumPy is no array; pass an array, or the name as text")
    if isinstance(value, np.ma.MaskedArray):
        raise Unencodable("a masked array has no encoding; pass the data and the mask as two arrays")
    if isinstance(value, np.ndarray) and type(value) not in (np.ndarray, np.memmap):
        raise Unencodable(
            f"a numpy.{type(value).__name__} would come back as a plain array; pass numpy.asarray(...) of it"
        )
    array = _contiguous(value)
    shape = list(np.shape(value))  # ascontiguousarray makes a scalar array one-dimensional
    encoder.out.append(_head())
    encoder.write(_dtype_name(array.dtype))
    encoder.write(shape)
    encoder.write_content(array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b""))


def _contiguous(value: Any) -> np.ndarray[Any, Any]:
    try:
        array = np.ascontiguousarray(value)
        # The order of bytes is layout, as the order of axes in memory is: pickling changes it, machines differ in it.
        return array.astype(array.dtype.newbyteorder("<")) if array.dtype.str[0] == ">" else array
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise Unencodable(
            f"a {type(value).__module__}.{type(value).__name__} cannot become a NumPy array ({reason}); pass numbers "
            "that are at hand, and of a random key `jax.random.key_data(key)`"
        ) from None


def _scalar_parts(value: np.generic) -> tuple[str, bytes]:
    # Text goes by itself: as an array it would lose the NULs at its end.
    if isinstance(value, np.str_):
        return "U", value.encode("utf-8", "surrogatepass")
    if isinstance(value, np.bytes_):
        return "S", bytes(value)
    dtype = value.dtype.newbyteorder("<")
    return _dtype_name(dtype), np.asarray(value, dtype).tobytes()


def _head() -> bytes:
    from marin_dsl.encoding.writer import _TAG_HEADS

    return _TAG_HEADS["NUMPY_ARRAY"] + b"\x83"


def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.type.__module__ == "ml_dtypes":
        return dtype.name
    if dtype.char in "gG":
        raise Unencodable(f"dtype {dtype} differs from machine to machine; convert it to float64 or complex128")
    if dtype.kind in "biufcSUMm":
        return dtype.str
    if dtype.kind == "V" and dtype.names is None:
        raise Unencodable("an array of raw void bytes has no encoding; view it as uint8")
    raise Unencodable(
        f"an array of dtype {dtype} has no encoding; pass numbers, booleans, times or fixed-width text, "
        "and records as a dict of arrays"
    )


def _dtype(name: str) -> np.dtype[Any]:
    if _PLAIN.fullmatch(name):
        found = np.dtype(name)
    else:
        import ml_dtypes

        found = np.dtype(getattr(ml_dtypes, name))
    if _dtype_name(found) != name:
        raise ValueError(f"{name!r} is no dtype of the encoding")
    return found


def read_array(dtype: str, shape: list[int], content: Any) -> np.ndarray[Any, Any]:
    """An array from its parts; a file is mapped into memory. Read-only: no reader can change what another one sees."""
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"{shape!r} is no shape")
    if isinstance(content, Path):
        raw: np.ndarray[Any, Any] = np.memmap(content, dtype=np.uint8, mode="r")
    else:
        raw = np.frombuffer(content, dtype=np.uint8)
    found = _dtype(dtype)
    array = np.asarray(raw).view(found) if found.itemsize else np.empty(shape, found)
    array = array.reshape(tuple(shape))
    array.flags.writeable = False
    return array


def read_scalar(dtype: str, content: bytes) -> np.generic:
    """A NumPy scalar from its dtype and bytes."""
    if dtype in _TEXT_SCALARS:
        return _TEXT_SCALARS[dtype](content.decode("utf-8", "surrogatepass") if dtype == "U" else content)
    (scalar,) = np.frombuffer(content, dtype=_dtype(dtype))
    return scalar


class LazyArray:
    """An array whose leaf has not been read: it can be passed on (it encodes as itself) or loaded."""

    __slots__ = ("dtype", "leaf", "shape")

    def __init__(self, dtype: str, shape: list[int], leaf: Leaf) -> None:
        self.dtype, self.shape, self.leaf = dtype, shape, leaf

    def write(self, encoder: Encoder) -> None:
        """Write the array as it was stored, without loading it."""
        encoder.out.append(_head())
        encoder.write(self.dtype)
        encoder.write(self.shape)
        encoder.write_leaf(self.leaf)
