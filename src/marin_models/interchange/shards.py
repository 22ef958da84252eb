"""Named arrays in safetensors files of bounded size, with an index where there are several."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

INDEX = "model.safetensors.index.json"
WHOLE = "model.safetensors"


class DamagedCheckpoint(ValueError):
    """Files of a checkpoint are missing, broken, or do not fit each other."""


def write_shards(
    folder: Path, tensors: Iterable[tuple[str, np.ndarray]], *, shard_bytes: int, metadata: Mapping[str, str]
) -> None:
    """Write arrays in their order; a new file begins where one would grow beyond ``shard_bytes``.

    Args:
        folder: exists.
        tensors: names and arrays; one shard of them is held at a time.
        shard_bytes: bound on the arrays of a file; a larger array has a file to itself.
        metadata: put into every file.
    """
    sizes: dict[str, int] = {}
    files: list[list[str]] = []
    for shard in _grouped(tensors, shard_bytes):
        save_file(shard, folder / f"{len(files)}.safetensors", metadata=dict(metadata))
        files.append(list(shard))
        sizes |= {name: array.nbytes for name, array in shard.items()}
    names = [f"model-{n + 1:05}-of-{len(files):05}.safetensors" for n in range(len(files))]
    for number, name in enumerate(names if len(files) > 1 else [WHOLE]):
        (folder / f"{number}.safetensors").rename(folder / name)
    if len(files) > 1:
        weight_map = {tensor: name for name, tensors in zip(names, files, strict=True) for tensor in tensors}
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": dict(sorted(weight_map.items()))}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", "utf-8")


def _grouped(tensors: Iterable[tuple[str, np.ndarray]], shard_bytes: int) -> Iterator[dict[str, np.ndarray]]:
    shard: dict[str, np.ndarray] = {}
    held = 0
    for name, array in tensors:
        if shard and held + array.nbytes > shard_bytes:
            yield shard
            shard, held = {}, 0
        shard[name] = np.ascontiguousarray(array)
        held += array.nbytes
    yield shard


class Shards:
    """The arrays of a checkpoint, read one at a time; a context manager that keeps its files open."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._exit = ExitStack()
        self._files: dict[str, Any] = {}

    def __enter__(self) -> "Shards":
        """Open the files.

        Raises:
            DamagedCheckpoint: one is missing or broken, or a tensor is not where the index says.
        """
        with ExitStack() as stack:
            for file, tensors in self._contents().items():
                opened = self._opened(stack, file)
                held = set(opened.keys())
                absent = sorted(set(tensors) - held)
                if absent:
                    raise DamagedCheckpoint(f"{self.folder / file} does not hold {absent[0]}, but {INDEX} says so")
                self._files = dict.fromkeys(held, opened) | self._files | dict.fromkeys(tensors, opened)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._exit.close()

    def _contents(self) -> dict[str, list[str]]:
        """Tensors of each file by the index; no names where there is no index."""
        if not (self.folder / INDEX).exists():
            if not (self.folder / WHOLE).exists():
                raise DamagedCheckpoint(
                    f"{self.folder} holds neither {WHOLE} nor {INDEX}; give the folder of a safetensors checkpoint"
                )
            return {WHOLE: []}
        files: dict[str, list[str]] = {}
        for tensor, file in self._index().items():
            files.setdefault(file, []).append(tensor)
        return files

    def _index(self) -> dict[str, str]:
        """The file of each tensor; only files of this very folder are its own."""
        path = self.folder / INDEX
        try:
            named = json.loads(path.read_text("utf-8"))["weight_map"]
            elsewhere = [file for file in named.values() if not isinstance(file, str) or Path(file).name != file]
            if elsewhere:
                raise ValueError(f"{elsewhere[0]!r} is no name of a file")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedCheckpoint(
                f"{path} does not name a file of {self.folder} for each tensor under 'weight_map' "
                f"({type(error).__name__}: {error}); fetch it again"
            ) from error
        return named

    def _opened(self, stack: ExitStack, file: str) -> Any:
        try:
            return stack.enter_context(safe_open(self.folder / file, framework="np"))
        except (OSError, SafetensorError) as error:
            raise DamagedCheckpoint(f"{self.folder / file} cannot be read ({error}); fetch it again") from error

    def names(self) -> set[str]:
        """Of all tensors."""
        return set(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of one tensor, without reading it."""
        return tuple(self._files[name].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """Of one tensor, as safetensors calls it, such as ``"BF16"``."""
        return self._files[name].get_slice(name).get_dtype()

    def read(self, name: str) -> Shaped[np.ndarray, "..."]:
        """One tensor."""
        return self._files[name].get_tensor(name)
