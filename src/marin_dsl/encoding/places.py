"""Where classes are: the import paths by which encodings name them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

_SCRIPT = ("__main__", "__mp_main__")


def module_path(module: str) -> str:
    """The import path of a module; for a script that is being run, the path it would have if it were imported."""
    if module not in _SCRIPT:
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    if not getattr(main, "__file__", None):
        return "__main__"
    script = Path(str(main.__file__)).resolve()
    folder = script.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    return ".".join(script.relative_to(folder).with_suffix("").parts)


def place_of(cls: type) -> str:
    """`module:qualified.name` of a class, the same whether its module is imported or run."""
    return f"{module_path(cls.__module__)}:{cls.__qualname__}"


def importable(place: str) -> Any:
    """The object at `module:qualified.name`; one of the script that is being run is found there.

    Raises:
        LookupError: there is no such module or object.
    """
    module, _, qualname = place.partition(":")
    try:
        found: Any = sys.modules["__main__"] if module == module_path("__main__") else importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception as error:  # an import runs code: anything can go wrong in it
        raise LookupError(f"`{place}` cannot be imported here ({error}); is the project's code on the path?") from error
    return found
