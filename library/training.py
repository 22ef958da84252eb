"""Training a language model on token stores, as an operator."""

from collections.abc import Mapping

import attrs
import numpy as np

from library.token_store import TokenStore, open_token_store
from marin_dsl import context, encodable, op
from marin_models import (
    Mixture,
    OptimizerConfig,
    TrainingConfig,
    TransformerConfig,
    flops_per_token,
)
from marin_models import train as train_model

for _config in (TransformerConfig, OptimizerConfig, TrainingConfig):
    encodable(name=f"marin:{_config.__name__}")(_config)


@encodable
@attrs.frozen(eq=False)
class Run:
    """A trained model and how it got there; equal arguments give equal bits on one machine.

    Attributes:
        model: shape of the model.
        parameters: by dotted name, fp32.
        step: 1-based optimizer step of each point, int64 of shape [steps].
        tokens: tokens predicted up to each point, int64 of shape [steps].
        loss: cross-entropy of each step's batch in nats per token, fp32 of shape [steps].
        gradient_norm: before clipping, fp32 of shape [steps].
        source_tokens: tokens drawn from each token store.
        flops: floating-point operations of the whole run, from the model's shape.
    """

    model: TransformerConfig
    parameters: dict[str, np.ndarray]
    step: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray
    gradient_norm: np.ndarray
    source_tokens: dict[str, int]
    flops: float


class VocabularyMismatch(ValueError):
    """The token stores and the model speak of different vocabularies."""


@op(resources={"CPU": 1}, pin=["jax", "jaxlib", "optax"])
def train(
    stores: Mapping[str, TokenStore],
    weights: Mapping[str, float],
    *,
    model: TransformerConfig,
    optimizer: OptimizerConfig,
    training: TrainingConfig,
) -> Run:
    """Train a transformer from scratch on a mixture of token stores.

    Wall-clock seconds at each step and the compile time are observed beside the result.

    Args:
        stores: tokens by domain.
        weights: how much of training each domain makes up; domains without a store are left out and the rest keeps
            its proportions.
        model: shape of the model.
        optimizer: rule, learning rates and schedule.
        training: length, batch and seed.

    Raises:
        Diverged: the loss left the region from which it could come back.
        VocabularyMismatch: a store's vocabulary is not the model's.
        TokenStoreDamaged: a store is not what its ledger says.
    """
    for name, store in stores.items():
        if store.vocabulary != model.vocabulary:
            raise VocabularyMismatch(
                f"the tokens of {name!r} have a vocabulary of {store.vocabulary} and the model one of "
                f"{model.vocabulary}; give the model the tokenizer's vocabulary"
            )
    streams = {name: open_token_store(store).tokens for name, store in stores.items()}
    current = context()
    trained = train_model(
        model,
        optimizer,
        training,
        Mixture(streams, {name: weights[name] for name in streams}),
        on_progress=lambda step, loss, tokens: current.progress(step, training.steps, loss=loss),
        check=current.check,
    )
    flops = float(flops_per_token(model, training.length) * trained.curve.tokens[-1])
    current.observe("seconds", trained.timing.seconds)
    current.observe("compile_seconds", trained.timing.compile_seconds)
    current.observe("flops", flops)
    return Run(
        model,
        trained.parameters,
        trained.curve.step,
        trained.curve.tokens,
        trained.curve.loss,
        trained.curve.gradient_norm,
        trained.source_tokens,
        flops,
    )
