"""What an operator can ask for: scratch, log, progress, observations, random numbers, cancellation."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from marin_dsl import context
from marin_dsl.worker.context import KEPT_LINES, Cancelled, Context, TimedOut, entered


def test_scratch_is_an_empty_private_folder_that_goes_with_the_execution(tmp_path):
    with entered(Context(b"call", scratch_root=tmp_path / "scratch" / "call")) as current:
        place = context().scratch
        assert place is current.scratch
        assert list(place.iterdir()) == []
        assert place.parent == tmp_path / "scratch" / "call"
        for folder in (place, place.parent, place.parent.parent):
            assert folder.stat().st_mode & 0o777 == 0o700
        (place / "deep").mkdir()
        (place / "deep" / "file").write_text("x")
    assert not place.exists()


def test_two_executions_of_one_call_have_two_folders(tmp_path):
    one, other = (Context(b"call", scratch_root=tmp_path) for _ in range(2))
    (one.scratch / "file").write_text("x")
    assert list(other.scratch.iterdir()) == []
    one.close()
    assert other.scratch.is_dir()
    other.close()


def test_scratch_goes_after_a_failure_and_a_cancellation_too(tmp_path):
    for error in (ValueError, Cancelled, KeyboardInterrupt):
        current = Context(b"call", scratch_root=tmp_path)
        with pytest.raises(error), entered(current):
            _write_and_raise(current.scratch, error)
        assert list(tmp_path.iterdir()) == []


def _write_and_raise(scratch, error):
    (scratch / "file").write_text("x")
    raise error


def test_no_folder_is_made_for_who_does_not_ask(tmp_path):
    with entered(Context(b"call", scratch_root=tmp_path / "scratch")):
        pass
    assert not (tmp_path / "scratch").exists()


def test_outside_of_an_evaluation_a_stand_in_works():
    current = context()
    current.log("hello")
    current.progress(1, 2, loss=0.5)
    current.observe("seconds", 1.0)
    current.check()
    assert current.scratch.is_dir()
    assert current.rng().random() == context().rng().random()
    current.close()


def test_outside_of_an_evaluation_scratch_stays_while_the_process_runs_and_goes_with_it(tmp_path):
    program = (
        "from marin_dsl import context; import gc; place = context().scratch; gc.collect();"
        "(place / 'x').write_text('x'); print(place)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    place = Path(done.stdout.strip())
    assert place.parent == tmp_path
    assert not place.exists()


def test_what_is_kept_is_private_while_somebody_is_at_work_in_it_and_stays_afterwards(tmp_path):
    with entered(Context(b"call", scratch_root=tmp_path / "call")) as current:
        (current.kept / "checkpoint").touch()
        other = Context(b"call", scratch_root=tmp_path / "call")
        assert list(other.kept.iterdir()) == []
        other.close()
    again = Context(b"call", scratch_root=tmp_path / "call")
    assert [path.name for path in again.kept.iterdir()] == ["checkpoint"]
    again.close()
    with pytest.raises(TimedOut, match="let go of this call, so there is no kept folder for it any more"):
        Context.kept.func(again)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == [
        "call",
        "call/kept",
        "call/kept/checkpoint",
    ]


def test_without_a_disk_for_it_what_is_kept_goes_with_the_scratch_folder():
    current = Context(b"call")
    assert current.kept == current.scratch
    current.close()
    assert not current.kept.exists()


def test_contexts_nest_and_the_outer_one_comes_back():
    with entered(Context(b"outer")) as outer:
        with entered(Context(b"inner")) as inner:
            assert context() is inner
        assert context() is outer
    assert context() is not outer


def test_each_thread_has_its_own_context():
    seen = {}

    def run(name):
        with entered(Context(name)) as current:
            barrier.wait()
            seen[name] = context() is current

    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=run, args=(bytes([n]),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(seen.values()) == [True] * 4


def test_log_and_progress_are_reported_and_the_last_lines_are_kept():
    reported = []
    current = Context(b"call", report=lambda kind, content: reported.append((kind, content)))
    current.log("one\ntwo")
    current.progress(3, 10, loss=np.float32(0.5), step=np.int64(3), state="warm", shape=np.zeros(2))
    assert reported == [
        ("log", "one\ntwo"),
        ("progress", {"done": 3, "total": 10, "facts": {"loss": 0.5, "step": 3, "state": "warm", "shape": "[0. 0.]"}}),
    ]
    assert {type(fact) for fact in reported[1][1]["facts"].values()} == {float, int, str}
    assert list(current.lines) == ["one", "two"]
    for number in range(200):
        current.log(f"line {number}")
    assert list(current.lines) == [f"line {number}" for number in range(200 - KEPT_LINES, 200)]


def test_broken_characters_in_a_log_line_can_be_sent_on():
    current = Context(b"call")
    current.log("file \udcff")
    assert [line.encode() for line in current.lines] == [b"file \\udcff"]


def test_observations_are_kept_by_name():
    current = Context(b"call")
    current.observe("seconds", 1.5)
    current.observe("seconds", 2.5)
    current.observe("flops", 10)
    assert current.observations == {"seconds": 2.5, "flops": 10}


def test_random_numbers_depend_on_the_call_and_on_nothing_else():
    draws = [Context(call).rng().integers(0, 1 << 60, 5).tolist() for call in (b"a", b"b", b"a")]
    assert draws[0] == draws[2] != draws[1]
    np.random.seed(0)
    assert Context(b"a").rng().integers(0, 1 << 60, 5).tolist() == draws[0]


def test_random_numbers_are_the_same_for_ever():
    assert Context(bytes(32)).rng().integers(0, 1000, 5).tolist() == [965, 394, 755, 565, 867]


def test_checking_stops_a_cancelled_run_and_no_other():
    asked = []
    Context(b"call", cancelled=lambda: asked.append(1)).check()
    assert asked == [1]
    with pytest.raises(Cancelled, match=r"^the run was cancelled$"):
        Context(b"call", cancelled=lambda: True).check()


def test_a_cancellation_is_not_caught_as_an_error_of_the_operator():
    with pytest.raises(Cancelled), contextlib.suppress(Exception):
        Context(b"call", cancelled=lambda: True).check()
