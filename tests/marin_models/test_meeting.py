"""Processes that complete a checkpoint together, as threads here: all of them hear of the one that fails."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from marin_models.checkpoints import Checkpoints, folder
from marin_models.checkpoints.meeting import Meeting, OtherProcessFailed

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def together(place, *works, patience=60.0):
    """What the work of each process came to, given its meeting: None or what it raised."""

    def done(process):
        meeting = Meeting(place, "step-000000005", "-1-77", process, len(works), patience)
        try:
            with meeting.telling():
                works[process](meeting)
        except OSError as error:
            return error

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(done, range(len(works))))


def complete(meeting):
    meeting.wrote()
    meeting.await_all()
    (meeting.folder / meeting.checkpoint).mkdir()
    meeting.complete()


def follow(meeting):
    meeting.wrote()
    meeting.await_complete()
    assert (meeting.folder / meeting.checkpoint).exists()


def test_all_go_on_when_the_first_process_has_completed_it_and_nothing_is_left(tmp_path):
    assert together(tmp_path, complete, follow, follow) == [None, None, None]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000005"]


def test_what_the_first_process_met_is_raised_by_the_others(tmp_path):
    def seal(meeting):
        meeting.wrote()
        meeting.await_all()
        raise FULL

    first, *others = together(tmp_path, seal, follow, follow)
    assert first is FULL
    for error in others:
        assert isinstance(error, OtherProcessFailed)
        assert str(error) == (
            f"{tmp_path / 'step-000000005'}: process 0 met OSError: [Errno 28] No space left on device, so that this "
            "checkpoint is not complete; mend that and begin again: the run goes on from the one before it"
        )


def test_what_another_process_met_is_raised_by_the_first(tmp_path):
    def write(meeting):
        raise PermissionError(errno.EACCES, "Permission denied")

    first, second, _ = together(tmp_path, complete, follow, write)
    for error in (first, second):
        assert "step-000000005: process 2 met PermissionError: [Errno 13] Permission denied, so that" in str(error)


def test_nobody_waits_for_ever_for_a_process_that_says_nothing(tmp_path):
    begun = threading.Event()
    first, second = together(tmp_path, complete, lambda meeting: begun.set(), patience=0.1)
    assert begun.is_set()
    assert second is None
    assert str(first) == (
        f"{tmp_path / 'step-000000005'}: nothing was heard from process 1 within 0.1 seconds, so that this checkpoint "
        "is not complete; look whether it runs and sees the same folder, or give it longer (Checkpoints(patience=...))"
    )
    _, second = together(tmp_path / "other", lambda meeting: meeting.folder.mkdir(), late_follower, patience=0.1)
    assert "nothing was heard from process 0 within 0.1 seconds" in str(second)


def late_follower(meeting):
    while not meeting.folder.exists():
        pass
    follow(meeting)


def test_a_full_disk_takes_no_text_but_a_name(tmp_path, monkeypatch):
    def full(path, text):
        raise FULL

    def seal(meeting):
        monkeypatch.setattr(type(tmp_path), "write_text", full)
        raise FULL

    _, second = together(tmp_path, seal, follow)
    assert "process 0 met an error that it could not write down (its own output has it), so that" in str(second)


def test_a_folder_that_takes_nothing_hides_no_error(tmp_path):
    gone = tmp_path / "gone"

    def seal(meeting):
        raise FULL

    first, second = together(gone, seal, seal)
    assert first is second is FULL


def test_processes_that_save_raise_what_the_first_one_met(tmp_path, monkeypatch):
    """Two `Checkpoints` of one run; each knows which process it is."""
    places = threading.local()
    both = [Checkpoints(tmp_path) for _ in range(2)]
    both[1]._attempt = both[0]._attempt
    for process, checkpoints in enumerate(both):
        checkpoints._writer.submit(setattr, places, "process", process).result()
    monkeypatch.setattr(folder.jax, "process_count", lambda: 2)
    monkeypatch.setattr(folder.jax, "process_index", lambda: getattr(places, "process", 0))
    sealed = folder.seal

    def full(*_, **__):
        raise FULL

    monkeypatch.setattr(folder, "seal", full)
    for checkpoints in both:
        checkpoints.save(5, {})
    told = "step-000000005: process 0 met OSError: .Errno 28"
    for checkpoints, expected in zip(both, ("^.Errno 28", told), strict=True):
        with pytest.raises(OSError, match=expected):
            checkpoints._finish()
    monkeypatch.setattr(folder, "seal", sealed)
    for checkpoints in both:
        checkpoints.save(5, {})
    for checkpoints in both:
        checkpoints.close()
        assert checkpoints.steps() == (5,)
