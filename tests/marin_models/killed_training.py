"""A run for a process that is killed in the middle of it."""

import sys

import attrs
import numpy as np
from tiny_models import TINY

from marin_models import Checkpoints, Mixture, OptimizerConfig, TrainingConfig, train

OPTIMIZER = OptimizerConfig("adamw", 0.02)
CONFIG = TrainingConfig(steps=2000, batch=4, length=6, seed=3)


def interval_mixture():
    return Mixture({"up": (np.arange(200) % 17).astype(np.uint16)}, {"up": 1})


def checkpoints(place):
    return Checkpoints(place, every_seconds=0.0)


if __name__ == "__main__":
    model = attrs.evolve(TINY, layers=1)
    train(
        model,
        OPTIMIZER,
        CONFIG,
        interval_mixture(),
        checkpoints=checkpoints(sys.argv[1]),
        on_progress=lambda done, loss, tokens: print(done, flush=True),
    )
