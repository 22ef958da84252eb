"""Ctrl-C ends the command quietly with 130 whenever it comes: also while the command is loaded, and while it prints."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src"

INTERRUPT = """
    import os, signal, sys

    class Interrupting:
        def find_spec(self, name, path=None, target=None):
            if name == {module!r}:
                os.kill(os.getpid(), signal.SIGINT)

    sys.meta_path.insert(0, Interrupting())
    from marin_command import main
    main()
"""


def python(script, *words):
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", textwrap.dedent(script), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)


@pytest.mark.parametrize("module", ["marin_dsl", "attr", "marin_dsl.store", "click", "marin_dsl.command_line.stores"])
def test_an_interrupt_while_the_command_is_loaded_is_quiet(module):
    done = python(INTERRUPT.format(module=module), "--version")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_without_an_interrupt_the_command_runs():
    done = python(INTERRUPT.format(module="nothing"), "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("marin ")


@pytest.mark.parametrize("name", ["document", "collect"])
def test_an_interrupt_while_a_command_works_or_prints_is_quiet(tmp_path, name):
    script = f"""
        import os, signal
        from marin_command import main
        from marin_dsl.command_line import stores

        def interrupted(*_, **__):
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                pass

        stores.{name} = interrupted
        main()
    """
    done = python(script, "gc", "--json", "--store", str(tmp_path / "store"))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_who_starts_it_so_that_interrupts_are_ignored_is_not_overruled():
    script = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + textwrap.dedent(
        INTERRUPT.format(module="click")
    )
    done = python(script, "--version")
    assert done.returncode == 0, done.stderr
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
