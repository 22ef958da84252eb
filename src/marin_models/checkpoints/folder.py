"""The checkpoints of one run in a folder."""

import contextlib
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import attrs
import jax
import numpy as np
from jaxtyping import PyTree

from marin_models.checkpoints.arrays import Part, Staging, described, named_arrays, read_array, read_tree, write_parts
from marin_models.checkpoints.manifest import check_run, read_manifest, seal, sync_folder
from marin_models.checkpoints.meeting import Meeting

_COMPLETE = re.compile(r"step-(\d+)")
_STATE, _RECORDS = "state", "records"
_DONE, _LATE = 1, 2
PATIENCE = 1800.0
"""Seconds to wait for what other processes write."""


class Restored(NamedTuple):
    """What a checkpoint holds.

    Attributes:
        step: it was taken after so many steps.
        state: the tree of arrays.
        records: further arrays by name.
    """

    step: int
    state: PyTree
    records: dict[str, np.ndarray]


@attrs.frozen
class Written:
    """One checkpoint that was written.

    Attributes:
        step: it was taken after so many steps.
        bytes: of all its files.
        blocked: seconds during which training waited for it.
        seconds: from its beginning until it was complete.
    """

    step: int
    bytes: int
    blocked: float
    seconds: float


class Checkpoints:
    """The checkpoints of one run: written while training goes on, complete or absent, and checked when they are read.

    A checkpoint is a folder ``step-<number>`` that appears at once, when all its files are on the disk, with their
    sizes and checksums in ``checkpoint.json``. Only the copy out of the devices' memory makes training wait. All
    processes of a run (`jax.distributed`) share the folder, and each writes what its devices hold; they make the same
    calls, and the first process completes a checkpoint when all have written. What one of them meets is raised by all.

    Args:
        folder: nobody else writes in it; it is made when it does not exist.
        keep: complete checkpoints that stay; older ones are removed.
        every_steps: steps between two checkpoints; None: none because of steps.
        every_seconds: seconds between the beginnings of two checkpoints, about; None: none because of time.
        patience: seconds to wait for what other processes write.

    Attributes:
        written: what this process has completed so far.

    Raises:
        ValueError: ``keep`` or ``every_steps`` is no integer above 0, or seconds are no number of at least 0.
        NotADirectoryError: the folder is something else.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        keep: int = 2,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        patience: float = PATIENCE,
    ) -> None:
        _check_settings(keep, every_steps, every_seconds, patience)
        self.folder = Path(folder).absolute()
        self.keep, self.every_steps, self.every_seconds = keep, every_steps, every_seconds
        self.patience = patience
        self.written: list[Written] = []
        self._staging = Staging()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._pending: Future | None = None
        self._removal: Future | None = None
        self._began = time.monotonic()
        self._saves = 0
        self._attempt = _agreed(uuid.uuid4().int % 2**31)
        self._closed = False
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"Checkpoints: {self.folder} is no folder; remove it, or give another place")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def steps(self) -> tuple[int, ...]:
        """After how many steps the complete checkpoints were taken, in ascending order."""
        found = (_COMPLETE.fullmatch(path.name) for path in self.folder.iterdir())
        return tuple(sorted(int(match[1]) for match in found if match))

    def reserve(self, state: PyTree) -> None:
        """Prepare the memory that `save` needs, in the background."""
        self._check_open()
        arrays = {f"{_STATE}.{name}": array for name, array in named_arrays(state).items()}
        self._pending = self._writer.submit(self._staging.reserve, Staging.needs(arrays))

    def due(self, step: int) -> bool:
        """Whether it is time for one; never while the last one is still being written because of time.

        Raises:
            OSError: the last one could not be written. Several processes that take none because of time say so when
                the next one is taken, all at the same step: one that ended before would leave the others waiting.
        """
        done = self._pending is not None and self._pending.done()
        if done and jax.process_count() == 1:
            self._finish()
        if self.every_steps is not None and step % self.every_steps == 0:
            return True
        if self.every_seconds is None:
            return False
        late = (done or self._pending is None) and time.monotonic() - self._began >= self.every_seconds
        agreed = _agreed(_DONE * done | _LATE * late)
        if agreed & _DONE:
            self._finish()
        return bool(agreed & _LATE)

    def save(
        self, step: int, state: PyTree, records: Mapping[str, np.ndarray] | None = None, *, run: Mapping | None = None
    ) -> None:
        """Take a checkpoint; it is complete some time later.

        Args:
            step: steps done so far; one of this step that is there already is left as it is.
            state: a tree of arrays; it may be changed or donated when this returns.
            records: further arrays by name, of which a restored run cannot know the shapes.
            run: what tells this run from others, as JSON.

        Raises:
            OSError: this one, or the one before it, could not be written.
        """
        self._check_open()
        self._began = began = time.monotonic()
        self._finish()
        if step in self.steps():
            return
        arrays = {f"{_STATE}.{name}": array for name, array in named_arrays(state).items()}
        arrays |= {f"{_RECORDS}.{name}": np.asarray(array) for name, array in (records or {}).items()}
        parts = self._staging.copied(arrays)
        blocked = time.monotonic() - began
        self._saves += 1
        write = partial(self._write, step, parts, described(arrays), run or {})
        self._pending = self._writer.submit(write, self._saves, began, blocked)

    def restore(self, like: PyTree, *, step: int | None = None, run: Mapping | None = None) -> Restored | None:
        """The state of the last complete checkpoint, or of the one after ``step`` steps.

        Args:
            like: arrays, or ``jax.ShapeDtypeStruct`` with shardings where arrays belong on a mesh; the mesh may be
                another one than that of the run that wrote.
            step: which one; None: the last.
            run: what tells this run from others.

        Returns:
            None: there is none.

        Raises:
            CheckpointDamaged: a file is missing or not what was written; nothing else is tried.
            CheckpointMismatch: it was written by another run, or its arrays are not those of ``like``.
        """
        self._finish()
        self._finish_removal()
        there = self.steps()
        if not there or (step is not None and step not in there):
            return None
        step = there[-1] if step is None else step
        folder = self.folder / _name(step)
        manifest = read_manifest(folder)
        check_run(manifest, run or {}, folder)
        state = read_tree(folder, like, _STATE, manifest["arrays"])
        names = [name for name in manifest["arrays"] if name.startswith(f"{_RECORDS}.")]
        return Restored(step, state, {name.removeprefix(f"{_RECORDS}."): read_array(folder, name) for name in names})

    def close(self) -> None:
        """Wait until the last one is complete.

        Raises:
            OSError: it could not be written.
        """
        self._closed = True
        try:
            self._finish()
            self._finish_removal()
        finally:
            self._writer.shutdown()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(
                f"Checkpoints: these ones of {self.folder} are closed, as `train` leaves what it was given; make new "
                "ones for each run, of the same folder to go on"
            )

    def _finish(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
        if self._removal is not None and self._removal.done():
            self._finish_removal()

    def _finish_removal(self) -> None:
        removal, self._removal = self._removal, None
        if removal is not None:
            removal.result()

    def _write(
        self, step: int, parts: list[Part], arrays: Mapping, run: Mapping, number: int, began: float, blocked: float
    ) -> None:
        if not self.written and jax.process_index() == 0:
            self._remove_leftovers()
        suffix = f"-{number}-{self._attempt}"
        meeting = Meeting(self.folder, _name(step), suffix, jax.process_index(), jax.process_count(), self.patience)
        with meeting.telling():
            making = self.folder / f".making-{_name(step)}{suffix}"
            making.mkdir(mode=0o700, exist_ok=True)
            write_parts(making, parts)
            meeting.wrote()
            if meeting.process != 0:
                meeting.await_complete()
                return
            meeting.await_all()
            size = seal(making, step=step, run=run, arrays=arrays)
            making.rename(self.folder / _name(step))
            sync_folder(self.folder)
            meeting.complete()
        self.written.append(Written(step, size, blocked, time.monotonic() - began))
        # After this, and before the next one is written: what waits for this one does not wait for the removal.
        self._removal = self._writer.submit(self._remove_older)

    def _remove_older(self) -> None:
        for old in self.steps()[: -self.keep]:
            self._remove(old)

    def _remove_leftovers(self) -> None:
        """Remove what somebody who was killed had begun."""
        for left in self.folder.glob(".*-step-*"):
            if not left.name.endswith(f"-{self._attempt}"):
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)

    def _remove(self, step: int) -> None:
        leaving = self.folder / f".leaving-{_name(step)}-{self._attempt}"
        with contextlib.suppress(FileNotFoundError):
            (self.folder / _name(step)).rename(leaving)  # at no moment does half of it look complete
        shutil.rmtree(leaving, ignore_errors=True)


def _check_settings(keep: int, every_steps: int | None, every_seconds: float | None, patience: float) -> None:
    for name, value in (("keep", keep), ("every_steps", every_steps)):
        if value is None and name != "keep":
            continue
        if type(value) is not int or value < 1:
            raise ValueError(f"Checkpoints: {name} must be an integer above 0, not {value!r}")
    for name, seconds in (("every_seconds", 0.0 if every_seconds is None else every_seconds), ("patience", patience)):
        if not (isinstance(seconds, int | float) and seconds >= 0):
            raise ValueError(f"Checkpoints: {name} must be a number of seconds, at least 0, not {seconds!r}")


def _name(step: int) -> str:
    return f"step-{step:09d}"


def _agreed(value: int) -> int:
    """What the first process says; the others ask it."""
    if jax.process_count() == 1:
        return value
    from jax.experimental import multihost_utils

    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))
