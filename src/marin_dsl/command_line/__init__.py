"""The `marin` command: thin; every command is one call into the other rooms."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from marin_dsl.command_line.asking import lineage, show, why
from marin_dsl.command_line.comparing import diff
from marin_dsl.command_line.completion import completion
from marin_dsl.command_line.endings import interrupted
from marin_dsl.command_line.exports import export, import_
from marin_dsl.command_line.health import doctor
from marin_dsl.command_line.labelling import adopt, label, same
from marin_dsl.command_line.printing import escape_what_cannot_be_spelled
from marin_dsl.command_line.records import failures, log
from marin_dsl.command_line.running import page, plan, run
from marin_dsl.command_line.stores import gc, store, verify
from marin_dsl.operator import installed_version

FAMILIES: dict[str, tuple[click.Command, ...]] = {
    "Evaluate": (plan, run, page),
    "Ask about one thing": (show, why, lineage, diff),
    "Name things": (label, adopt, same),
    "Look through the records": (failures, log),
    "Look after stores": (doctor, verify, gc, store),
    "Give away and take in": (export, import_),
    "Set up": (completion,),
}


ELSEWHERE = "marin.commands"
"""The entry points by which other packages add commands; the language knows none of them."""


def _elsewhere() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=ELSEWHERE)}


def _loaded(found: EntryPoint) -> click.Command:
    try:
        return found.load()
    except Exception as error:
        message = f"the command {found.name!r} of {found.value} cannot be loaded: {error}"
        raise click.ClickException(message) from error


class _Families(click.Group):
    """A group whose help lists its commands by what they are for; other packages add theirs by entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self.commands, *_elsewhere()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        found = _elsewhere().get(cmd_name)
        return None if found is None else _loaded(found)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # while a command prints, or its options are looked at
            interrupted()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.commands)
        for family, commands in FAMILIES.items():
            with formatter.section(family):
                formatter.write_dl([(f"{found.name:<{width}}", found.short_help or "") for found in commands])
        if others := _elsewhere():
            with formatter.section("From other packages"):
                formatter.write_dl([(f"{name:<{width}}", _summary(found)) for name, found in sorted(others.items())])


def _summary(found: EntryPoint) -> str:
    try:
        return _loaded(found).short_help or ""
    except click.ClickException as error:
        return error.message


@click.group(cls=_Families, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(installed_version("marin-dsl"), message="marin %(version)s")
def main() -> None:
    """Run experiments that are written as expressions, and see where their numbers came from.

    A TARGET is `package.module:name` or `path/to/file.py:name`, where name is an expression or a grid of them. What is
    recorded is also found by its label, NAME@VERSION, or by a DIGEST, of which the first digits are enough.

    Exit codes: 0 all is well, 1 something failed, 2 wrong usage, 3 the store cannot be used, 130 interrupted. Commands
    that only report exit with 0 whatever they report; `doctor` and `verify` with 1 when something is wrong.
    """
    escape_what_cannot_be_spelled()


for family in FAMILIES.values():
    for command in family:
        main.add_command(command)

__all__ = ["main"]
