"""The `marin` command: thin; every command is one call into the other rooms."""

from __future__ import annotations

import click

from marin_dsl.command_line.asking import lineage, show, why
from marin_dsl.command_line.completion import completion
from marin_dsl.command_line.health import doctor
from marin_dsl.command_line.records import failures, log
from marin_dsl.command_line.running import page, plan, run
from marin_dsl.operator import installed_version


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(installed_version("marin-dsl"), message="marin %(version)s")
def main() -> None:
    """Run experiments that are written as expressions, and see where their numbers came from.

    A TARGET is `package.module:name` or `path/to/file.py:name`, where name is an expression or a grid of them. What is
    recorded is also found by its label, NAME@VERSION, or by a DIGEST, of which the first digits are enough.

    Exit codes: 0 all is well, 1 something failed, 2 wrong usage, 3 the store cannot be used, 130 interrupted. Commands
    that only report exit with 0 whatever they report, except `doctor`.
    """


for command in (plan, run, page, show, why, lineage, failures, log, doctor, completion):
    main.add_command(command)

__all__ = ["main"]
