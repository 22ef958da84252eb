"""Training that is killed and goes on from a checkpoint, evaluation on the way, and rows of documents."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
from killed_training import CONFIG, OPTIMIZER, checkpoints, interval_mixture
from test_training import same
from tiny_models import ADAMW, SHORT, TINY, counting_stream, tiny_mixture

from marin_models import CheckpointDamaged, CheckpointMismatch, Checkpoints, Mixture, train
from marin_models.training import feed
from marin_models.training.loop import described_run

ONE = attrs.evolve(TINY, layers=1)


class Stopped(Exception):
    pass


def stopped_after(count, place, config, optimizer=ADAMW, **settings):
    """Train until so many chunks are done, and stop."""
    left = iter(range(count))

    def check():
        if next(left, None) is None:
            raise Stopped

    checkpoints = Checkpoints(place, every_steps=3)
    with pytest.raises(Stopped):
        train(ONE, optimizer, config, tiny_mixture(), checkpoints=checkpoints, check=check, **settings)


AVERAGED = attrs.evolve(ADAMW, average=0.9)


def held_out():
    return {"up": counting_stream(50), "down": counting_stream(40)[::-1]}


def test_training_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path):
    config = attrs.evolve(SHORT, evaluate_every=5)
    whole = train(ONE, AVERAGED, config, tiny_mixture(), held_out=held_out())
    stopped_after(2, tmp_path, config, AVERAGED, held_out=held_out())
    resumed = train(
        ONE, AVERAGED, config, tiny_mixture(), held_out=held_out(), checkpoints=Checkpoints(tmp_path, every_steps=3)
    )
    assert resumed.timing.resumed == 6
    assert [each.step for each in resumed.timing.checkpoints] == [9, 12]
    same(resumed, whole)
    for name, value in whole.average.items():
        np.testing.assert_array_equal(resumed.average[name], value)
    assert (whole.average["embedding"] != whole.parameters["embedding"]).any()
    assert resumed.evaluations.step.tolist() == [5, 10, 13]
    for name, losses in whole.evaluations.loss.items():
        np.testing.assert_array_equal(resumed.evaluations.loss[name], losses)
    assert (np.diff(resumed.timing.seconds) >= 0).all()
    again = train(ONE, AVERAGED, config, tiny_mixture(), checkpoints=Checkpoints(tmp_path), held_out=held_out())
    assert again.timing.resumed == 12
    same(again, whole)


def test_a_damaged_checkpoint_stops_training_and_another_run_is_refused(tmp_path):
    stopped_after(0, tmp_path, SHORT)
    with pytest.raises(CheckpointMismatch, match=r"another run; .*\n  training.seed: 3 when it was written, 4 now"):
        train(ONE, ADAMW, attrs.evolve(SHORT, seed=4), tiny_mixture(), checkpoints=Checkpoints(tmp_path))
    with pytest.raises(CheckpointMismatch, match=r"held-out tokens of up: None when it was written, '50, SHA-256 of"):
        train(ONE, ADAMW, SHORT, tiny_mixture(), checkpoints=Checkpoints(tmp_path), held_out=held_out())
    other = Mixture({name: (each + 1) % 17 for name, each in tiny_mixture().streams.items()}, tiny_mixture().weights)
    with pytest.raises(CheckpointMismatch, match=r"tokens of down: '200, SHA-256 of some \w+' when .*'200, SHA-256 of"):
        train(ONE, ADAMW, SHORT, other, checkpoints=Checkpoints(tmp_path))
    (tmp_path / "step-000000003/state.model.embedding/c/0/0").write_bytes(b"")
    with pytest.raises(CheckpointDamaged, match=r"step-000000003/state.model.embedding/c/0/0: 0 bytes, expected \d+"):
        train(ONE, ADAMW, SHORT, tiny_mixture(), checkpoints=Checkpoints(tmp_path))


def test_held_out_streams_are_evaluated_on_the_way_and_change_nothing():
    evaluated = train(ONE, ADAMW, attrs.evolve(SHORT, evaluate_every=4), tiny_mixture(), held_out=held_out())
    assert evaluated.evaluations.step.tolist() == [4, 8, 12, 13]
    assert evaluated.evaluations.loss["up"][-1] < evaluated.evaluations.loss["up"][0] < 3.5
    plain = train(ONE, ADAMW, SHORT, tiny_mixture())
    same(evaluated, plain)
    assert plain.evaluations.loss == {}
    assert len(plain.evaluations.step) == 0


def documents_mixture():
    streams = {name: counting_stream(120) for name in ("a", "b")}
    offsets = {"a": np.arange(0, 121, 5), "b": np.array([0, 3, 50, 51, 60, 120])}
    return Mixture(streams, {"a": 1, "b": 2}, offsets, separated=True)


def test_rows_of_whole_documents_are_trained_on_and_counted():
    config = attrs.evolve(SHORT, rows="documents", micro_batches=2)
    trained = train(ONE, ADAMW, config, documents_mixture())
    assert sum(trained.source_tokens.values()) == trained.curve.tokens[-1]
    assert trained.curve.tokens[-1] < 13 * 24
    assert 0.5 < trained.source_tokens["b"] / trained.curve.tokens[-1] < 0.8
    assert trained.curve.loss[-1] < trained.curve.loss[0]


def test_tokens_of_each_source_are_the_same_counted_in_parts(monkeypatch):
    read = feed.feed_of(documents_mixture(), attrs.evolve(SHORT, rows="documents"))
    whole = read.source_tokens(13)
    monkeypatch.setattr(feed, "COUNTED", 7)
    assert read.source_tokens(13) == whole


def test_borders_of_documents_belong_to_a_run_that_reads_documents():
    streams, documents = {"a": counting_stream(120)}, attrs.evolve(SHORT, rows="documents")
    mixtures = [Mixture(streams, {"a": 1}, {"a": np.array([0, border, 120])}) for border in (50, 51)]
    one, other = (described_run(ONE, ADAMW, documents, mixture, {}) for mixture in mixtures)
    assert [name for name in one if one[name] != other[name]] == ["documents' ends of a"]
    assert len({str(described_run(ONE, ADAMW, SHORT, mixture, {})) for mixture in mixtures}) == 1


def test_rows_of_documents_need_their_borders():
    with pytest.raises(
        ValueError, match='rows="documents" needs to know where documents begin; give the Mixture their'
    ):
        train(ONE, ADAMW, attrs.evolve(SHORT, rows="documents"), tiny_mixture())


@pytest.mark.long
def test_a_process_killed_at_any_moment_costs_nothing_but_time(tmp_path):
    whole = train(ONE, OPTIMIZER, CONFIG, interval_mixture())
    program = Path(__file__).parent / "killed_training.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    before = 0
    for written in range(3):  # nothing is asked of the first; each later one goes beyond the one before
        arguments = [sys.executable, str(program), str(tmp_path)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
        while process.stdout.readline() and written and max(checkpoints(tmp_path).steps(), default=0) <= before:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = max(checkpoints(tmp_path).steps(), default=0)
        assert before < CONFIG.steps - 10, "it ended before it was killed"
    resumed = train(ONE, OPTIMIZER, CONFIG, interval_mixture(), checkpoints=checkpoints(tmp_path))
    assert 0 < resumed.timing.resumed < CONFIG.steps
    same(resumed, whole)
