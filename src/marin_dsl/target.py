"""Targets: what a user names on the command line, `package.module:name` or `path/to/file.py:name`."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from marin_dsl.expression import Expression
from marin_dsl.grids import Grid
from marin_dsl.operator import Operator
from marin_dsl.settings import working_folder


class TargetMissing(LookupError):
    """A target names nothing that can be evaluated."""


def resolve(target: str) -> Any:
    """The expression or grid that a target names.

    A file is imported under the module path that it has in its package, so that its operators are the same ones as when
    another module imports them.

    Raises:
        TargetMissing: there is no such module, file or name, or it is no expression.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name:
        raise TargetMissing(f"`{target}` is no target; write package.module:name or path/to/file.py:name")
    importlib.invalidate_caches()
    module = _from_file(Path(place)) if place.endswith(".py") else _from_path(place)
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TargetMissing(f"{place} has no `{part}`{_suggestion(part, found)}")
        found = getattr(found, part)
    if not isinstance(found, Expression | Grid):
        what = "an operator" if isinstance(found, Operator) else f"a {type(found).__name__}"
        raise TargetMissing(f"{target} is {what}, not an expression; name the result of calling an operator")
    return found


def _suggestion(name: str, owner: Any) -> str:
    candidates = [key for key, value in getattr(owner, "__dict__", {}).items() if isinstance(value, Expression | Grid)]
    close = difflib.get_close_matches(name, candidates, 3) or candidates[:5]
    return f"; it has the expressions {', '.join(close)}" if close else "; it has no expressions"


def _from_path(module: str) -> ModuleType:
    folder = working_folder()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise TargetMissing(f"there is no module `{module}` here ({folder}) or among installed packages") from None


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetMissing(f"there is no file {path}")
    path = path.resolve()
    folder = path.parent
    while (folder / "__init__.py").exists():
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    name = ".".join(path.relative_to(folder).with_suffix("").parts)
    if not all(part.isidentifier() for part in name.split(".")):
        raise TargetMissing(f"{path} cannot be imported: `{name}` is no module name; rename the file")
    module = importlib.import_module(name)
    if Path(str(module.__file__)).resolve() != path:
        raise TargetMissing(
            f"{path} would be imported as `{name}`, and that is {module.__file__ or 'a built-in module'} already; "
            "rename the file, or put it into a package (a folder with __init__.py)"
        )
    return module
