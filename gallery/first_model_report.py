"""What the page of `gallery.first_model` says, computed from the results."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from library import comparison, intervals
from library.comparison import Arm
from library.evaluation import BASELINES
from library.token_store import TokenStore
from library.training import Run
from marin_dsl import Failed, Ok, Skipped, op
from marin_dsl.grids import Cell
from marin_dsl.pages.content import (
    Column,
    Curves,
    Differences,
    Interval,
    Missing,
    Page,
    Prose,
    Sample,
    Samples,
    Series,
    Table,
)

Outcome = Ok[Any] | Failed | Skipped
SMOOTHING = 20
"""Steps over which a training loss is averaged before two of them are compared."""


@attrs.frozen(eq=False)
class Finding:
    """The comparison that the question asks for.

    Attributes:
        adamw: the best arm with AdamW.
        muon: the best arm with Muon.
        difference: macro bits per byte of the one with Muon minus those of the one with AdamW.
        share: share of the steps after which Muon's training loss stays below AdamW's last one; None if it never does.
    """

    adamw: Arm
    muon: Arm
    difference: intervals.Interval
    share: float | None


@op
def present(
    *,
    runs: Sequence[Cell[Outcome]],
    bits: Sequence[Cell[Outcome]],
    lengths: Mapping[str, np.ndarray],
    baselines: Mapping[str, Mapping[str, np.ndarray]],
    domains: Mapping[str, Mapping[str, Outcome]],
    raw_bytes: TokenStore,
    samples: Mapping[str, str],
    prompt: str,
    configurations: Mapping[str, Mapping[str, Any]],
) -> Page:
    """The page of the experiment.

    Args:
        runs: outcomes of training by optimizer, learning rate and seed.
        bits: outcomes of evaluating them on held-out documents.
        lengths: bytes of each held-out document by domain.
        baselines: bits per held-out document by baseline and domain.
        domains: by domain: the outcomes of its corpus, normalisation report, training tokens and held-out tokens.
        raw_bytes: the held-out speeches as raw bytes.
        samples: what the best models wrote, by name.
        prompt: what they continued.
        configurations: by arm: its whole configuration.
    """
    measured = comparison.arms(bits)
    finding = find(measured, runs, lengths)
    return Page(
        title="A first model",
        question="Does Muon learn a small language model faster than AdamW at equal compute?",
        verdict=verdict(finding),
        answer=answer(finding, measured, runs, lengths),
        sections=(
            results(measured, baselines, lengths),
            curves(runs),
            data(domains, raw_bytes),
            Differences(
                "What differs between the arms",
                "Only settings that are not the same in every arm.",
                tuple((name_of(arm.coordinates), dict(configurations[key_of(arm.coordinates)])) for arm in measured),
            ),
            Samples(
                "What the models write",
                "The best run of each optimizer continues one prompt: always with its most likely token (greedy), or "
                "with a token drawn at temperature 0.8 from the most likely ones that hold 95 % of the probability.",
                tuple(Sample(_in_words(name), prompt, text) for name, text in sorted(samples.items())),
            ),
            method(lengths),
        ),
    )


def find(measured: Sequence[Arm], runs: Sequence[Cell[Outcome]], lengths: Mapping[str, np.ndarray]) -> Finding:
    """The best arm of each optimizer, and how they compare."""
    adamw, muon = (
        comparison.best([arm for arm in measured if arm.coordinates["optimizer"] == optimizer], lengths)
        for optimizer in ("adamw", "muon")
    )
    target = float(mean_loss(adamw, runs)[-1])
    share = comparison.share_to_reach(mean_loss(muon, runs), target)
    return Finding(adamw, muon, comparison.difference(muon, adamw, lengths), share)


def mean_loss(arm: Arm, runs: Sequence[Cell[Outcome]]) -> np.ndarray:
    """The smoothed training loss of an arm, averaged over its runs; shape [steps]."""
    losses = [
        comparison.smoothed(cell.value.value.loss, SMOOTHING)
        for cell in runs
        if isinstance(cell.value, Ok) and _setting(cell) == arm.coordinates
    ]
    return np.mean(losses, axis=0)


def _setting(cell: Cell[Outcome]) -> dict[str, Any]:
    return {axis: at for axis, at in cell.coordinates.items() if axis != comparison.SEED}


def key_of(setting: Mapping[str, Any]) -> str:
    """An arm as the experiment calls it."""
    return f"{setting['optimizer']} {setting['learning_rate']:g}"


def name_of(setting: Mapping[str, Any]) -> str:
    """An arm as people call it."""
    return _in_words(key_of(setting))


def _in_words(text: str) -> str:
    return text.replace("adamw", "AdamW").replace("muon", "Muon")


def verdict(finding: Finding) -> str:
    """The answer in one line; it claims a difference only where the interval leaves out zero."""
    found = finding.difference
    if found.low <= 0 <= found.high:
        return f"Undecided: the difference of {found.point:+.3f} bits per byte is within the noise"
    better, worse = ("Muon", "AdamW") if found.point < 0 else ("AdamW", "Muon")
    answer = "Yes" if better == "Muon" else "No"
    return f"{answer}: {better} needs {abs(found.point):.3f} bits per byte fewer than {worse}"


def answer(
    finding: Finding, measured: Sequence[Arm], runs: Sequence[Cell[Outcome]], lengths: Mapping[str, np.ndarray]
) -> str:
    """What was found, in sentences whose numbers come from the results."""
    scores = {
        arm.coordinates["optimizer"]: comparison.macro_bits_per_byte(arm.mean_bits, lengths)
        for arm in (finding.adamw, finding.muon)
    }
    run = _first_run(finding.muon, runs)
    reached = (
        "Its training loss never stays below the last one of AdamW."
        if finding.share is None
        else f"Its training loss stays below the last one of AdamW from {finding.share:.0%} of the steps on."
    )
    return "\n\n".join((_sentence(finding, scores, run, reached), _caution(measured, lengths)))


def _sentence(finding: Finding, scores: Mapping[str, intervals.Interval], run: Run, reached: str) -> str:
    found = finding.difference
    return (
        f"After {run.tokens[-1]:,} tokens ({run.flops / 1e9:,.0f} GFLOP of the model in every arm), the best arm with "
        f"Muon ({name_of(finding.muon.coordinates)}) needs {scores['muon'].point:.3f} bits per byte on held-out "
        f"documents and the best with AdamW ({name_of(finding.adamw.coordinates)}) "
        f"{scores['adamw'].point:.3f}: a difference of {found.point:+.3f} (95 % interval "
        f"{found.low:+.3f} to {found.high:+.3f} over {found.documents} documents). {reached}"
    )


def _first_run(arm: Arm, runs: Sequence[Cell[Outcome]]) -> Run:
    return next(cell.value.value for cell in runs if isinstance(cell.value, Ok) and _setting(cell) == arm.coordinates)


def _caution(measured: Sequence[Arm], lengths: Mapping[str, np.ndarray]) -> str:
    """What a reader must not conclude."""
    seeds = max(len(arm.seeds) for arm in measured)
    spread = max(float(np.ptp(scores)) for arm in measured if arm.seeds for scores in [seed_scores(arm, lengths)])
    rates = ", ".join(name_of(arm.coordinates) for arm in measured if arm.seeds)
    return (
        f"*How far this carries:* {seeds} seeds an arm, of which the widest pair lies {spread:.3f} apart; the interval "
        f"is over documents and does not hold the seeds' own spread. The learning rates tried are few ({rates}), so "
        "that the best of each optimizer lies at an edge of its range, and it was chosen on the documents that it is "
        "scored on. Equal compute means equal tokens and model operations; the orthogonalisation inside Muon comes on "
        "top and shows on the seconds axis."
    )


def seed_scores(arm: Arm, lengths: Mapping[str, np.ndarray]) -> list[float]:
    """Macro bits per byte of each run of an arm."""
    return [
        float(np.mean([bits[run].sum() / lengths[domain].sum() for domain, bits in arm.bits.items()]))
        for run in range(len(arm.seeds))
    ]


def results(
    measured: Sequence[Arm], baselines: Mapping[str, Mapping[str, np.ndarray]], lengths: Mapping[str, np.ndarray]
) -> Table:
    """Bits per byte of every arm and baseline, by domain and on average."""
    domains = sorted(lengths)
    rows: list[tuple[Any, ...]] = [_row(name_of(arm.coordinates), arm, domains, lengths) for arm in measured]
    for name in BASELINES:
        bits = baselines[name]
        scores = [shown(comparison.domain_bits_per_byte(bits[domain], lengths[domain])) for domain in domains]
        rows.append((name, shown(comparison.macro_bits_per_byte(bits, lengths)), *scores, None))
    return Table(
        "Bits per byte on held-out documents",
        "Fewer is better. Means over seeds; 95 % intervals by bootstrap over documents, each arm's by itself: the "
        "paired difference in the answer is sharper. The last five rows cost nothing and tell whether anything was "
        "learnt: unigram and bigram know the training texts, zlib and lzma see one document alone.",
        (
            Column("arm"),
            Column("mean of domains", best="lowest"),
            *(Column(domain, best="lowest") for domain in domains),
            Column("seeds"),
        ),
        tuple(rows),
    )


def _row(name: str, arm: Arm, domains: Sequence[str], lengths: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
    if not arm.seeds:
        return (
            name,
            Missing(next(iter(arm.failures.values())), "skipped"),
            *(Missing("no model", "skipped") for _ in domains),
            None,
        )
    scores = [shown(comparison.domain_bits_per_byte(arm.mean_bits[domain], lengths[domain])) for domain in domains]
    seeds = "  ".join(f"{score:.3f}" for score in seed_scores(arm, lengths))
    return (name, shown(comparison.macro_bits_per_byte(arm.mean_bits, lengths)), *scores, seeds)


def shown(interval: intervals.Interval) -> Interval:
    """An interval as a table shows it."""
    return Interval(interval.point, interval.low, interval.high)


def curves(runs: Sequence[Cell[Outcome]]) -> Curves:
    """The training loss of every run that has one."""
    return Curves(
        "Training loss",
        "Cross-entropy of each step's batch before its update. Colours are arms, lines are seeds.",
        tuple(_series(position, cell) for position, cell in enumerate(runs) if isinstance(cell.value, Ok)),
        "loss, nats per token",
    )


def _series(position: int, cell: Cell[Outcome]) -> Series:
    run, arm = cell.value.value, name_of(cell.coordinates)
    return Series(
        f"{arm}, seed {cell.coordinates[comparison.SEED]}",
        arm,
        tokens=run.tokens,
        steps=run.step,
        values=run.loss,
        source=("runs", position, "value"),
    )


def data(domains: Mapping[str, Mapping[str, Outcome]], raw_bytes: TokenStore) -> Table:
    """What was read, what was dropped, and how it was divided."""
    return Table(
        "Data",
        "Documents that were read, dropped as empty or as exact duplicates, trained on, and held out. They are divided "
        "by the hash of their content; a held-out document counts with its beginning. Bytes per token are of the "
        f"trained tokenizer; as raw bytes the held-out speeches are {raw_bytes.tokens:,} tokens.",
        (
            Column("domain"),
            Column("licence"),
            Column("read"),
            Column("empty"),
            Column("duplicate"),
            Column("train"),
            Column("tokens", "train"),
            Column("bytes", "per token", digits=2),
            Column("held out"),
        ),
        tuple(_data_row(name, parts) for name, parts in sorted(domains.items())),
    )


def _data_row(name: str, parts: Mapping[str, Outcome]) -> tuple[Any, ...]:
    failed = next((part for part in parts.values() if not isinstance(part, Ok)), None)
    if failed is not None:
        kind: Any = "failed" if isinstance(failed, Failed) else "skipped"
        return (name, Missing(comparison.why(failed), kind), *[None] * 7)
    corpus, report, training, held_out = (parts[key].value for key in ("corpus", "report", "training", "held out"))
    return (
        name,
        corpus.licence,
        report.read,
        report.empty,
        report.duplicate,
        training.documents,
        training.tokens,
        training.bytes / training.tokens,
        held_out.documents,
    )


def method(lengths: Mapping[str, np.ndarray]) -> Prose:
    """How it was done."""
    return Prose("Method", "\n\n".join(_method(lengths)))


def _method(lengths: Mapping[str, np.ndarray]) -> Iterator[str]:
    held = ", ".join(f"{len(of)} of {domain} ({int(of.sum()):,} bytes)" for domain, of in sorted(lengths.items()))
    yield (
        "Every arm trains the same dense transformer (RMSNorm, rotary positions, grouped-query attention with "
        "normalised queries and keys, SwiGLU) from the same initial parameters and on the same windows of tokens for "
        "a given seed, for the same number of steps. Under Muon the matrices inside the layers are orthogonalised, "
        "and embedding, head and norms are left to AdamW."
    )
    yield (
        f"Held-out documents: {held}. Bits per byte are those of all tokens of a document, the first one predicted "
        "from the end of another document, divided by its bytes; domains count equally in the mean."
    )
    yield (
        "One arm has a learning rate that is far too high and is stopped by the divergence guard, and one corpus "
        "comes from a package that is not installed. They are here to show what a failure looks like."
    )
