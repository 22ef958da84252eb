"""What the help says runs: each command shows an example, and the example does what it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from marin_dsl.command_line import main
from tests.marin_dsl.command_line.project import MODULE, marin, write_module


def commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """The words of every command."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        else:
            yield (*above, name)


EVALUATING = {("run",), ("page",)}


@pytest.mark.parametrize("words", sorted(commands(main)), ids=" ".join)
def test_the_examples_of_each_command_run(words, project):
    (project / "gallery").mkdir()
    (project / "gallery" / "__init__.py").touch()
    write_module("gallery/first_model", MODULE.replace("a-page", "first-model"))
    assert marin("run", "gallery.first_model:page", "--debug").exit_code == 0
    if words == ("import",):
        assert marin("export", "first-model@1.0", "exported").exit_code == 0
    shown = marin(*words, "--help")
    assert shown.exit_code == 0
    examples = re.findall(r"Example: (marin .*)", shown.output)
    assert examples, f"marin {' '.join(words)} --help shows no example"
    for example in examples:
        program, *typed = shlex.split(example)
        assert (program, tuple(typed[: len(words)])) == ("marin", words)
        done = marin(*typed, *(["--debug"] if words in EVALUATING else []))
        assert done.exit_code == 0, done.output
        assert done.output
        assert "\x1b" not in done.output


@pytest.mark.parametrize("words", [(), *sorted(commands(main))], ids=" ".join)
def test_help_fits_a_terminal_of_100_columns(words):
    shown = marin(
        *words,
        "--help",
    )
    assert all(len(line) <= 100 for line in shown.output.splitlines())
