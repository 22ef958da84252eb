"""`python -m marin_dsl` is the `marin` command."""

from marin_dsl.command_line import main

main(prog_name="marin")
