"""Print the digests of the golden functions as JSON, under any Python: only the standard library and attrs are needed.

Usage: python golden_digests.py SRC_FOLDER [FOLDER_WITH_ATTRS]
"""

import importlib
import json
import sys
import types
from pathlib import Path


def standing_in(value: object) -> bytes:
    """An encoder for plain values, in place of `marin_dsl.encoding`, whose dependencies may not be there."""
    from marin_dsl.code_identity.normal_form import constant, framed

    if isinstance(value, list | set):
        parts = sorted(map(standing_in, value)) if isinstance(value, set) else list(map(standing_in, value))
    elif isinstance(value, dict):
        parts = sorted(standing_in(key) + standing_in(content) for key, content in value.items())
    elif isinstance(value, type(None) | bool | int | float | complex | str | bytes | tuple | frozenset):
        return constant(value)
    else:
        raise TypeError(type(value).__name__)
    return type(value).__name__.encode() + b"".join(map(framed, parts))


def digests(source: str, places: list[str]) -> dict[str, str]:
    """The digest of each golden function by name."""
    if "marin_dsl" not in sys.modules:
        package = types.ModuleType("marin_dsl")  # so that the other rooms are not imported
        package.__path__ = [str(Path(source) / "marin_dsl")]
        sys.modules["marin_dsl"] = package
    sys.path[:0] = [str(Path(__file__).parent), *places]
    from marin_dsl.code_identity import code_identity

    found = {}
    for function in importlib.import_module("golden").GOLDEN:
        name = getattr(function, "__name__", "half")
        found[name] = code_identity(function, encode=standing_in).digest.hex()
    return found


if __name__ == "__main__":
    print(json.dumps(digests(sys.argv[1], sys.argv[2:]), indent=4))
