"""Training a language model on token stores, as an operator."""

import math
from collections.abc import Mapping

import attrs
import numpy as np

from library.token_store import TokenStore, open_token_store
from marin_dsl import context, encodable, op
from marin_models import (
    Checkpoints,
    Mixture,
    MixtureOfExpertsConfig,
    OptimizerConfig,
    RotaryScaling,
    RouterCurve,
    Timing,
    TrainingConfig,
    TransformerConfig,
    flops_per_token,
    known_peak_flops,
    throughput,
)
from marin_models import train as train_model

CHECKPOINT_SECONDS = 60.0  # what a killed run loses at most, about

for _config in (
    MixtureOfExpertsConfig,
    RotaryScaling,
    RouterCurve,
    TransformerConfig,
    OptimizerConfig,
    TrainingConfig,
):
    encodable(name=f"marin:{_config.__name__}")(_config)


@encodable
@attrs.frozen(eq=False)
class Run:
    """A trained model and how it got there; equal arguments give equal bits on one machine.

    Attributes:
        model: shape of the model.
        parameters: by dotted name, fp32.
        router_bias: the balancing bias in force at the end, fp32 of shape [routed layers, experts]; None: balancing
            moves none.
        step: 1-based optimizer step of each point, int64 of shape [steps].
        tokens: tokens predicted up to each point, int64 of shape [steps].
        loss: cross-entropy of each step's batch in nats per token, fp32 of shape [steps].
        gradient_norm: before clipping, fp32 of shape [steps].
        skipped: steps that updated nothing (see `TrainingConfig.not_finite`), bool of shape [steps].
        attention_peak: the largest logit of attention before each update, fp32 of shape [steps]; None: not measured
            (see `OptimizerConfig.query_key_clip`).
        evaluated: after how many steps the held-out stores were evaluated, int64 of shape [evaluations].
        held_out_loss: nats per token of each held-out store, fp64 of shape [evaluations].
        held_out_bits: the same in bits per byte of text.
        source_tokens: tokens drawn from each token store.
        flops: floating-point operations of the whole run, from the model's shape.
        average: moving average of the parameters, by the same names; None: none was kept (see
            `OptimizerConfig.average`).
        router: what the routed layers reported at each step: MaxVio, entropy of load, losses, drops; None: there are
            none.
    """

    model: TransformerConfig
    parameters: dict[str, np.ndarray]
    router_bias: np.ndarray | None
    step: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    skipped: np.ndarray
    attention_peak: np.ndarray | None
    evaluated: np.ndarray
    held_out_loss: dict[str, np.ndarray]
    held_out_bits: dict[str, np.ndarray]
    source_tokens: dict[str, int]
    flops: float
    average: dict[str, np.ndarray] | None = attrs.field(default=None, metadata={"neutral": True})
    router: RouterCurve | None = attrs.field(default=None, metadata={"neutral": True})


class VocabularyMismatch(ValueError):
    """The token stores and the model speak of different vocabularies."""


def check_vocabulary(what: str, vocabulary: int, model: TransformerConfig) -> None:
    """Raise `VocabularyMismatch` where tokens of a vocabulary are not those of a model."""
    if vocabulary != model.vocabulary:
        raise VocabularyMismatch(
            f"the {what} have a vocabulary of {vocabulary} and the model one of {model.vocabulary}; give the model the "
            "tokenizer's vocabulary"
        )


@op(resources={"CPU": 1}, pin=["jax", "jaxlib", "optax"])
def train(
    stores: Mapping[str, TokenStore],
    weights: Mapping[str, float],
    *,
    model: TransformerConfig,
    optimizer: OptimizerConfig,
    training: TrainingConfig,
    held_out: Mapping[str, TokenStore] | None = None,
) -> Run:
    """Train a transformer on a mixture of token stores, from scratch or from where an earlier attempt was killed.

    Checkpoints go to `context().kept` about every minute. Wall-clock seconds at each step, the compile time, tokens per
    second, the share of the hardware's peak (where it is known) and the step that training went on from are observed
    beside the result.

    Args:
        stores: tokens by domain.
        weights: how much of training each domain makes up; domains without a store are left out and the rest keeps
            its proportions.
        model: shape of the model.
        optimizer: rule, learning rates and schedule.
        training: length, batch and seed.
        held_out: tokens by domain that are evaluated on the way, as ``training`` says.

    Raises:
        Diverged: the loss left the region from which it could come back.
        VocabularyMismatch: a store's vocabulary is not the model's.
        ValueError: a store has no weight, or ``optimizer`` clips queries and keys (``query_key_clip``), and ``model``
            normalizes them.
        TokenStoreDamaged: a store is not what its ledger says.
        CheckpointDamaged: the last checkpoint of an earlier attempt was changed or cut; the message names the file.
    """
    held_out = held_out or {}
    for name, store in (*stores.items(), *held_out.items()):
        check_vocabulary(f"tokens of {name!r}", store.vocabulary, model)
    if without := sorted(stores.keys() - weights.keys()):
        raise ValueError(
            f"train: {', '.join(map(repr, without))} has no weight among those of {', '.join(map(repr, weights))}; say "
            "how much of training each store makes up, or leave it out"
        )
    current = context()
    trained = train_model(
        model,
        optimizer,
        training,
        _mixture(stores, weights),
        held_out={name: open_token_store(store).tokens for name, store in held_out.items()},
        checkpoints=Checkpoints(current.kept / "checkpoints", every_seconds=CHECKPOINT_SECONDS),
        on_progress=lambda step, loss, tokens: current.progress(step, training.steps, loss=loss),
        check=current.check,
    )
    curve, evaluations = trained.curve, trained.evaluations
    flops = float(flops_per_token(model, training.length))
    _observe(trained.timing, int(curve.tokens[-1]), flops)
    return Run(
        model=model,
        parameters=trained.parameters,
        router_bias=trained.router_bias,
        step=curve.step,
        tokens=curve.tokens,
        loss=curve.loss,
        gradient_norm=curve.gradient_norm,
        skipped=curve.skipped,
        attention_peak=curve.attention_peak,
        evaluated=evaluations.step,
        held_out_loss=evaluations.loss,
        held_out_bits={
            name: loss / math.log(2) * held_out[name].tokens / held_out[name].bytes
            for name, loss in evaluations.loss.items()
        },
        source_tokens=trained.source_tokens,
        flops=flops * curve.tokens[-1],
        average=trained.average,
        router=curve.router,
    )


def _mixture(stores: Mapping[str, TokenStore], weights: Mapping[str, float]) -> Mixture:
    opened = {name: open_token_store(store) for name, store in stores.items()}
    return Mixture(
        {name: store.tokens for name, store in opened.items()},
        {name: weights[name] for name in opened},
        {name: store.offsets for name, store in opened.items()},
        separated=True,
    )


def _observe(timing: Timing, tokens: int, flops_per_token: float) -> None:
    """Record what was measured, none of which belongs to the value."""
    current, speed = context(), throughput(tokens, timing.seconds[-1], flops_per_token, known_peak_flops())
    current.observe("seconds", timing.seconds)
    current.observe("compile_seconds", timing.compile_seconds)
    current.observe("flops", flops_per_token * tokens)
    current.observe("tokens_per_second", speed.tokens_per_second)
    if speed.utilization is not None:
        current.observe("utilization", speed.utilization)
    current.observe("resumed", timing.resumed)
    current.observe("checkpoints", len(timing.checkpoints))
