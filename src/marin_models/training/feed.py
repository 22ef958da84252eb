"""Which rows a run reads, by step: nothing to save, any step and any part of a batch reached at once."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from marin_models.mesh import BATCH
from marin_models.ordering import Places, places
from marin_models.packing import PADDING, PackedRows, pack, packed_rows
from marin_models.training.config import TrainingConfig
from marin_models.training.step import Batch
from marin_models.windows import Mixture, check_streams_hold, check_vocabulary, window_sources, windows

VOCABULARY_ADVICE = "train with the vocabulary of the tokenizer that made the streams"
COUNTED = 1 << 20  # rows whose tokens are counted at once


class WindowFeed:
    """Rows of neighbouring tokens; see `marin_models.windows`."""

    def __init__(self, mixture: Mixture, config: TrainingConfig) -> None:
        check_streams_hold(mixture, config.length)
        self.mixture, self.config = mixture, config

    def rows(self, step: int, part: slice) -> PackedRows:
        """A part of the rows of a step; each is one document."""
        config = self.config
        tokens = windows(self.mixture, seed=config.seed, step=step, batch=config.batch, length=config.length, rows=part)
        return PackedRows(tokens, np.zeros_like(tokens))

    def source_tokens(self, steps: int) -> dict[str, int]:
        """Tokens predicted from each stream in the first steps."""
        rows = np.zeros(len(self.mixture.names), np.int64)
        for step in range(steps):
            sources = window_sources(self.mixture, seed=self.config.seed, step=step, batch=self.config.batch)
            rows += np.bincount(sources, minlength=len(rows))
        return {name: int(count) * self.config.length for name, count in zip(self.mixture.names, rows, strict=True)}


class DocumentFeed:
    """Rows of whole documents; see `marin_models.packing` and `marin_models.ordering`."""

    def __init__(self, mixture: Mixture, config: TrainingConfig) -> None:
        if mixture.offsets is None:
            raise ValueError(
                'train: rows="documents" needs to know where documents begin; give the Mixture their offsets, or say '
                'rows="windows"'
            )
        self.mixture, self.config = mixture, config
        self.packings = [
            pack(offsets, config.length, separated=mixture.separated) for offsets in mixture.offsets.values()
        ]
        self.sizes = [len(packing) for packing in self.packings]

    def rows(self, step: int, part: slice) -> PackedRows:
        """A part of the rows of a step."""
        positions = np.arange(step * self.config.batch, (step + 1) * self.config.batch)[part]
        found = self._places(positions)
        shape = (len(positions), self.config.length + 1)
        rows = PackedRows(np.zeros(shape, np.int32), np.full(shape, PADDING, np.int32))
        for source, (packing, stream) in enumerate(zip(self.packings, self.mixture.streams.values(), strict=True)):
            chosen = found.source == source
            rows.tokens[chosen], rows.segment_ids[chosen] = packed_rows(packing, stream, found.row[chosen])
        return rows

    def source_tokens(self, steps: int) -> dict[str, int]:
        """Tokens predicted from each stream in the first steps."""
        rows, predictions = steps * self.config.batch, [packing.predictions() for packing in self.packings]
        tokens = np.zeros(len(predictions), np.int64)
        for begin in range(0, rows, COUNTED):
            found = self._places(np.arange(begin, min(begin + COUNTED, rows)))
            for source, each in enumerate(predictions):
                tokens[source] += each[found.row[found.source == source]].sum()
        return dict(zip(self.mixture.names, tokens.tolist(), strict=True))

    def _places(self, positions: np.ndarray) -> Places:
        weights = [float(weight) for weight in self.mixture.weights.values()]
        return places(self.sizes, weights, positions, seed=self.config.seed)


Feed = WindowFeed | DocumentFeed


def feed_of(mixture: Mixture, config: TrainingConfig) -> Feed:
    """The rows that a config asks for.

    Raises:
        ValueError: a stream is shorter than a window, or borders of documents are asked for and not known.
    """
    return DocumentFeed(mixture, config) if config.rows == "documents" else WindowFeed(mixture, config)


def chunk_batches(
    feed: Feed, config: TrainingConfig, vocabulary: int, span: range, *, chunk: int, mesh: Mesh | None
) -> Batch:
    """The batches of the steps in ``span``, and zeros up to ``chunk`` batches, on the devices that read them.

    Raises:
        ValueError: a token is outside the vocabulary.
    """
    parts: dict[tuple[int, int], PackedRows] = {}

    def part(rows: slice) -> PackedRows:
        begin, end, _ = rows.indices(config.batch)
        if (begin, end) not in parts:
            parts[begin, end] = _rows_of_steps(feed, config, vocabulary, span, slice(begin, end), chunk)
        return parts[begin, end]

    def placed(field: int) -> jax.Array:
        if mesh is None:
            return jax.numpy.asarray(part(slice(None))[field])
        sharding = NamedSharding(mesh, PartitionSpec(None, tuple(name for name in BATCH if name in mesh.shape)))
        shape = (chunk, config.batch, config.length + 1)
        return jax.make_array_from_callback(shape, sharding, lambda index: part(index[1])[field])

    return Batch(placed(0), placed(1) if config.rows == "documents" else None)


def _rows_of_steps(
    feed: Feed, config: TrainingConfig, vocabulary: int, span: range, rows: slice, chunk: int
) -> PackedRows:
    shape = (chunk, rows.stop - rows.start, config.length + 1)
    tokens, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for number, step in enumerate(span):
        tokens[number], segments[number] = feed.rows(step, rows)
    check_vocabulary("train", "in the mixture", tokens, vocabulary, advice=VOCABULARY_ADVICE)
    return PackedRows(tokens, segments)
