"""A page as a real experiment would give it: nine arms, fifty nodes, two failures, one skipped node."""

import hashlib

import numpy as np

from marin_dsl.pages import (
    Column,
    Curves,
    Differences,
    ErrorEvidence,
    Evidence,
    Interval,
    Missing,
    NodeEvidence,
    Page,
    Prose,
    Sample,
    Samples,
    Series,
    Table,
)

DOMAINS = ("stdlib", "topics", "speeches")
ARMS = [
    (optimizer, lr, seed)
    for optimizer, lrs in (("adamw", (1e-3, 3e-3)), ("muon", (0.01, 0.02)))
    for lr in lrs
    for seed in (0, 1)
] + [("adamw", 3.0, 0)]
STEPS = 600
TRACEBACK = """Traceback (most recent call last):
  File "library/training.py", line 141, in train
    state = guard(state, step)
  File "library/training.py", line 88, in guard
    raise Diverged(f"loss {loss:.3g} at step {step}, {ratio:.0f} times its start")
library.training.Diverged: loss 9.31e+04 at step 41, 1193 times its start
"""


def key(name: str) -> str:
    return "sha256:" + hashlib.sha256(name.encode()).hexdigest()


def arm_name(optimizer: str, lr: float) -> str:
    return f"{optimizer}, lr {lr:g}"


def node(name: str, operator: str, *, reads: tuple[str, ...] = (), **facts) -> NodeEvidence:
    facts.setdefault("status", "ok")
    facts.setdefault("served", True)
    facts.setdefault("reason", "its result is on record" if facts["served"] else "argument lr 0.01 → 0.02")
    return NodeEvidence(key(name), operator, facts.pop("title", name), depends_on=tuple(map(key, reads)), **facts)


def _data_nodes() -> list[NodeEvidence]:
    nodes = []
    for i, domain in enumerate((*DOMAINS, "gutenberg")):
        broken = domain == "gutenberg"
        error = ErrorEvidence(
            "raised",
            "CorpusError",
            "package 'gutenberg' is not installed: pip install gutenberg, or leave it out",
            "Traceback (most recent call last):\n  ...\nCorpusError",
            "library/corpora.py:52 in gutenberg",
            2,
        )
        nodes.append(
            node(
                f"corpus {domain}",
                f"library.corpora.{domain}",
                title=domain,
                seconds=0.8 + i,
                peak_memory=90 << 20,
                **({"status": "failed", "served": False, "reason": "never computed", "error": error} if broken else {}),
            )
        )
        if not broken:
            nodes.append(
                node(
                    f"normalise {domain}",
                    "library.text.normalise",
                    reads=(f"corpus {domain}",),
                    seconds=1.4,
                    peak_memory=140 << 20,
                    arguments=(("documents", domain), ("minimum", "32")),
                )
            )
            nodes.append(node(f"split {domain}", "library.text.split", reads=(f"normalise {domain}",), seconds=0.2))
            nodes.append(
                node(f"tokens {domain}", "library.tokens.tokenize", reads=(f"split {domain}", "bpe"), seconds=2.1)
            )
    nodes.append(node("attempt gutenberg", "marin_dsl.attempt", reads=("corpus gutenberg",), status="inline"))
    splits = tuple(f"split {d}" for d in DOMAINS)
    nodes.append(
        node(
            "bpe", "library.tokens.train_bpe", title="train tokenizer", reads=splits, seconds=9.4, peak_memory=410 << 20
        )
    )
    nodes.append(
        node(
            "store",
            "library.tokens.pack",
            title="token store",
            reads=tuple(f"tokens {d}" for d in DOMAINS),
            seconds=0.6,
        )
    )
    for name in ("uniform", "unigram", "bigram", "zlib", "lzma"):
        nodes.append(
            node(
                f"baseline {name}",
                "library.evaluation.baseline",
                reads=("store",),
                seconds=0.4,
                arguments=(("model", name),),
            )
        )
    return nodes


def _arm_nodes() -> list[NodeEvidence]:
    nodes = []
    for optimizer, lr, seed in ARMS:
        arm, bad, fresh = f"{optimizer} {lr:g} {seed}", lr == 3.0, lr == 0.02
        arguments = (("optimizer", optimizer), ("lr", f"{lr:g}"), ("seed", str(seed)), ("tokens", "store[train]"))
        error = ErrorEvidence(
            "raised",
            "Diverged",
            "loss 9.31e+04 at step 41, 1193 times its start",
            TRACEBACK,
            "library/training.py:88 in guard",
        )
        facts = {
            "status": "failed",
            "error": error,
            "served": False,
            "reason": "failed before; failures are tried again",
        }
        nodes.append(
            node(
                f"train {arm}",
                "library.training.train",
                reads=("store",),
                arguments=arguments,
                flops=None if bad else 4.1e12,
                seconds=3.2 if bad else 24.0 + seed,
                peak_memory=780 << 20,
                **(facts if bad else {"served": not fresh}),
            )
        )
        nodes.append(node(f"attempt {arm}", "marin_dsl.attempt", reads=(f"train {arm}",), status="inline"))
        skipped = {
            "status": "skipped",
            "served": False,
            "reason": "an argument failed",
            "blamed": (key(f"train {arm}"),),
        }
        nodes.append(
            node(
                f"evaluate {arm}",
                "library.evaluation.bits_per_byte",
                reads=(f"train {arm}", "store"),
                arguments=(("model", f"train({arm})"), ("tokens", "store[validation]")),
                **(skipped if bad else {"seconds": 3.0, "flops": 2.2e11, "served": not fresh}),
            )
        )
    return nodes


def nodes() -> tuple[NodeEvidence, ...]:
    found = _data_nodes() + _arm_nodes()
    ends = [n.title for n in found if n.title.startswith("attempt")]
    done = [n.title for n in found if n.title.startswith("evaluate") and n.status == "ok"]
    baselines = [n.title for n in found if n.title.startswith("baseline")]
    found.append(
        node(
            "generate",
            "library.evaluation.generate",
            reads=("train muon 0.02 0", "bpe"),
            served=False,
            seconds=1.9,
            title="continuations",
            reason="argument model changed",
        )
    )
    found.append(
        node(
            "page",
            "gallery.first_model.page",
            reads=(*ends, *done, *baselines, "generate"),
            served=False,
            seconds=0.7,
            peak_memory=95 << 20,
            reason="argument runs[6] changed",
        )
    )
    return tuple(found)


def _series() -> list[Series]:
    series = []
    for index, (optimizer, lr, seed) in enumerate(ARMS):
        rng = np.random.default_rng(index)
        points = 42 if lr == 3.0 else STEPS
        steps = np.arange(1, points + 1)
        floor, speed = {"adamw": (3.05, 0.55), "muon": (2.8, 0.62)}[optimizer]
        values = floor + (7.6 - floor) * steps**-speed + rng.normal(0, 0.06, points) + 0.05 * (lr in (1e-3, 0.01))
        values = 7.6 * np.exp(steps**1.3 / 14) if lr == 3.0 else values
        name = f"{arm_name(optimizer, lr)}, seed {seed}"
        series.append(Series(name, arm_name(optimizer, lr), steps * 4096, steps, values, ("runs", index, "value")))
    return series


def seconds() -> dict[tuple, np.ndarray]:
    return {("runs", i, "value"): np.linspace(0.9, 24.0, len(s.steps)) for i, s in enumerate(_series())}


def _interval(middle: float, half: float) -> Interval:
    return Interval(middle, middle - half, middle + half)


def _results() -> Table:
    columns = (
        Column("model"),
        Column("stdlib", "bits per byte", best="lowest"),
        Column("topics", "bits per byte", best="lowest"),
        Column("speeches", "bits per byte", best="lowest"),
        Column("tokens seen", digits=0),
    )
    rows = [
        ("uniform", 8.0, 8.0, 8.0, None),
        ("unigram", 4.61, 4.52, 4.31, None),
        ("bigram", 3.52, 3.61, 3.40, None),
        ("lzma", 2.31, 2.74, 2.91, None),
    ]
    base = {("adamw", 1e-3): 2.21, ("adamw", 3e-3): 2.12, ("muon", 0.01): 2.04, ("muon", 0.02): 2.01}
    for (optimizer, lr), middle in base.items():
        cells = [_interval(middle + 0.11 * i, 0.03 + 0.012 * i) for i in range(3)]
        rows.append((arm_name(optimizer, lr), *cells, STEPS * 4096))
    diverged = Missing("loss 9.31e+04 at step 41")
    rows.append((arm_name("adamw", 3.0), diverged, diverged, diverged, 41 * 4096))
    return Table(
        "Bits per byte on held-out documents",
        "Lower is better. Mean of two seeds; 95 % bootstrap intervals over documents, 2,000 resamples.",
        columns,
        tuple(rows),
    )


def _differences() -> Differences:
    arms = {}
    for optimizer, lr in dict.fromkeys((optimizer, lr) for optimizer, lr, _ in ARMS):
        extra = {"betas": (0.9, 0.95)} if optimizer == "adamw" else {"momentum": 0.95, "iterations": 5}
        arms[arm_name(optimizer, lr)] = {
            "model": {"layers": 4, "width": 256, "heads": 4, "vocabulary": 2048},
            "optimizer": {"name": optimizer, "learning_rate": lr, "weight_decay": 0.1, **extra},
            "batch": 16,
            "sequence": 256,
            "steps": STEPS,
        }
    return Differences("What differs between the arms", "Resolved settings; everything else is equal.", arms)


def page() -> Page:
    prompt = "def read(path):\n    "
    samples = (
        Sample(
            "muon, lr 0.02, greedy",
            prompt,
            "return open(path).read()\n\n\ndef write(path):\n    with open(path) as f:\n",
        ),
        Sample("muon, lr 0.02, sampled", prompt, 'if not self._closed:\n        raise ValueError("<closed>")\n'),
        Sample("adamw, lr 0.003, greedy", prompt, "return self._path(path)\n    return self._path(path)\n"),
    )
    return Page(
        title="Does Muon learn a small language model faster than AdamW?",
        question="At equal compute, which optimizer reaches the lower loss on held-out text: Muon or AdamW?",
        verdict="Muon, by 0.11 bits per byte (95 % interval 0.06 to 0.16).",
        answer="The best Muon arm reaches 2.01 bits per byte on `stdlib`, the best AdamW arm 2.12. "
        "The order is the same in *all three* domains and for both seeds.\n\nOne arm was meant to fail and did.",
        sections=(
            _results(),
            Curves(
                "Training loss",
                "Cross-entropy in nats per token; faint: every step, bold: smoothed.",
                tuple(_series()),
                "loss (nats per token)",
            ),
            _differences(),
            Samples("What the models write", "The same prompt for each model, not selected.", samples),
            Prose(
                "Reading the numbers",
                "The models are small and the runs short: nothing about *large* models.\n\n"
                "`lzma` sees the training split as its dictionary.",
            ),
        ),
        summary="Eight runs of a dense transformer with 3.4 million parameters on 2.5 million tokens of text.",
    )


def evidence() -> Evidence:
    return Evidence(
        target="gallery.first_model:page",
        command="marin evaluate gallery.first_model:page --store .marin --site site",
        nodes=nodes(),
        root=key("page"),
        label="first-model@1.0",
        run_id="2025-03-02T10-11-12-7f3a",
        created="2025-03-02 10:11 UTC",
        seconds=seconds(),
        environment={
            "machine": "x86-64, 2 cores, 8 GiB",
            "system": "Linux 6.1",
            "Python": "3.11.2",
            "accelerator": "none",
        },
        packages={"jax": "0.10.2", "equinox": "0.13.1", "optax": "0.2.6", "numpy": "2.4.6", "tokenizers": "0.21.0"},
        commit="d0328b5c0ffee0ddba11",
        dirty=True,
        elapsed=61.2,
    )
