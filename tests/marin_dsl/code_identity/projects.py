"""Small projects written to a folder, imported under a fresh package name, and asked for the identity of a function."""

import contextlib
import importlib
import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

from marin_dsl.code_identity import CodeIdentity, code_identity

_numbers = itertools.count()


@contextlib.contextmanager
def imported(folder: Path, files: Mapping[str, str], package: str | None = None) -> Iterator[ModuleType]:
    """The package with these files (by path inside it), as long as the context lasts."""
    package = package or f"project_{next(_numbers)}"
    home = folder / f"home_{next(_numbers)}"
    for name, text in {"__init__.py": "", **files}.items():
        place = home / package / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    sys.path.insert(0, str(home))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(package)
    finally:
        sys.path.remove(str(home))
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]


def identity_in(folder: Path, files: Mapping[str, str], target: str = "main:target", **options: object) -> CodeIdentity:
    """The identity of `module:name` in a project of these files."""
    module, _, name = target.partition(":")
    with imported(folder, files) as package:
        holder = importlib.import_module(f"{package.__name__}.{module}")
        return code_identity(getattr(holder, name), **options)


def identity_of(folder: Path, text: str, name: str = "target", **options: object) -> CodeIdentity:
    """The identity of a function in a project of one module."""
    return identity_in(folder, {"main.py": text}, f"main:{name}", **options)
