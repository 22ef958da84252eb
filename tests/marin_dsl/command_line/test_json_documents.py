"""The keys of the JSON documents are those that docs/commands.md names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.marin_dsl.command_line.project import MODULE, document, marin, write_module

GUIDE = Path(__file__).parents[3] / "docs" / "commands.md"
TYPED: dict[str, list[tuple[str, ...]]] = {
    "plan": [("experiment:again",), ("experiment:page",)],
    "run": [("experiment:good", "experiment:bad", "experiment:fail_alone", "--debug")],
    "page": [("experiment:page", "--debug")],
    "show": [("a-page@1.0",)],
    "why": [("experiment:again",)],
    "lineage": [("a-page@1.0",)],
    "diff": [("a-page@1.0", "experiment:again")],
    "failures": [()],
    "log": [(), ("a-page@1.0",)],
    "label list": [()],
    "label show": [("a-page@1.0",)],
    "label move": [("a-page@dev", "experiment:page")],
    "label log": [("a-page@1.0",)],
    "adopt": [("settings@1.0", "pyproject.toml")],
    "same": [("a-page@1.0", "experiment:again", "--why", "renamed")],
    "doctor": [()],
    "verify": [()],
    "gc": [()],
    "import": [("exported", "--store", "another")],
    "store copy": [(".marin", "elsewhere")],
}


def told(command: str) -> str:
    """What the table says of a command."""
    found = re.search(rf"^\| `{command}` \| (.*) \|$", GUIDE.read_text(), re.MULTILINE)
    assert found is not None, f"docs/commands.md says nothing of the document of marin {command}"
    return found[1]


@pytest.mark.parametrize("command", sorted(TYPED))
def test_the_keys_of_a_document_are_the_documented_ones(evaluated, command):
    (next((evaluated / ".marin" / "blobs").iterdir()) / "stray").touch()  # something for `verify` to find
    if command == "import":
        assert marin("export", "a-page@1.0", "exported").exit_code == 0
    if command == "plan":  # something that drifts
        write_module("experiment", MODULE.replace("2 * n", "n + n").replace('"A page"', '"Edited"'))
    found: set[str] = set()
    for words in TYPED[command]:
        typed = (*command.split(), *words)
        whole = document(*typed, code=marin(*typed, "--json").exit_code, command=command)
        for name in sorted(whole.keys() - {"schema", "command", "store"}):
            found |= {name} | keys_of_members(whole[name])
    assert found == set(re.findall(r"`(\w+)`", told(command)))


def keys_of_members(value: Any) -> set[str]:
    """The keys of the objects in a list."""
    return {key for item in value if isinstance(item, dict) for key in item} if isinstance(value, list) else set()


def test_the_keys_of_the_document_of_an_export_are_the_documented_ones(evaluated):
    """It cannot be asked twice for one folder."""
    whole = document("export", "a-page@1.0", "exported")
    found = {"exported"} | keys_of_members(whole["exported"])
    assert found == set(re.findall(r"`(\w+)`", told("export")))
