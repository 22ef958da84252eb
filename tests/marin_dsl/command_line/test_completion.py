"""Completion by the tab key, by click's own machinery: commands, targets and labels, with nothing imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from marin_dsl.command_line import main
from tests.marin_dsl.command_line.project import marin


def completed(*words: str) -> list[str]:
    """What a shell offers for the last word."""
    found = ShellComplete(main, {}, "marin", "_MARIN_COMPLETE").get_completions([*words[:-1]], words[-1])
    return [item.value for item in found]


@pytest.mark.parametrize(("shell", "part"), [("bash", "complete -o nosort"), ("zsh", "compdef"), ("fish", "complete")])
def test_the_script_of_each_shell_is_printed(shell, part):
    done = marin("completion", shell)
    assert done.exit_code == 0
    assert part in done.output
    assert "_MARIN_COMPLETE" in done.output
    assert ("COMP_WORDBREAKS" in done.output) == (shell == "bash"), "in bash a colon must not cut a target in two"


def test_commands_and_options_are_completed():
    assert completed("fa") == ["failures"]
    assert "--keep-failures" in completed("run", "--k")


def test_modules_packages_files_and_the_names_in_them_are_completed(project):
    (project / "gallery").mkdir()
    (project / "gallery" / "first.py").write_text("page = 1\nTABLE = 2\n_own = 3\na, b = 4, 5\nother = 6\n")
    (project / "empty").mkdir()
    assert completed("run", "exp") == ["experiment:"]
    assert completed("plan", "") == ["experiment:", "gallery."]
    assert completed("plan", "gallery.") == ["gallery.first:"]
    assert completed("page", "gallery.first:") == ["gallery.first:page", "gallery.first:other"]
    assert completed("page", "gallery.first:p") == ["gallery.first:page"]
    assert completed("run", "gallery/fi") == ["gallery/first.py:"]
    assert completed("run", "gallery/first.py:o") == ["gallery/first.py:other"]
    assert "gallery.first" not in sys.modules


@pytest.mark.parametrize("target", ["nothing:", "broken:", "a.b.c:", "/:", "nothing.py:x"])
def test_what_cannot_be_read_completes_to_nothing(project, target):
    (project / "broken.py").write_text("x = = 1")
    assert completed("run", target) == []


def test_labels_are_completed_where_they_can_be_named(evaluated):
    assert completed("show", "a-") == ["a-page@1.0"]
    assert completed("log", "a") == ["a-page@1.0"]
    assert completed("run", "a-") == []
    assert completed("show", "--store", "elsewhere", "a-") == []
    assert completed("show", "--store", "memory://x", "a-") == []
    Path(".marin").rename("moved")
    Path(".marin").touch()
    assert completed("show", "a-") == []
