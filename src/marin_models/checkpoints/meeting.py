"""Processes that complete one checkpoint together, and all hear of it when one of them cannot."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

_MOMENT = 0.05  # seconds between looks for what other processes have done


class OtherProcessFailed(OSError):
    """A checkpoint is not complete because of what another process met."""


@attrs.frozen
class Meeting:
    """What the processes that write one checkpoint tell each other, by files in the folder that they share.

    Each says that it has written its part; the first completes the checkpoint then, and takes these files away.

    Attributes:
        folder: of the checkpoints.
        checkpoint: name of the one that is written.
        suffix: of the names of all files, the same for all processes and for nothing else.
        process: which process this is.
        processes: how many there are.
        patience: seconds to wait for the others.
    """

    folder: Path
    checkpoint: str
    suffix: str
    process: int
    processes: int
    patience: float

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Tell the others what this process meets inside, if that is an error."""
        try:
            yield
        except OtherProcessFailed:
            raise  # which that has told itself
        except BaseException as error:
            self._tell(error)
            raise

    def wrote(self) -> None:
        """Say that this process has written its part."""
        self._part(self.process).touch()

    def await_all(self) -> None:
        """Wait until all have written their parts.

        Raises:
            OtherProcessFailed: one of them cannot.
            TimeoutError: one of them is not heard from.
        """
        self._wait(self._missing)

    def complete(self) -> None:
        """Say that the checkpoint is complete, and on the disk."""
        for process in range(self.processes):
            self._part(process).unlink()

    def await_complete(self) -> None:
        """Wait until the first process has completed it, so that all see the same checkpoints.

        Raises:
            OtherProcessFailed: one of them could not.
            TimeoutError: the first is not heard from.
        """
        self._wait(lambda: [0] if self._part(self.process).exists() else [])

    def _wait(self, missing: Callable[[], list[int]]) -> None:
        """Until no process is missing; one that is killed ends all, as JAX and gangs see to it."""
        ends = time.monotonic() + self.patience
        while processes := missing():
            failed = self._failed()
            if failed is not None:
                raise OtherProcessFailed(
                    f"{self.folder / self.checkpoint}: process {failed} met {self._told(failed)}, so that this "
                    "checkpoint is not complete; mend that and begin again: the run goes on from the one before it"
                )
            if time.monotonic() > ends:
                named = ", ".join(map(str, processes))
                raise TimeoutError(
                    f"{self.folder / self.checkpoint}: nothing was heard from process {named} within {self.patience:g} "
                    "seconds, so that this checkpoint is not complete; look whether it runs and sees the same folder, "
                    "or give it longer (Checkpoints(patience=...))"
                )
            time.sleep(_MOMENT)

    def _missing(self) -> list[int]:
        return [process for process in range(self.processes) if not self._part(process).exists()]

    def _failed(self) -> int | None:
        """The first process that said that it cannot go on."""
        return next((process for process in range(self.processes) if self._error(process).exists()), None)

    def _tell(self, error: BaseException) -> None:
        if self.processes == 1:
            return
        place = self._error(self.process)
        making = place.with_name(f".making{place.name}")
        # A folder that takes nothing at all leaves the others to their patience.
        with contextlib.suppress(OSError):
            try:
                making.write_text(f"{type(error).__name__}: {error}")
                making.rename(place)  # whole when it is seen
            except OSError:
                place.touch()  # a full disk often has room for a name

    def _told(self, process: int) -> str:
        text = self._error(process).read_text()
        return text or "an error that it could not write down (its own output has it)"

    def _part(self, process: int) -> Path:
        return self.folder / f".part-{self.checkpoint}-{process}{self.suffix}"

    def _error(self, process: int) -> Path:
        return self.folder / f".failed-{self.checkpoint}-{process}{self.suffix}"
