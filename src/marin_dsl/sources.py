"""The modules of a project that made an experiment, as they were: so that it can be run where the project is not."""

from __future__ import annotations

import functools
import io
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from marin_dsl.code_identity.territory import is_installed
from marin_dsl.encoding.places import module_path
from marin_dsl.uncommitted import looks_secret

LIMIT = 16 << 20
"""Bytes of modules that are kept, the smallest first."""


def imported_sources() -> bytes:
    """The modules of the user's project that this process has imported, as a ZIP file.

    What is installed is none of them, for its version says what it is; nor is what looks as if it held secrets.
    """
    # A module that another thread imports meanwhile makes a dict change while it is gone through.
    found = dict(_module_files(list(sys.modules.items())))
    return _packed(tuple(sorted(found.items())))


def unpacked(data: bytes) -> dict[str, bytes]:
    """Contents of modules by the path under which each can be imported, such as `package/module.py`.

    Raises:
        ValueError: that is not what `imported_sources` packs.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            members = packed.infolist()
            if sum(member.file_size for member in members) > LIMIT:
                raise ValueError(f"packed modules are larger than {LIMIT:,} bytes")
            return {member.filename: packed.read(member) for member in members}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(f"these are no packed modules ({error})") from None


def _module_files(modules: list[tuple[str, ModuleType]]) -> Iterator[tuple[str, tuple[str, int, int]]]:
    """Path of a module for whoever imports it, with that of its file, and the time and the size of that."""
    for name, module in modules:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or is_installed(file):
            continue
        parts = module_path(name).split(".")
        path = "/".join([*parts, "__init__.py"] if hasattr(module, "__path__") else [*parts[:-1], f"{parts[-1]}.py"])
        if not all(part.isidentifier() for part in parts) or looks_secret(path):
            continue
        try:
            found = os.stat(file)
        except OSError:
            continue
        yield path, (file, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=1)
def _packed(files: tuple[tuple[str, tuple[str, int, int]], ...]) -> bytes:
    left, contents = LIMIT, dict[str, bytes]()
    for path, (file, _, size) in sorted(files, key=lambda each: each[1][2]):
        left -= size
        if left < 0:
            break
        try:
            contents[path] = Path(file).read_bytes()
        except OSError:
            continue
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(contents):
            packed.writestr(zipfile.ZipInfo(path), contents[path], zipfile.ZIP_DEFLATED)  # without a time: as before
    return written.getvalue()
