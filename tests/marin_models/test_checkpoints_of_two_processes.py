"""Two processes that hold one state save it together, and it is complete or absent, whoever dies."""

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
import two_processes
from simulated_devices import on_devices

from marin_models.checkpoints import Checkpoints
from marin_models.mesh import make_mesh

HERE = Path(two_processes.__file__)


def begun(place, way):
    """Both processes, at work on a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE.parent)]),
    }
    return [
        subprocess.Popen(
            [sys.executable, str(HERE), str(rank), port, str(place), way],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]


def ended(processes):
    """What each printed; one that lost the other is killed, as a gang kills it."""
    while all(process.poll() is None for process in processes):
        time.sleep(0.05)
    if any(process.poll() for process in processes):
        for process in processes:
            process.kill()
    return [process.communicate(timeout=300)[0] for process in processes]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("two") / "checkpoints"
    processes = begun(place, "save_and_restore")
    printed = ended(processes)
    assert [process.returncode for process in processes] == [0, 0], "\n".join(printed)
    return place


def restored(place, mesh=None):
    return Checkpoints(place).restore(two_processes.described(mesh), run=two_processes.RUN)


def test_what_two_processes_saved_is_restored_by_both_and_by_one_alone(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["step-000000003", "step-000000004"]
    found = restored(saved)
    assert found.step == 4
    two_processes.check(found.state, 4)


def test_each_process_has_written_its_own_parts(saved):
    files = saved / "step-000000004" / "state.model.blocks.feed_forward.gate" / "c"
    assert len([path for path in files.rglob("*") if path.is_file()]) == 4


@on_devices(8)
def test_what_two_processes_saved_is_restored_on_another_mesh(saved):
    found = restored(saved, make_mesh(data=2, expert=2, model=2))
    assert len(found.state.model.embedding.devices()) == 8
    two_processes.check(found.state, 4)


@pytest.mark.parametrize(
    "way", [pytest.param("die_before_parts_are_written", marks=pytest.mark.long), "die_before_it_is_complete"]
)
def test_a_process_that_dies_before_a_checkpoint_is_complete_leaves_the_one_before(saved, tmp_path, way):
    place = shutil.copytree(saved, tmp_path / "checkpoints")
    processes = begun(place, way)
    printed = ended(processes)
    assert 9 in [process.returncode for process in processes], "\n".join(printed)
    assert any(path.name.startswith(".making-step-000000005") for path in place.iterdir()), "\n".join(printed)
    found = restored(place)
    assert found.step == 4
    two_processes.check(found.state, 4)
    checkpoints = Checkpoints(place)
    checkpoints.save(6, {"x": jax.numpy.zeros(3)})
    checkpoints.close()
    assert sorted(path.name for path in place.iterdir()) == ["step-000000004", "step-000000006"]


@pytest.mark.long
def test_what_the_first_process_met_is_raised_by_both(tmp_path):
    processes = begun(tmp_path, "fail_to_complete_it")
    printed = ended(processes)
    assert [process.returncode for process in processes] == [0, 0], "\n".join(printed)
    assert "0 raised [Errno 28] No space left on device" in printed[0]
    expected = f"1 raised {tmp_path / 'step-000000005'}: process 0 met OSError: [Errno 28] No space left on device, so"
    assert expected in printed[1]
