"""Every annotated shape and dtype of the models and kernels is checked at run time while tests run.

The hook works on what is imported after it, so `tests/conftest.py` installs it before it imports anything else.
"""

import sys
from collections.abc import Iterator
from types import ModuleType

from jaxtyping import install_import_hook

CHECKED = ("marin_models", "marin_kernels")


def install() -> None:
    """Check what is imported from here on."""
    if early := sorted(module.__name__ for module in imported()):
        raise RuntimeError(f"imported before shapes are checked: {', '.join(early)}")
    install_import_hook(list(CHECKED), "beartype.beartype")


def imported() -> Iterator[ModuleType]:
    """The modules of the checked packages that are imported."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in CHECKED:
            yield module
