import pickle
import threading

import attrs
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import ADAMW, MUON, SHORT, TINY, counting_stream, tiny_mixture

from marin_models import Diverged, Mixture, OptimizerConfig, TrainingConfig, train, training, windows
from marin_models.divergence import DivergenceGuard
from marin_models.training import initial_model, loop


def same(one, other):
    """Bitwise equality of all that is deterministic."""
    np.testing.assert_equal(attrs.asdict(one.curve), attrs.asdict(other.curve))
    assert one.parameters.keys() == other.parameters.keys()
    for name, value in one.parameters.items():
        np.testing.assert_array_equal(value, other.parameters[name])
    assert one.source_tokens == other.source_tokens


@pytest.mark.parametrize("optimizer", [ADAMW, MUON], ids=["adamw", "muon"])
def test_a_model_learns_to_count(optimizer):
    longer = attrs.evolve(SHORT, steps=120)
    loss = train(TINY, optimizer, longer, tiny_mixture()).curve.loss
    assert abs(loss[0] - np.log(17)) < 0.5
    assert loss[-10:].mean() < 1.0


def test_equal_arguments_give_equal_bits():
    same(train(TINY, MUON, SHORT, tiny_mixture()), train(TINY, MUON, SHORT, tiny_mixture()))


def test_runs_on_threads_give_the_bits_that_they_give_alone():
    seeds = range(3)
    alone = [train(TINY, ADAMW, attrs.evolve(SHORT, seed=seed), tiny_mixture()) for seed in seeds]
    together = {}

    def run(seed):
        together[seed] = train(TINY, ADAMW, attrs.evolve(SHORT, seed=seed), tiny_mixture())

    threads = [threading.Thread(target=run, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in seeds:
        same(alone[seed], together[seed])


def test_the_length_of_compiled_chunks_changes_nothing(monkeypatch):
    ten = train(TINY, ADAMW, SHORT, tiny_mixture())
    monkeypatch.setattr(loop, "CHUNK", 4)
    four = train(TINY, ADAMW, SHORT, tiny_mixture())
    np.testing.assert_array_equal(four.curve.learning_rate, ten.curve.learning_rate)
    np.testing.assert_allclose(four.curve.loss, ten.curve.loss, rtol=1e-5)


def test_the_first_loss_is_that_of_the_fresh_model_on_the_first_windows():
    rows = windows(tiny_mixture(), seed=3, step=0, batch=4, length=6)
    logits = np.asarray(initial_model(3, config=TINY)(jnp.asarray(rows[:, :-1])), np.float64)
    chosen = np.take_along_axis(logits, rows[:, 1:, None].astype(int), axis=-1)[..., 0]
    wanted = np.mean(np.log(np.exp(logits).sum(-1)) - chosen)
    np.testing.assert_allclose(train(TINY, ADAMW, SHORT, tiny_mixture()).curve.loss[0], wanted, rtol=1e-5)


def test_arms_that_differ_in_numbers_alone_share_one_compiled_program():
    train(TINY, MUON, SHORT, tiny_mixture())
    before = training.train_chunk._cache_size()
    for rate, seed, steps, z_loss in ((0.1, 0, 3, 0.0), (0.5, 9, 12, 1e-3)):
        optimizer = OptimizerConfig("muon", rate, adam_learning_rate=rate / 2, weight_decay=rate, clip=None, decay=rate)
        train(TINY, optimizer, attrs.evolve(SHORT, seed=seed, steps=steps, z_loss=z_loss), tiny_mixture())
    assert training.train_chunk._cache_size() == before


def test_the_curve_has_a_point_per_step_and_times_apart():
    trained = train(TINY, ADAMW, SHORT, tiny_mixture())
    np.testing.assert_array_equal(trained.curve.step, np.arange(1, 14))
    np.testing.assert_array_equal(trained.curve.tokens, np.arange(1, 14) * 24)
    assert trained.curve.loss.shape == trained.curve.gradient_norm.shape == trained.timing.seconds.shape == (13,)
    assert (np.diff(trained.timing.seconds) >= 0).all()
    assert trained.timing.seconds[0] > 0
    assert trained.timing.compile_seconds > 0
    assert not hasattr(trained.curve, "seconds")
    np.testing.assert_allclose(trained.curve.learning_rate.max(), 0.02, rtol=1e-6)


def test_tokens_per_source_add_up_and_follow_the_weights():
    trained = train(TINY, ADAMW, attrs.evolve(SHORT, steps=120), tiny_mixture())
    assert sum(trained.source_tokens.values()) == trained.curve.tokens[-1]
    assert trained.source_tokens["up"] / trained.curve.tokens[-1] == pytest.approx(0.75, abs=0.08)


def test_progress_is_told_after_every_chunk_and_at_the_end():
    told = []
    trained = train(TINY, ADAMW, SHORT, tiny_mixture(), on_progress=lambda *facts: told.append(facts))
    assert [(step, tokens) for step, _, tokens in told] == [(10, 240), (13, 312)]
    assert [loss for _, loss, _ in told] == [float(trained.curve.loss[9]), float(trained.curve.loss[12])]


def test_a_check_that_raises_ends_the_training():
    class Cancelled(Exception):
        pass

    calls = []

    def check():
        calls.append(None)
        raise Cancelled

    with pytest.raises(Cancelled):
        train(TINY, ADAMW, attrs.evolve(SHORT, steps=1000), tiny_mixture(), check=check)
    assert len(calls) == 1


def test_a_far_too_high_learning_rate_is_stopped():
    reckless = OptimizerConfig("adamw", 30.0, clip=None)
    with pytest.raises(Diverged, match=r"diverged at step \d+: loss .* at learning rate .*; lower the learning rate"):
        train(TINY, reckless, attrs.evolve(SHORT, steps=1000), tiny_mixture())


def test_a_loss_that_is_not_finite_stops_at_once():
    with pytest.raises(Diverged, match=r"step 12: loss nan \(not finite\) at learning rate 0.2") as error:
        DivergenceGuard(1.0, 5).look(10, np.array([3.0, np.nan, 3.0]), np.array([0.1, 0.2, 0.3]))
    assert error.value.step == 12


def test_the_guard_waits_for_losses_in_a_row_across_chunks():
    guard = DivergenceGuard(margin=1.0, patience=3)
    rates = np.full(4, 0.5)
    guard.look(0, np.array([2.0, 3.5, 3.5, 2.0]), rates)
    guard.look(4, np.array([2.9, 2.9, 3.1, 3.1]), rates)
    with pytest.raises(Diverged, match=r"step 9: loss 4 \(above 3, the first loss plus 1, for 3 steps\)"):
        guard.look(8, np.array([4.0, 1.0, 1.0, 1.0]), rates)


def test_steps_that_were_skipped_count_when_they_come_in_a_row():
    guard = DivergenceGuard(margin=1.0, patience=3)
    losses, rates = np.array([2.0, np.nan, np.nan, 2.0]), np.full(4, 0.5)
    guard.look(0, losses, rates, np.isnan(losses))
    guard.look(4, losses[[0, 1, 2, 3]], rates, np.isnan(losses))
    with pytest.raises(Diverged, match=r"step 11: loss nan \(3 steps skipped in a row\)"):
        guard.look(8, np.full(4, np.nan), rates, np.ones(4, bool))


def test_a_divergence_survives_pickling():
    original = Diverged(3, 9.5, 0.1, "not finite")
    copy = pickle.loads(pickle.dumps(original))
    assert str(copy) == str(original)
    assert (copy.step, copy.loss, copy.learning_rate, copy.reason) == (3, 9.5, 0.1, "not finite")


def test_a_token_outside_the_vocabulary_is_refused():
    mixture = Mixture({"a": counting_stream(vocabulary=18)}, {"a": 1})
    with pytest.raises(ValueError, match="token 17 in the mixture is outside the model's vocabulary of 17; train with"):
        train(TINY, ADAMW, SHORT, mixture)
    signed = Mixture({"a": counting_stream().astype(np.int32) - 17}, {"a": 1})
    with pytest.raises(
        ValueError, match="token -17 in the mixture is outside the model's vocabulary of 17; train with"
    ):
        train(TINY, ADAMW, SHORT, signed)


def test_a_held_out_token_outside_the_vocabulary_is_refused_before_anything_is_compiled():
    message = "train: token 17 in the held-out stream 'other' is outside the model's vocabulary of 17; train with"
    with pytest.raises(ValueError, match=message):
        train(TINY, ADAMW, SHORT, tiny_mixture(), held_out={"other": counting_stream(vocabulary=18)})
    with pytest.raises(ValueError, match=r"the held-out stream 'other' is float64\[9\]; it must be 1-D integer tokens"):
        train(TINY, ADAMW, SHORT, tiny_mixture(), held_out={"other": np.zeros(9)})


def test_a_stream_shorter_than_a_window_is_refused_before_anything_is_compiled():
    mixture = Mixture({"a": counting_stream(6)}, {"a": 1})
    with pytest.raises(ValueError, match=r"streams are shorter: \{'a': 6\}"):
        train(TINY, ADAMW, SHORT, mixture)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1, not 0"),
        ({"batch": 1.5}, r"batch must be an integer of at least 1, not 1\.5"),
        ({"steps": 2**31}, "steps must be an integer from 1 to 2147483647, not 2147483648"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
        ({"seed": 2**31}, "seed must be an integer from 0 to 2147483647, not 2147483648"),
        ({"z_loss": -1e-4}, r"z_loss must be a finite number of at least 0, not -0\.0001"),
        ({"divergence_margin": 0}, "divergence_margin must be a finite number above 0, not 0"),
        ({"not_finite": "ignore"}, "not_finite must be one of 'stop', 'skip', not 'ignore'"),
        ({"batch": 6, "micro_batches": 4}, "6 rows cannot be cut into 4 micro_batches of one size; make batch a mult"),
        (
            {"cross_entropy": "fast"},
            "cross_entropy must be one of 'default', 'reference', 'chunked', 'blocked', not 'fast'",
        ),
    ],
)
def test_an_impossible_run_is_refused_with_what_is_possible(change, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**{"steps": 1, "batch": 1, "length": 1, **change})
