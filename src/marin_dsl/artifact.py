"""Values too large to hold: files and directories, as light handles on content."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NoReturn

from marin_dsl.encoding import BoundLeaf, Leaf, format_digest, register_codec


class File:
    """A file as a value: identified by its content, never by its name, place, mode or time.

    Make one from a file that an operator wrote with `File.of(path)`. In an operator that receives it, `path` is a
    readable local file. Its content must not be changed in place.
    """

    __slots__ = ("__weakref__", "_content", "_path")

    def __init__(self, content: Leaf | BoundLeaf) -> None:
        if not isinstance(content, Leaf | BoundLeaf):
            raise TypeError(f"a File is not made from a {type(content).__name__}; use File.of(path)")
        self._content = content
        self._path: Path | None = None

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> File:
        """The value of an existing file; its content is read once, for the digest.

        Raises:
            FileNotFoundError: there is no such file.
            IsADirectoryError: the path is a directory (`Directory.of` is meant).
            ValueError: the path is a device, a pipe or a socket.
        """
        place = Path(path).absolute()
        if place.is_dir():
            raise IsADirectoryError(f"{place} is a directory: use Directory.of(...)")
        if not place.exists():
            raise FileNotFoundError(f"{place} does not exist; File.of(...) takes a file that is already written")
        if not place.is_file():
            raise ValueError(f"{place} is a device, a pipe or a socket; a File is the content of a regular file")
        return cls(Leaf.of_file(place))

    @property
    def digest(self) -> str:
        """`sha256:` and the digest of the content."""
        return format_digest(self._content.digest)

    @property
    def size(self) -> int:
        """Bytes."""
        return self._content.size

    @property
    def path(self) -> Path:
        """A local file with the content; read only."""
        if self._path is None:
            located = self._content.locate() if isinstance(self._content, BoundLeaf) else self._content.content
            self._path = located if isinstance(located, Path) else _materialise(self, located)
        return self._path

    def open(self) -> BinaryIO:
        """The content as a binary stream."""
        return self.path.open("rb")

    def read_bytes(self) -> bytes:
        """The whole content."""
        return self.path.read_bytes()

    def read_text(self) -> str:
        """The whole content as UTF-8."""
        return self.path.read_text(encoding="utf-8")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self._content.digest)

    def __repr__(self) -> str:
        return f"<File {self.digest[:19]} {self.size} bytes>"


class Directory:
    """A directory tree as a value: relative paths and contents; empty folders, modes and times are no part of it.

    Make one from a folder that an operator wrote with `Directory.of(path)`. In an operator that receives it, `path` is
    a readable local folder. Its content must not be changed in place.
    """

    __slots__ = ("__weakref__", "_path", "files")

    def __init__(self, files: Mapping[str, File]) -> None:
        for name in files:
            _check_relative(name)
            inside = next((str(above) for above in PurePosixPath(name).parents if str(above) in files), None)
            if inside is not None:
                raise ValueError(f"{inside!r} is a file, so {name!r} cannot lie in it")
        self.files: dict[str, File] = {name: files[name] for name in sorted(files)}
        self._path: Path | None = None

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Directory:
        """The value of an existing folder: every regular file below it.

        Raises:
            NotADirectoryError: the path is no folder.
            ValueError: a link or a special file is in it; a value holds regular files only.
        """
        root = Path(path).absolute()
        if not root.is_dir():
            raise NotADirectoryError(f"{root} is not a folder: use File.of(...) for a single file")
        found = {}
        for place in _entries(root):
            if place.is_symlink() or not (place.is_file() or place.is_dir()):
                raise ValueError(f"{place} is a link or a special file; a Directory holds regular files only")
            if place.is_file():
                found[place.relative_to(root).as_posix()] = File.of(place)
        directory = cls(found)
        directory._path = root
        return directory

    @property
    def path(self) -> Path:
        """A local folder with the files; read only."""
        if self._path is None:
            self._path = link_files(temporary_folder(self), self.files)
        return self._path

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files.values())

    def __getitem__(self, name: str) -> File:
        if name not in self.files:
            raise KeyError(f"no file `{name}` in the directory; it holds {', '.join(self.files) or 'none'}")
        return self.files[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Directory) and self.files == other.files

    def __hash__(self) -> int:
        return hash(tuple(self.files.items()))

    def __repr__(self) -> str:
        return f"<Directory {len(self.files)} files, {self.size} bytes>"


def _entries(root: Path) -> Iterator[Path]:
    """Everything below a folder; one that cannot be listed is an error, never an omission (`rglob` skips it)."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    for folder, folders, files in os.walk(root, onerror=refuse):
        yield from (Path(folder, name) for name in (*folders, *files))


def _check_relative(name: str) -> None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name or PurePosixPath(name).as_posix() != name:
        raise ValueError(f"{name!r} is no relative path below a directory")


def temporary_folder(owner: object) -> Path:
    """A private folder that is removed with its owner."""
    folder = Path(tempfile.mkdtemp(prefix="marin-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return folder


def link_files(folder: Path, files: Mapping[str, File]) -> Path:
    """Links to files under their names in a folder; several are fetched and verified at a time."""
    distinct = list(dict.fromkeys(files.values()))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        located = dict(zip(distinct, pool.map(lambda file: file.path, distinct), strict=True))
    for name, file in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(located[file])
    return folder


_AT_ONCE = 8


def _materialise(file: File, content: Any) -> Path:
    place = temporary_folder(file) / "content"
    place.write_bytes(content)
    return place


register_codec(
    File,
    name="marin:File",
    to_fields=lambda file: {"content": file._content},
    from_fields=lambda fields: File(fields["content"]),
)
register_codec(
    Directory,
    name="marin:Directory",
    to_fields=lambda directory: {"files": {name: file._content for name, file in directory.files.items()}},
    from_fields=lambda fields: Directory({name: File(content) for name, content in fields["files"].items()}),
)
