"""Commands that other packages add by entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import click
import pytest

from marin_dsl import command_line
from tests.marin_dsl.command_line.project import marin


@click.command(short_help="says hello")
def hello() -> None:
    """Say hello."""
    click.echo("hello")


@pytest.fixture
def elsewhere(monkeypatch):
    found = [
        EntryPoint("hello", f"{__name__}:hello", "marin.commands"),
        EntryPoint("broken", "no_such_module:command", "marin.commands"),
    ]
    monkeypatch.setattr(command_line, "entry_points", lambda group: found if group == "marin.commands" else [])


def test_a_command_of_another_package_runs_and_stands_in_the_help(elsewhere):
    assert marin("hello").output == "hello\n"
    text = marin("--help").output
    assert "From other packages" in text
    assert "says hello" in text


def test_a_command_that_cannot_be_loaded_is_told_and_breaks_no_other(elsewhere):
    done = marin("broken")
    assert done.exit_code == 1
    assert "the command 'broken' of no_such_module:command cannot be loaded: No module named" in done.output
    assert "cannot be loaded" in marin("--help").output
    assert marin("doctor", "--help").exit_code == 0


def test_without_other_packages_the_help_has_no_section_for_them(monkeypatch):
    monkeypatch.setattr(command_line, "entry_points", lambda group: [])
    assert "From other packages" not in marin("--help").output
    assert "No such command 'topology'" in marin("topology").output
