"""A tree of arrays as files, and back: each device's part is written by itself, and read in whatever parts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tensorstore
from jaxtyping import PyTree, Shaped

from marin_models.checkpoints.manifest import CheckpointMismatch, damaged

CHUNK_BYTES = 64 << 20  # files are about as large, at most

COPIERS = 4  # one thread does not fill the memory channels of a server

Index = tuple[slice, ...]


class Part(NamedTuple):
    """One device's part of an array, in memory of the host.

    Attributes:
        name: of the array.
        shape: of the whole array.
        chunk: shape of the files that it is written in; divides the part.
        index: which part it is.
        data: the numbers.
    """

    name: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    index: Index
    data: Shaped[np.ndarray, "..."]


def named_arrays(tree: PyTree) -> dict[str, Any]:
    """The leaves by their path in dots; random keys as the numbers that they are."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): _numbers(leaf) for path, leaf in leaves}


def described(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Shape and dtype of each array, as JSON."""
    return {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in arrays.items()}


class Staging:
    """Memory of the host that takes in a tree while the devices go on; it is kept and used again."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, int], np.ndarray] = {}

    def copied(self, arrays: Mapping[str, Any]) -> list[Part]:
        """The parts of arrays that this process is to write, copied; valid until the next call."""
        for array in arrays.values():
            if not _on_host(array):
                array.copy_to_host_async()  # all at once; memory of the host is only looked at
        own = [
            (name, number, index, shard)
            for name, array in arrays.items()
            for number, (index, shard) in enumerate(_own_shards(array))
        ]
        with ThreadPoolExecutor(COPIERS) as copiers:
            copies = list(copiers.map(lambda one: self._kept(one[0], one[1], one[3]), own))
        return [
            Part(name, arrays[name].shape, _chunk(shard.shape, arrays[name].dtype.itemsize), index, data)
            for (name, _, index, shard), data in zip(own, copies, strict=True)
        ]

    def reserve(self, needed: Sequence[tuple[str, int, tuple[int, ...], np.dtype]]) -> None:
        """Have the memory that `copied` will need; the first touch of memory takes longer than a copy.

        Args:
            needed: what `needs` says.
        """
        for name, number, shape, dtype in needed:
            self._buffer(name, number, shape, dtype).fill(0)

    @staticmethod
    def needs(arrays: Mapping[str, Any]) -> list[tuple[str, int, tuple[int, ...], np.dtype]]:
        """Name, number, shape and dtype of the parts that `copied` will copy; afterwards arrays may be donated."""
        return [
            (name, number, tuple(shard.shape), np.dtype(shard.dtype))
            for name, array in arrays.items()
            for number, (_, shard) in enumerate(_own_shards(array))
            if _on_host(shard)
        ]

    def _kept(self, name: str, number: int, shard: Any) -> np.ndarray:
        if not _on_host(shard):
            return np.asarray(shard)
        buffer = self._buffer(name, number, shard.shape, shard.dtype)
        # The view goes with this statement: an array that somebody looks at cannot be given to the next step.
        np.copyto(buffer, np.asarray(shard))
        return buffer

    def _buffer(self, name: str, number: int, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        found = self._buffers.get((name, number))
        if found is None or found.shape != tuple(shape) or found.dtype != dtype:
            found = self._buffers[name, number] = np.empty(shape, dtype)
        return found


def write_parts(folder: Path, parts: Sequence[Part]) -> None:
    """Write parts of arrays to the disk, each file with a CRC-32C of its own.

    Raises:
        OSError: the disk does not take them.
    """
    try:
        _write(folder, parts)
    except ValueError as error:  # tensorstore's, whatever the reason
        raise OSError(f"the checkpoint cannot be written: {error}") from None


def _write(folder: Path, parts: Sequence[Part]) -> None:
    opened = [tensorstore.open(_described_place(folder, part), create=True, open=True) for part in parts]
    writes = [
        store.result()[part.index].write(part.data, can_reference_source_data_indefinitely=True)
        for store, part in zip(opened, parts, strict=True)
    ]
    for write in writes:
        write.result()


def read_tree(folder: Path, like: PyTree, prefix: str, written: Mapping[str, Mapping[str, Any]]) -> PyTree:
    """Arrays as ``like`` describes them: in its structure, placed by its shardings where it has some.

    Args:
        folder: of the checkpoint.
        like: arrays, or shapes and dtypes (``jax.ShapeDtypeStruct``).
        prefix: before all names.
        written: descriptions of the arrays in the checkpoint.

    Raises:
        CheckpointMismatch: names, shapes or dtypes differ; all of them are listed.
        CheckpointDamaged: a file is not what was written.
    """
    expected = {f"{prefix}.{name}": array for name, array in named_arrays(like).items()}
    _check_structure(folder, described(expected), {n: w for n, w in written.items() if n.startswith(f"{prefix}.")})
    reads = {name: _Reading(folder, name, array) for name, array in expected.items()}
    leaves, structure = jax.tree.flatten(like)
    return structure.unflatten(
        _wrapped(reading.result(), leaf) for leaf, reading in zip(leaves, reads.values(), strict=True)
    )


def read_array(folder: Path, name: str) -> Shaped[np.ndarray, "..."]:
    """One whole array, as it was written.

    Raises:
        CheckpointDamaged: a file is not what was written.
    """
    try:
        return np.asarray(
            tensorstore.open(_place(array_folder(folder, name)), open=True, read=True).result().read().result()
        )
    except ValueError as error:
        raise damaged(array_folder(folder, name), str(error), folder) from None


def array_folder(folder: Path, name: str) -> Path:
    """Where an array lies; a name is never a path, whatever a stream of tokens is called.

    >>> array_folder(Path("step-1"), "records.loss.a/b").name
    'records.loss.a%2Fb'
    """
    return folder / name.replace("%", "%25").replace("/", "%2F")


class _Reading:
    """An array on its way from the disk: every distinct part is read once, all of them at the same time."""

    def __init__(self, folder: Path, name: str, like: Any) -> None:
        self.path, self.folder, self.like = array_folder(folder, name), folder, like
        self.sharding = getattr(like, "sharding", None)
        indices = self.sharding.addressable_devices_indices_map(like.shape).values() if self.sharding else [()]
        self.opened = tensorstore.open(_place(self.path), open=True, read=True)
        self.reads: dict[str, Any] = {}
        for index in indices:
            if str(index) not in self.reads:
                self.reads[str(index)] = self._checked(lambda index=index: self.opened.result()[index].read())

    def result(self) -> jax.Array:
        parts = {index: np.asarray(self._checked(read.result)) for index, read in self.reads.items()}
        if self.sharding is None:
            return jax.numpy.array(parts["()"])
        return jax.make_array_from_callback(self.like.shape, self.sharding, lambda index: parts[str(index)])

    def _checked(self, read: Any) -> Any:
        try:
            return read()
        except ValueError as error:
            raise damaged(self.path, str(error), self.folder) from None


def _numbers(leaf: Any) -> Any:
    if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    if isinstance(leaf, jax.Array):
        return jax.random.key_data(leaf)
    numbers = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
    return jax.ShapeDtypeStruct(numbers.shape, numbers.dtype, sharding=leaf.sharding)


def _wrapped(numbers: jax.Array, like: Any) -> jax.Array:
    if not jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
        return numbers
    return jax.random.wrap_key_data(numbers, impl=str(jax.random.key_impl(jax.numpy.empty((), like.dtype))))


def _own_shards(array: Any) -> Iterator[tuple[Index, Any]]:
    """The parts of an array that this process writes: one of all copies of a part is the first."""
    if not isinstance(array, jax.Array):
        if jax.process_index() == 0:
            yield (...,), np.asarray(array)
        return
    for shard in array.addressable_shards:
        if shard.replica_id == 0:
            yield shard.index, shard.data


def _on_host(shard: Any) -> bool:
    return not isinstance(shard, jax.Array) or next(iter(shard.devices())).platform == "cpu"


def _chunk(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """A shape that divides ``shape`` and holds `CHUNK_BYTES` at most, as long as possible in the last axes.

    >>> _chunk((6, 1024, 1024), 32), _chunk((7, 1 << 26), 4)
    ((2, 1024, 1024), (1, 16777216))
    """
    chunk = [max(1, length) for length in shape]
    for axis, length in enumerate(chunk):
        too_large = math.prod(chunk) * itemsize / CHUNK_BYTES
        pieces = next((divisor for divisor in _divisors(length) if divisor >= too_large), length)
        chunk[axis] = length // pieces
        if pieces >= too_large:
            break
    return tuple(chunk)


def _divisors(number: int) -> list[int]:
    """In ascending order.

    >>> _divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0]
    return sorted({*small, *(number // divisor for divisor in small)})


def _place(folder: Path) -> dict[str, Any]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}}


def _described_place(folder: Path, part: Part) -> dict[str, Any]:
    grid = {"name": "regular", "configuration": {"chunk_shape": list(part.chunk)}}
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
    description = {
        "shape": list(part.shape),
        "data_type": tensorstore.dtype(part.data.dtype).name,
        "chunk_grid": grid,
        "codecs": codecs[1:] if part.data.dtype.itemsize == 1 else codecs,
    }
    # What is all zeros is written too: a file that is gone is then a file that is missed.
    return _place(array_folder(folder, part.name)) | {"metadata": description, "store_data_equal_to_fill_value": True}


def _check_structure(folder: Path, expected: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    problems = [f"not in the checkpoint: {name} {_said(expected[name])}" for name in expected.keys() - written.keys()]
    problems += [f"only in the checkpoint: {name} {_said(written[name])}" for name in written.keys() - expected.keys()]
    problems += [
        f"{name}: {_said(written[name])} in the checkpoint, {_said(expected[name])} expected"
        for name in expected.keys() & written.keys()
        if expected[name] != written[name]
    ]
    if problems:
        raise CheckpointMismatch(
            f"{folder} holds a state of another structure (another model, optimizer or version):\n  "
            + "\n  ".join(sorted(problems))
        )


def _said(description: Mapping[str, Any]) -> str:
    return f"{description['dtype']}{list(description['shape'])}"
