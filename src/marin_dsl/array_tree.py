"""Trees of arrays as values: checkpoints whose arrays are written in chunks and read in part, through tensorstore.

Each array is a zarr (version 3) array in a directory, its chunks plain files. As a value a tree is that directory: its
identity is the digests of the files, and each chunk is a blob of its own in a store. Reading a part of an array from
whatever store fetches and verifies the chunks that it lies in, and no others.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from marin_dsl.artifact import Directory, link_files, temporary_folder
from marin_dsl.encoding import register_codec

if TYPE_CHECKING:
    import numpy as np

CHUNK_BYTES = 16 << 20
"""Bytes of a chunk of a large array, about: what a partial read fetches at least."""

Part = int | slice | EllipsisType
"""A part of an axis: an index, a slice with a positive step, or `...` for all the axes that are not given."""


class ArrayTree:
    """Named arrays as a value.

    Make one in an operator with `ArrayTree.write(folder, arrays)`; an operator that receives it reads arrays, or parts
    of them, with `read`. The names of a nested tree are its keys and positions, joined by `/`.

    Attributes:
        directory: the files of all arrays.
        names: the names of the arrays, sorted.
    """

    __slots__ = ("__weakref__", "_folder", "directory", "names")

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.names = tuple(name.removesuffix(_DESCRIPTION) for name in directory.files if name.endswith(_DESCRIPTION))
        known = set(self.names)
        for name in directory.files:
            if _owner(name) not in known:
                raise ValueError(f"{name!r} belongs to no array; a tree of arrays holds what `ArrayTree.write` wrote")
        self._folder: Path | None = None

    @classmethod
    def write(
        cls,
        folder: str | os.PathLike[str],
        arrays: Mapping[str, Any] | Sequence[Any],
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> ArrayTree:
        """Write arrays into a folder, one after the other.

        Args:
            folder: an empty folder, or one that does not exist: in an operator, one below `context().scratch`.
            arrays: arrays of NumPy, JAX or ml_dtypes in nested dicts, lists and tuples.
            chunk_bytes: size of a chunk, about.

        Raises:
            ValueError: the folder is not empty, or a name cannot be one of a file.
            TypeError: something in the tree is no array.
        """
        root = Path(folder).absolute()
        if root.exists() and any(root.iterdir()):
            raise ValueError(f"{root} is not empty; a tree of arrays is written into a folder of its own")
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, array in _named(arrays, ""):
            _write_array(root / name, array, chunk_bytes)
        tree = cls(Directory.of(root))
        tree._folder = root
        return tree

    @classmethod
    def of(cls, folder: str | os.PathLike[str]) -> ArrayTree:
        """The tree that was written into a folder.

        Raises:
            NotADirectoryError: there is no such folder.
            ValueError: it holds something else.
        """
        tree = cls(Directory.of(folder))
        tree._folder = Path(folder).absolute()
        return tree

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array; no chunk is read."""
        return tuple(self._description(name)["shape"])

    def dtype(self, name: str) -> np.dtype[Any]:
        """The dtype of an array; no chunk is read."""
        found: np.dtype[Any] = self._opened(name).dtype.numpy_dtype
        return found

    def read(self, name: str, part: Part | tuple[Part, ...] = ...) -> np.ndarray[Any, Any]:
        """An array, or a part of it.

        Args:
            name: one of `names`.
            part: indices and slices as NumPy takes them, of the first axes or of all.

        Returns:
            An array of the same dtype, in memory.

        Raises:
            KeyError: there is no such array.
            IndexError: the part is not one of its axes.
            LeafMissing: a chunk is gone or damaged.
        """
        import numpy as np

        spans = _spans(self.shape(name), part)
        self._fetch(f"{name}/{chunk}" for chunk in _chunks(spans, self._description(name)))
        where = tuple(start if step is None else slice(start, stop, step) for start, stop, step in spans)
        return np.asarray(self._opened(name)[where].read().result())

    def items(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """Each array with its name, one after the other."""
        for name in self.names:
            yield name, self.read(name)

    def _description(self, name: str) -> dict[str, Any]:
        if name not in self.names:
            raise KeyError(f"no array `{name}` in the tree; it holds {', '.join(self.names) or 'none'}")
        found: dict[str, Any] = json.loads(self.directory[f"{name}{_DESCRIPTION}"].read_bytes())
        return found

    def _opened(self, name: str) -> Any:
        import tensorstore

        self._fetch([f"{name}{_DESCRIPTION}"])
        assert self._folder is not None
        return tensorstore.open(_place(self._folder / name), open=True, read=True).result()

    def _fetch(self, names: Iterable[str]) -> None:
        """Have files of the tree in the folder that tensorstore reads; what is not written is all zeros."""
        if self._folder is None:
            self._folder = temporary_folder(self)
        files = self.directory.files
        link_files(
            self._folder,
            {name: files[name] for name in names if name in files and not (self._folder / name).exists()},
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayTree) and self.directory == other.directory

    def __hash__(self) -> int:
        return hash(self.directory)

    def __repr__(self) -> str:
        return f"<ArrayTree {len(self.names)} arrays, {self.directory.size} bytes>"


_DESCRIPTION = "/zarr.json"


def _owner(file: str) -> str:
    """The name of the array that a file belongs to, if it belongs to one; no array is named `c`."""
    return file.removesuffix(_DESCRIPTION).removesuffix("/c").partition("/c/")[0]


def _named(tree: Any, above: str) -> Iterator[tuple[str, Any]]:
    """The arrays of a nested tree with their names."""
    if isinstance(tree, Mapping):
        items: Any = tree.items()
    elif isinstance(tree, list | tuple):
        items = enumerate(tree)
    elif hasattr(tree, "__array__") and above:
        yield above, tree
        return
    else:
        raise TypeError(
            f"`{above}` of a tree of arrays is a {type(tree).__name__}; it holds arrays in nested dicts, lists and "
            "tuples"
        )
    for key, inner in items:
        name = str(key)
        if name in ("", ".", "..", "c", "zarr.json") or "/" in name or "\0" in name:
            raise ValueError(
                f"{name!r} cannot be a name in a tree of arrays: it must be one of a file, and neither c nor zarr.json"
            )
        yield from _named(inner, f"{above}/{name}" if above else name)


def _place(folder: Path) -> dict[str, Any]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}}


def _write_array(folder: Path, array: Any, chunk_bytes: int) -> None:
    import numpy as np
    import tensorstore

    content = np.asarray(array)
    try:
        dtype = tensorstore.dtype(content.dtype)
    except (TypeError, ValueError):
        raise TypeError(
            f"an array of dtype {content.dtype} cannot be in a tree of arrays; pass numbers or booleans"
        ) from None
    chunk = _chunk_shape(content.shape, max(1, chunk_bytes // max(1, content.dtype.itemsize)))
    opened = tensorstore.open(
        _place(folder),
        create=True,
        dtype=dtype,
        shape=list(content.shape),
        chunk_layout=tensorstore.ChunkLayout(chunk_shape=chunk),
    ).result()
    opened.write(content, can_reference_source_data_indefinitely=True).result()


def _chunk_shape(shape: Sequence[int], elements: int) -> list[int]:
    """The last axes whole, as many as fit, and of the axis before them as much as fits.

    >>> _chunk_shape((100, 20, 30), 6000)
    [10, 20, 30]
    """
    chunk: list[int] = []
    for length in reversed(shape):
        chunk.append(max(1, min(length, elements)))
        elements //= max(1, chunk[-1])
    return chunk[::-1]


Span = tuple[int, int, int | None]
"""Of one axis: first index, end, and step; a step of None is a single index."""


def _spans(shape: Sequence[int], part: Any) -> list[Span]:
    """Each axis of a part.

    Raises:
        IndexError: there are more indices than axes, or one is out of range or no index.
    """
    parts = list(part) if isinstance(part, tuple) else [part]
    if sum(index is ... for index in parts) > 1 or len([index for index in parts if index is not ...]) > len(shape):
        raise IndexError(f"{part!r} is no part of an array of shape {tuple(shape)}")
    if ... not in parts:
        parts.append(...)
    at = parts.index(...)
    parts[at : at + 1] = [slice(None)] * (len(shape) - len(parts) + 1)
    return [_span(length, index) for length, index in zip(shape, parts, strict=True)]


def _span(length: int, index: Any) -> Span:
    if isinstance(index, slice):
        start, stop, step = index.indices(length)
        if step < 1:
            raise IndexError(f"{index!r} goes backwards; read it forwards, and turn it round in memory")
        return start, max(start, stop), step
    if not hasattr(index, "__index__") or isinstance(index, bool) or not -length <= index.__index__() < length:
        raise IndexError(f"{index!r} is no index of an axis of length {length}")
    return index.__index__() % length, index.__index__() % length + 1, None


def _chunks(spans: Sequence[Span], description: Mapping[str, Any]) -> Iterator[str]:
    """Names of the files that a part lies in."""
    shape = description["chunk_grid"]["configuration"]["chunk_shape"]
    if any(start >= stop for start, stop, _ in spans):
        return
    ranges = [
        range(start // length, math.ceil(stop / length)) for (start, stop, _), length in zip(spans, shape, strict=True)
    ]
    for position in itertools.product(*ranges):
        yield "/".join(["c", *map(str, position)])


register_codec(
    ArrayTree,
    name="marin_dsl.array_tree:ArrayTree",
    to_fields=lambda tree: {"directory": tree.directory},
    from_fields=lambda fields: ArrayTree(fields["directory"]),
)
