"""What belongs to the user's project and what is only named: the standard library, installed packages, this package."""

import functools
import importlib.metadata
import importlib.util
import os
import site
import sys
import sysconfig
import types

import attrs

_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_OWN_PACKAGE = __name__.partition(".")[0]
_SCRIPTS = ("__main__", "__mp_main__")


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    bases = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = {sysconfig.get_path(kind, vars=v) for kind in kinds for v in (None, bases)}
    folders |= {*site.getsitepackages(), site.getusersitepackages(), _OWN_FOLDER}
    return tuple(os.path.realpath(folder) + os.sep for folder in folders if folder)


@functools.lru_cache(maxsize=8192)
def is_installed(path: str) -> bool:
    """Whether a source file lies in the standard library, a site folder or this package."""
    real = os.path.realpath(path)
    return real.startswith(_installed_folders()) or not {"site-packages", "dist-packages"}.isdisjoint(
        real.split(os.sep)
    )


@attrs.frozen
class Territory:
    """The project of one operator: everything not installed, and `packages`, which count although they are."""

    packages: frozenset[str] = frozenset()

    @classmethod
    def of(cls, function: object) -> "Territory":
        """The project that a function belongs to: if it is installed itself, the packages of its distribution."""
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        top = _top(getattr(function, "__globals__", {}).get("__name__") or getattr(function, "__module__", "") or "")
        if code is None or not is_installed(code.co_filename) or top in sys.stdlib_module_names or top == _OWN_PACKAGE:
            return cls()
        return cls(_packages_installed_with(top))

    def holds_module(self, name: str) -> bool:
        """Whether the module of this name is the project's; it need not be imported."""
        top = _top(name)
        if name in _SCRIPTS or top in self.packages:
            return True
        if top in sys.stdlib_module_names or top == _OWN_PACKAGE:
            return False
        return not any(is_installed(place) for place in _places(name))

    def holds_function(self, function: types.FunctionType) -> bool:
        """Whether a function's code stands in the project; what `functools.wraps` made it claim does not matter."""
        filename = function.__code__.co_filename
        module = function.__globals__.get("__name__") or ""
        if _top(module) in self.packages:
            return True
        if filename.startswith("<"):
            return self.holds_module(module)
        return not is_installed(filename)

    def holds_class(self, kind: type) -> bool:
        """Whether a class is defined in the project."""
        module = getattr(kind, "__module__", "") or "builtins"
        # What `make_dataclass` and `new_class` make, for whoever calls them, claims to be theirs.
        return (module == "types" and importable(kind) is None) or self.holds_module(module)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _places(name: str) -> list[str]:
    """Where a module's files are; nothing for one that came from no file, as in a prompt."""
    module = sys.modules.get(name) or sys.modules.get(_top(name))
    if module is None:
        try:
            spec = importlib.util.find_spec(_top(name))
        except (ImportError, ValueError, AttributeError):
            return []
        found = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
    else:
        found = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return [place for place in found if isinstance(place, str)]


@functools.cache
def _packages_installed_with(package: str) -> frozenset[str]:
    owners = importlib.metadata.packages_distributions()
    mine = set(owners.get(package, ()))
    return frozenset({package} | {other for other, names in owners.items() if mine & set(names)})


def public_name(module: str | None, qualified_name: str) -> str:
    """A third party's name without the private modules in it, which move between versions: `pathlib._local.Path`."""
    first, *rest = (module or "").split(".")
    kept = [first.removeprefix("_"), *(part for part in rest if not part.startswith("_"))]
    return ".".join([*kept, qualified_name])


def importable(value: object) -> str | None:
    """The public name under which third-party code can be imported, or None (made while running)."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return public_name(module, name) if found is value else None
