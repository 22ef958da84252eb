"""Where the `marin` command begins, before anything of it is loaded: an interrupt is quiet from then on."""

import os
import signal
from typing import Any

INTERRUPTED = 130


def main() -> None:
    """Load the command and run it."""
    # An exception would be raised in the middle of somebody's import, and shown with all that was being imported.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from marin_dsl.command_line import main as command

    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command(prog_name="marin")


def _end(*_: Any) -> None:
    os._exit(INTERRUPTED)
