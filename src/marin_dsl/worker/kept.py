"""What an attempt at a call leaves for the next one: a folder on the disk of the store, until there is a result."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

KEPT = "kept"
"""The folder, among the scratch folders of a call, that its next attempt finds again."""


@contextlib.contextmanager
def kept_folder(scratch_root: Path | None) -> Iterator[Path]:
    """The folder of a call, with what an earlier attempt has left, unless somebody is at work in it.

    That can only be who was taken over from because it showed no sign of life: it may wake up, and must disturb nobody.

    Args:
        scratch_root: where scratch folders of the call lie; None for among the temporary files, for one attempt only.
    """
    if scratch_root is None:
        with tempfile.TemporaryDirectory(prefix="marin-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    folder = scratch_root / KEPT
    for place in (scratch_root.parent, scratch_root, folder):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with tempfile.TemporaryDirectory(prefix="marin-", dir=scratch_root, ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
    else:
        yield folder
        with contextlib.suppress(OSError):  # what is in it, the next attempt finds there
            folder.rmdir()
    finally:
        os.close(handle)


def forget(scratch_root: Path) -> None:
    """Remove what was left for the next attempt: there will be none."""
    shutil.rmtree(scratch_root / KEPT, ignore_errors=True)
