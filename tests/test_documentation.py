"""The documentation is true: its Python blocks run and print what they say, its links lead somewhere."""

import doctest
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if "```python" in path.read_text()], ids=lambda p: p.name
)
def test_python_blocks_print_what_the_document_says(document, tmp_path):
    """In a process of its own, since the operators of a document are those of a script."""
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL))
    (tmp_path / "blocks.txt").write_text(blocks)
    script = (
        "import doctest, sys; "
        f"found = doctest.testfile('blocks.txt', module_relative=False, optionflags={FLAGS}); "
        "sys.exit(found.failed or not found.attempted)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_that_are_there(document):
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_the_commands_of_the_readme_are_those_of_the_makefile_and_of_marin():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for command in re.findall(r"^make ([a-z-]+)", readme, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
    from marin_dsl.command_line import main

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = {*main.commands, *project["entry-points"]["marin.commands"]}
    assert set(re.findall(r"^marin ([a-z]+) ", readme, re.MULTILINE)) == commands
