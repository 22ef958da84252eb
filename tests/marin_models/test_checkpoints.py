"""Checkpoints: complete or absent, equal bit for bit, on another mesh too, and never silently wrong."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from simulated_devices import on_devices

from marin_models.checkpoints import CheckpointDamaged, CheckpointMismatch, Checkpoints, arrays, folder


class State(NamedTuple):
    weights: dict
    step: jax.Array
    key: jax.Array
    absent: None = None


def a_state(step=3):
    values = np.random.default_rng(step).normal(size=(8, 6)).astype(np.float32)
    weights = {
        "full": jnp.asarray(values),
        "half": jnp.asarray(values, jnp.bfloat16),
        "flags": jnp.asarray(values > 0),
        "nothing": jnp.zeros((0, 4)),
        "zeros": jnp.zeros(5),
        "nan": jnp.asarray([np.nan, -0.0, np.inf], jnp.float32),
    }
    return State(weights, jnp.asarray(step, jnp.int32), jax.random.key(step))


def bits(tree):
    leaves = jax.tree.leaves(
        jax.tree.map(lambda x: jax.random.key_data(x) if x.dtype == jax.random.key(0).dtype else x, tree)
    )
    return [(leaf.shape, str(leaf.dtype), np.asarray(leaf).tobytes()) for leaf in leaves]


def saved(place, *steps, **settings):
    checkpoints = Checkpoints(place, **settings)
    for step in steps:
        checkpoints.save(step, a_state(step), {"loss": np.arange(step, dtype=np.float32)}, run={"seed": 1})
    checkpoints.close()
    return checkpoints


def restored(place, like=None, **settings):
    return Checkpoints(place).restore(a_state(0) if like is None else like, run={"seed": 1}, **settings)


def test_a_state_comes_back_bit_for_bit_with_its_records(tmp_path):
    saved(tmp_path, 3)
    found = restored(tmp_path, jax.eval_shape(a_state))
    assert found.step == 3
    assert bits(found.state) == bits(a_state(3))
    assert jax.random.key_impl(found.state.key) == jax.random.key_impl(a_state().key)
    np.testing.assert_array_equal(found.records["loss"], np.arange(3, dtype=np.float32))


def test_without_a_checkpoint_nothing_is_restored(tmp_path):
    assert restored(tmp_path / "new") is None
    saved(tmp_path, 3)
    assert restored(tmp_path, step=4) is None


def test_the_last_ones_are_kept_and_each_can_be_restored(tmp_path):
    checkpoints = saved(tmp_path, 1, 2, 30, 4, keep=2)
    assert checkpoints.steps() == (4, 30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000004", "step-000000030"]
    assert restored(tmp_path).step == 30
    assert bits(restored(tmp_path, step=4).state) == bits(a_state(4))
    assert [each.step for each in checkpoints.written] == [1, 2, 30, 4]
    assert all(0 < each.blocked < each.seconds and each.bytes > 400 for each in checkpoints.written)


def test_training_goes_on_while_one_is_written_and_what_it_changes_is_not_in_it(tmp_path, monkeypatch):
    go_on, write = threading.Event(), folder.write_parts

    def slowly(*arguments):
        assert go_on.wait(60)
        write(*arguments)

    monkeypatch.setattr(folder, "write_parts", slowly)
    checkpoints = Checkpoints(tmp_path, every_seconds=0.0)
    state = {"x": jnp.arange(1000.0)}
    assert checkpoints.due(5)
    checkpoints.save(5, state)
    assert checkpoints.steps() == ()
    assert not checkpoints.due(6)
    change = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    jax.block_until_ready(change(change(state)))
    go_on.set()
    checkpoints.close()
    np.testing.assert_array_equal(Checkpoints(tmp_path).restore({"x": jnp.zeros(1000)}).state["x"], np.arange(1000.0))


def test_training_does_not_wait_while_an_older_one_is_removed(tmp_path, monkeypatch):
    may_go, removed, remove = threading.Event(), [], Checkpoints._remove

    def remove_later(checkpoints, step):
        may_go.wait(5)
        remove(checkpoints, step)
        removed.append(step)

    monkeypatch.setattr(Checkpoints, "_remove", remove_later)
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (1, 2, 3):
        checkpoints.save(step, a_state(step))
    assert removed == []
    may_go.set()
    checkpoints.close()
    assert removed == [1, 2]
    assert checkpoints.steps() == (3,)


def test_an_older_one_that_is_being_removed_is_not_restored(tmp_path, monkeypatch):
    remove = Checkpoints._remove

    def remove_slowly(checkpoints, step):
        time.sleep(0.3)
        remove(checkpoints, step)

    monkeypatch.setattr(Checkpoints, "_remove", remove_slowly)
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (1, 2):
        checkpoints.save(step, a_state(step))
    assert checkpoints.restore(a_state(0), step=1) is None
    assert checkpoints.restore(a_state(0)).step == 2
    checkpoints.close()


def test_what_cannot_be_removed_is_an_error_of_a_later_call(tmp_path, monkeypatch):
    def fail(checkpoints, step):
        raise PermissionError(f"step {step} stays")

    monkeypatch.setattr(Checkpoints, "_remove", fail)
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (1, 2):
        checkpoints.save(step, a_state(step))
    with pytest.raises(PermissionError, match="step 1 stays"):
        checkpoints.close()


def test_memory_is_reserved_before_it_is_needed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.reserve({"x": jnp.ones(10)})
    checkpoints.save(1, {"x": jnp.ones(10)})
    checkpoints.save(2, {"x": jnp.full(20, 2.0)})
    np.testing.assert_array_equal(checkpoints.restore({"x": jnp.zeros(20)}).state["x"], np.full(20, 2.0))
    np.testing.assert_array_equal(checkpoints.restore({"x": jnp.zeros(10)}, step=1).state["x"], np.ones(10))
    checkpoints.close()


def test_intervals_are_of_steps_or_of_seconds(tmp_path):
    by_steps = Checkpoints(tmp_path, every_steps=4)
    assert [step for step in range(1, 13) if by_steps.due(step)] == [4, 8, 12]
    assert not Checkpoints(tmp_path, every_seconds=1000.0).due(4)
    assert not Checkpoints(tmp_path).due(4)


def test_what_was_killed_while_it_was_written_is_absent_and_removed(tmp_path):
    saved(tmp_path, 3)
    shutil.copytree(tmp_path / "step-000000003", tmp_path / ".making-step-000000009-77")
    (tmp_path / ".part-step-000000009-0-77").touch()
    assert restored(tmp_path).step == 3
    saved(tmp_path, 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000003", "step-000000004"]


FILES = [
    "checkpoint.json",
    "records.loss/c/0",
    "records.loss/zarr.json",
    "state.step/c",
    "state.weights.flags/c/0/0",
    "state.weights.full/c/0/0",
    "state.weights.half/c/0/0",
    "state.weights.half/zarr.json",
    "state.weights.zeros/c/0",
]


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [os.unlink, cut, flip], ids=["gone", "cut", "flipped"])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, file, harm):
    saved(tmp_path, 2, 3)
    harm(tmp_path / "step-000000003" / file)
    with pytest.raises(CheckpointDamaged) as error:
        restored(tmp_path)
    assert f"step-000000003/{file}" in str(error.value)
    assert f"Remove {tmp_path}/step-000000003 to go on from the one before it, or all of {tmp_path} to" in str(
        error.value
    )


def test_a_newer_format_is_refused_with_advice(tmp_path):
    saved(tmp_path, 3)
    (tmp_path / "step-000000003" / "checkpoint.json").write_text('{"format": 2}')
    with pytest.raises(CheckpointMismatch, match="format 2, known up to 1: a newer version of marin_models wrote"):
        restored(tmp_path)


def test_a_state_of_another_structure_is_refused_with_all_differences(tmp_path):
    saved(tmp_path, 3)
    like = a_state()
    del like.weights["flags"]
    like.weights.update(more=jnp.zeros(3), zeros=jnp.zeros(6), half=like.weights["full"])
    with pytest.raises(CheckpointMismatch) as error:
        restored(tmp_path, like)
    assert str(error.value).splitlines()[1:] == [
        "  not in the checkpoint: state.weights.more float32[3]",
        "  only in the checkpoint: state.weights.flags bool[8, 6]",
        "  state.weights.half: bfloat16[8, 6] in the checkpoint, float32[8, 6] expected",
        "  state.weights.zeros: float32[5] in the checkpoint, float32[6] expected",
    ]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    saved(tmp_path, 3)
    with pytest.raises(
        CheckpointMismatch, match=r"another run; give this one a folder of its own:\n  seed: 1 when it .* 2 now"
    ):
        Checkpoints(tmp_path).restore(a_state(), run={"seed": 2})


def test_what_cannot_be_written_is_an_error_of_the_next_call(tmp_path):
    checkpoints = Checkpoints(tmp_path, every_seconds=0.0)
    (tmp_path / f".making-step-000000001-1-{checkpoints._attempt}").mkdir()
    (tmp_path / f".making-step-000000001-1-{checkpoints._attempt}" / "state.step").touch()
    checkpoints.save(1, a_state())
    with pytest.raises(OSError, match=r"the checkpoint cannot be written: .*Not a directory"):
        checkpoints.close()


@pytest.mark.parametrize("setting", ["keep", "every_steps"])
def test_an_interval_of_nothing_is_refused(tmp_path, setting):
    with pytest.raises(ValueError, match=f"Checkpoints: {setting} must be an integer above 0, not 0"):
        Checkpoints(tmp_path, **{setting: 0})


@pytest.mark.parametrize("setting", ["every_seconds", "patience"])
@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_seconds_that_are_none_are_refused(tmp_path, setting, seconds):
    with pytest.raises(ValueError, match=f"Checkpoints: {setting} must be a number of seconds, at least 0, not"):
        Checkpoints(tmp_path, **{setting: seconds})


def test_a_folder_that_is_none_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file is no folder; remove it, or give another place"):
        Checkpoints(tmp_path / "file")


def test_a_checkpoint_that_is_there_is_left_as_it_is(tmp_path):
    saved(tmp_path, 3)
    again = Checkpoints(tmp_path)
    again.save(3, a_state(4), run={"seed": 1})
    again.close()
    assert again.written == []
    assert bits(restored(tmp_path).state) == bits(a_state(3))


def test_checkpoints_that_were_closed_say_so(tmp_path):
    checkpoints = saved(tmp_path, 1)
    with pytest.raises(ValueError, match="are closed, as `train` leaves what it was given; make new ones for each run"):
        checkpoints.save(2, a_state())
    with pytest.raises(ValueError, match="are closed"):
        checkpoints.reserve(a_state())


@pytest.mark.parametrize("name", ["a/b", "../../up", "100%", "%2F"])
def test_a_name_is_never_a_path(tmp_path, name):
    checkpoints = Checkpoints(tmp_path / "here")
    checkpoints.save(1, {"one": jnp.ones(2)}, {name: np.arange(3)})
    checkpoints.close()
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    found = Checkpoints(tmp_path / "here").restore({"one": jnp.ones(2)})
    np.testing.assert_array_equal(found.records[name], np.arange(3))


@pytest.mark.parametrize("place", ["step-000000003", "step-000000003/checkpoint.json"])
def test_what_is_of_another_kind_than_it_was_is_damaged(tmp_path, place):
    saved(tmp_path, 3)
    if place.endswith("json"):
        (tmp_path / place).unlink()
        (tmp_path / place).mkdir()
    else:
        shutil.rmtree(tmp_path / place)
        (tmp_path / place).touch()
    with pytest.raises(CheckpointDamaged, match=r"checkpoint.json: (Is|Not) a directory; the checkpoint was changed"):
        restored(tmp_path)


def test_large_parts_are_written_in_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 64)
    saved(tmp_path, 3)
    assert len(list((tmp_path / "step-000000003" / "state.weights.full" / "c").rglob("*/*"))) > 2
    assert bits(restored(tmp_path).state) == bits(a_state(3))


def placed(mesh, spec):
    return jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, spec if x.ndim == 2 else P())), a_state(3))


@on_devices(8)
def test_a_state_is_restored_on_another_mesh_bit_for_bit(tmp_path):
    wide = jax.make_mesh((4, 2), ("data", "expert"))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, placed(wide, P(("data", "expert"))))
    checkpoints.save(4, placed(wide, P("data", "expert")))
    checkpoints.close()
    assert len(list((tmp_path / "step-000000003/state.weights.full/c").glob("*/0"))) == 8
    for step in (3, 4):
        other = placed(jax.make_mesh((8, 1), ("data", "expert")), P("data"))
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), other)
        found = Checkpoints(tmp_path).restore(like, step=step).state
        assert bits(found) == bits(a_state(3))
        assert [leaf.sharding for leaf in jax.tree.leaves(found)] == [leaf.sharding for leaf in jax.tree.leaves(other)]
        alone = Checkpoints(tmp_path).restore(jax.eval_shape(a_state), step=step).state
        assert bits(alone) == bits(a_state(3))
        assert len(alone.weights["full"].devices()) == 1


WRITER = """
import sys, numpy as np
from marin_models.checkpoints import Checkpoints
checkpoints = Checkpoints(sys.argv[1])
for step in range(1, 10**6):
    checkpoints.save(step, {"x": np.full(300_000, step), "y": np.full(300_000, step)})
    print(step, flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_complete_checkpoints_only(tmp_path):
    for kill_at in (2, 5):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if int(line) == kill_at:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = Checkpoints(tmp_path).restore({"x": np.zeros(300_000, int), "y": np.zeros(300_000, int)})
        assert found is None or (np.unique(found.state["x"]) == np.unique(found.state["y"]) == [found.step]).all()
        shutil.rmtree(tmp_path)
