"""A small experiment with all that a store keeps: large leaves, failures, projections, a choice, observations."""

import tempfile
import uuid
from pathlib import Path

import numpy as np

from marin_dsl import Directory, attempt, context, evaluate, op, when
from marin_dsl.store import Store


@op(version="1")
def corpus(size: int) -> dict:
    context().observe("curve", np.arange(float(size)))
    return {"tokens": np.arange(float(size)), "name": f"corpus {size}"}


@op(version="1")
def train(corpus: dict, weights, lr: float) -> dict:
    if lr > 1:
        raise ValueError("diverged")
    return {"loss": float(corpus["tokens"].sum()) * lr, "report": "r" * 3000}


@op(version="1")
def folder(text: str) -> Directory:
    scratch = context().scratch
    (scratch / "sub").mkdir()
    (scratch / "sub" / "a").write_text(text)
    return Directory.of(scratch)


@op(version="1")
def summary(parts: list) -> list:
    return [repr(part) for part in parts]


def experiment(scale: float = 1.0):
    weights = np.full(20_000, scale)
    data = corpus(20_000)
    losses = [train(data, weights, lr)["loss"] for lr in (0.1, 0.2)]
    lost = attempt(train(data, weights, 5.0))
    chosen = when(data["name"].eq("corpus 20000"), losses[0], losses[1])
    return summary([*losses, chosen, lost, folder("alpha")])


def evaluated(store, name="experiment", version="1.0", scale=1.0):
    """The labelled experiment, evaluated in a store."""
    root = experiment(scale).named(name, version)
    outcome = evaluate(root, store=store, debug=True)
    assert outcome.ok, outcome
    return root


def new_store(kind):
    """An empty store of a kind."""
    return Store(Path(tempfile.mkdtemp()) / "store" if kind == "local" else f"memory://{uuid.uuid4().hex}")
