"""Training under the evaluator: killed, it goes on from its last checkpoint, and gives what it would have given."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from killed_experiment import MODEL, OPTIMIZER, TRAINING, experiment, stores

from library import training
from marin_dsl import Failed, context, evaluate
from marin_dsl.encoding import encode_with_leaves


def started(place):
    program = str(Path(__file__).parent / "killed_experiment.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    return subprocess.Popen([sys.executable, program, str(place)], env=environment, stdout=subprocess.PIPE, text=True)


def kill_when_it_has_a_checkpoint(process, place):
    while not list(place.glob("scratch/*/kept/checkpoints/step-*")):
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_killed_training_goes_on_and_gives_the_same_bytes(tmp_path):
    kill_when_it_has_a_checkpoint(started(tmp_path), tmp_path)
    told = json.loads(started(tmp_path).communicate()[0])
    found = stores()
    whole = training.train.function(
        found, {"words": 1.0}, model=MODEL, optimizer=OPTIMIZER, training=TRAINING, held_out=found
    )
    assert told["resumed"] > 0
    assert told["digest"] == encode_with_leaves(whole).digest.hex()
    assert told["tokens_per_second"] > 0
    assert list((tmp_path / "scratch").iterdir()) == []
    assert whole.evaluated.tolist() == [700, 1400, 1500]
    assert whole.held_out_bits["words"].max() < 8


def test_a_damaged_checkpoint_fails_the_node_and_names_the_file(tmp_path, monkeypatch):
    class Stop(Exception):
        pass

    def stop(*_, **__):
        raise Stop

    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    expression = experiment(stores())
    with monkeypatch.context() as patch:
        patch.setattr(type(context()), "progress", stop)
        assert isinstance(evaluate(expression, store=str(tmp_path), debug=True), Failed)
    (file,) = tmp_path.glob("scratch/*/kept/checkpoints/step-*/state.model.embedding/c/0/0")
    file.unlink()
    outcome = evaluate(expression, store=str(tmp_path), debug=True)
    assert isinstance(outcome, Failed)
    assert outcome.exception == "marin_models.checkpoints.manifest.CheckpointDamaged"
    assert f"{file}: no such file" in outcome.message
