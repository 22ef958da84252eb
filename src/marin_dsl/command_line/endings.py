"""How a command ends: exit codes for scripts, and one message instead of a traceback for what a user can mend."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

import click

from marin_dsl.evaluation.executors import SchedulerMissing
from marin_dsl.labels import DriftRefused, LabelConflict, LabelMoved
from marin_dsl.operator.signature import WrongCall
from marin_dsl.store import StoreUnavailable
from marin_dsl.target import TargetMissing

OK, FAILED, USAGE, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 3, 130


@contextlib.contextmanager
def complaints(*others: type[Exception]) -> Iterator[None]:
    """What a user can mend is one message, not a traceback.

    Args:
        others: what else the user of this command can mend.
    """
    mendable: tuple[type[Exception], ...] = (WrongCall, TargetMissing, LabelConflict, SchedulerMissing, *others)
    try:
        yield
    except mendable as error:
        stop(str(error), USAGE)
    except (DriftRefused, LabelMoved) as error:
        stop(str(error), FAILED)
    except StoreUnavailable as error:
        stop(str(error), UNAVAILABLE)
    except KeyboardInterrupt:
        # Operators may still be at work in threads that cannot be stopped; what was committed is safe.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(INTERRUPTED)


def stop(message: str, code: int) -> NoReturn:
    """End with a message on standard error."""
    click.echo(f"marin: {message}", err=True)
    sys.exit(code)
