"""How a command ends: exit codes for scripts, and one message instead of a traceback for what a user can mend."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import types
from collections.abc import Iterator
from typing import NoReturn

import click

from marin_dsl import target
from marin_dsl.encoding import LeafMissing
from marin_dsl.evaluation.executors import SchedulerMissing
from marin_dsl.evaluation.worker_processes import WorkersCannotStart
from marin_dsl.labels import DriftRefused, LabelConflict, LabelMoved
from marin_dsl.operator.signature import WrongCall
from marin_dsl.settings import SettingWrong
from marin_dsl.store import StoreUnavailable
from marin_dsl.target import TargetMissing

OK, FAILED, USAGE, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 3, 130


@contextlib.contextmanager
def complaints(*others: type[Exception]) -> Iterator[None]:
    """What a user can mend is one message, not a traceback.

    Args:
        others: what else the user of this command can mend.
    """
    mendable: tuple[type[Exception], ...] = (
        *(WrongCall, TargetMissing, LabelConflict, SchedulerMissing, WorkersCannotStart, SettingWrong),
        *others,
    )
    try:
        yield
    except mendable as error:
        stop(str(error), USAGE)
    except (DriftRefused, LabelMoved, LeafMissing) as error:
        stop(str(error), FAILED)
    except StoreUnavailable as error:
        stop(str(error), UNAVAILABLE)
    except KeyboardInterrupt:
        interrupted()
    except Exception as error:
        if not _was_loading(error):
            raise
        traceback.print_exception(type(error), error, _of_the_user(error.__traceback__))
        stop("the module of the target could not be loaded; what it raised is above", FAILED)


def interrupted() -> NoReturn:
    """End at once, without a word: whoever pressed Ctrl-C knows."""
    # Operators may still be at work in threads that cannot be stopped; what was committed is safe.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(INTERRUPTED)


def _was_loading(error: Exception) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__") == target.__name__ for frame, _ in frames)


def _of_the_user(found: types.TracebackType | None) -> types.TracebackType | None:
    """What a traceback has after the frames of this command and of the import; nothing of a text that is no Python."""
    own = None
    while found is not None:
        code, module = found.tb_frame.f_code, found.tb_frame.f_globals.get("__name__", "")
        ours = code.co_filename.startswith("<frozen") or module.partition(".")[0] in ("marin_dsl", "click", "importlib")
        own = None if module == target.__name__ else own or (None if ours else found)
        found = found.tb_next
    return own


def stop(message: str, code: int) -> NoReturn:
    """End with a message on standard error."""
    click.echo(f"marin: {message}", err=True)
    sys.exit(code)
