"""Arrays: dtype, shape and C-order bytes; large ones as leaves, read back lazily."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_dsl.encoding.leaves import Leaf
from marin_dsl.encoding.registry import Unencodable

if TYPE_CHECKING:
    from marin_dsl.encoding.writer import Encoder

_PLAIN_KINDS = frozenset("biufcSUMm")


def write_array(encoder: Encoder, value: Any) -> None:
    """Write an array or a scalar of NumPy, JAX or ml_dtypes.

    A JAX array is written as the NumPy array of the same content.
    """
    if isinstance(value, np.generic):
        encoder.write_tagged("NUMPY_SCALAR", _dtype_name(value.dtype), value.tobytes())
        return
    if isinstance(value, np.dtype) or not hasattr(value, "__array__"):
        raise Unencodable(f"a {type(value).__name__} of NumPy is no array; pass an array, or the name as text")
    if isinstance(value, np.ma.MaskedArray):
        raise Unencodable("a masked array has no encoding; pass the data and the mask as two arrays")
    array = np.ascontiguousarray(value)
    shape = list(np.shape(value))  # ascontiguousarray makes a scalar array one-dimensional
    encoder.out.append(_head())
    encoder.write(_dtype_name(array.dtype))
    encoder.write(shape)
    encoder.write_content(memoryview(array.reshape(-1).view(np.uint8)))


def _head() -> bytes:
    from marin_dsl.encoding.writer import _TAG_HEADS

    return _TAG_HEADS["NUMPY_ARRAY"] + b"\x83"


def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.kind in _PLAIN_KINDS:
        return dtype.str
    if dtype.kind == "V" and dtype.names is None and type(dtype).__module__ == "numpy.dtype[void]":
        raise Unencodable("an array of raw void bytes has no encoding; view it as uint8")
    if dtype.names is None and dtype.type.__module__ == "ml_dtypes":
        return dtype.name
    raise Unencodable(
        f"an array of dtype {dtype} has no encoding; pass numbers, booleans, times or fixed-width text, "
        "and records as a dict of arrays"
    )


def _dtype(name: str) -> np.dtype[Any]:
    if name[0] in "<>|=":
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def read_array(dtype: str, shape: list[int], content: Any) -> np.ndarray[Any, Any]:
    """An array from its parts; a file is mapped into memory. Read-only: no reader can change what another one sees."""
    if isinstance(content, Path):
        raw: np.ndarray[Any, Any] = np.memmap(content, dtype=np.uint8, mode="r")
    else:
        raw = np.frombuffer(content, dtype=np.uint8)
    array = np.asarray(raw).view(_dtype(dtype)).reshape(tuple(shape))
    array.flags.writeable = False
    return array


def read_scalar(dtype: str, content: bytes) -> np.generic:
    """A NumPy scalar from its dtype and bytes."""
    return np.frombuffer(content, dtype=_dtype(dtype))[0]


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
