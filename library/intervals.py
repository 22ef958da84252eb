"""How sure a ratio of sums is: the bootstrap over documents.

Documents, not tokens, are drawn again, since the tokens of one document are not independent (Efron and Tibshirani 1993,
chapters 6 and 13: percentile intervals).
"""

import math
from collections.abc import Mapping

import attrs
import numpy as np

from marin_dsl import encodable, op

_DRAWS_AT_ONCE = 2**22


@encodable
@attrs.frozen
class Interval:
    """A figure and the interval that holds it at the stated level: `low <= point <= high`.

    One document tells nothing about others: the interval is then infinite. Percentile intervals of fewer than some
    twenty documents are too narrow; `documents` is there to say so.
    """

    point: float
    low: float
    high: float
    level: float
    documents: int


@op
def bits_per_byte(
    bits: np.ndarray, byte_lengths: np.ndarray, *, seed: int = 0, resamples: int = 2000, level: float = 0.95
) -> Interval:
    """Bits per byte over all documents, with its interval; see `ratio_interval`."""
    return ratio_interval(bits, byte_lengths, seed=seed, resamples=resamples, level=level)


@op
def bits_per_byte_difference(
    bits: np.ndarray,
    reference_bits: np.ndarray,
    byte_lengths: np.ndarray,
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """Bits per byte of one arm minus those of a reference on the same documents; see `difference_interval`."""
    return difference_interval(bits, reference_bits, byte_lengths, seed=seed, resamples=resamples, level=level)


def ratio_interval(
    numerator: np.ndarray, denominator: np.ndarray, *, seed: int, resamples: int = 2000, level: float = 0.95
) -> Interval:
    """`sum(numerator) / sum(denominator)` and its percentile interval over resampled documents.

    Args:
        numerator: one finite figure a document (bits), shape [documents].
        denominator: one positive figure a document (bytes), shape [documents].
        seed: of the draws; the same seed draws the same documents.
        resamples: number of draws.
        level: probability between 0 and 1 that the interval is to hold.

    Raises:
        ValueError: shapes differ, there is no document, a figure is not finite or not positive, or `level` or
            `resamples` is out of range.
    """
    numerator, denominator = _checked(numerator, denominator)
    _check_resampling(level, resamples)
    point = float(numerator.sum() / denominator.sum())
    if numerator.size == 1:
        return Interval(point, -math.inf, math.inf, level, 1)
    ratios = _resampled(numerator, denominator, np.random.default_rng(seed), resamples)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    # With few, skewed documents a percentile interval may miss its point; a reader would take that for a mistake.
    return Interval(point, min(float(low), point), max(float(high), point), level, numerator.size)


def difference_interval(
    numerator: np.ndarray,
    reference: np.ndarray,
    denominator: np.ndarray,
    *,
    seed: int,
    resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """The ratio of one arm minus that of a reference, both on the same resampled documents (paired).

    Arguments and errors as for `ratio_interval`; a negative point says that the arm needs less than the reference.
    """
    if np.shape(numerator) != np.shape(reference):
        raise ValueError(
            f"shapes {np.shape(numerator)} and {np.shape(reference)}; "
            "expected the same documents in both arms: evaluate both on one corpus"
        )
    difference = np.asarray(numerator, np.float64) - np.asarray(reference, np.float64)
    return ratio_interval(difference, denominator, seed=seed, resamples=resamples, level=level)


def macro_interval(
    numerators: Mapping[str, np.ndarray],
    denominators: Mapping[str, np.ndarray],
    *,
    seed: int,
    resamples: int = 2000,
    level: float = 0.95,
) -> Interval:
    """The mean over groups of each group's `sum(numerator) / sum(denominator)`, and its percentile interval.

    Documents are drawn again inside their group, so that every group keeps its weight of one.

    Args:
        numerators: by group, one finite figure a document, shape [documents].
        denominators: by group, one positive figure a document, shape [documents].
        seed: of the draws.
        resamples: number of draws.
        level: probability between 0 and 1 that the interval is to hold.

    Raises:
        ValueError: the groups differ, there is none, or a group, `level` or `resamples` is wrong as `ratio_interval`
            says.
    """
    if not numerators or set(numerators) != set(denominators):
        raise ValueError(
            f"groups {sorted(numerators)} and {sorted(denominators)}; expected the same groups, at least one"
        )
    _check_resampling(level, resamples)
    groups = [_checked(numerators[name], denominators[name]) for name in sorted(numerators)]
    point = float(np.mean([numerator.sum() / denominator.sum() for numerator, denominator in groups]))
    documents = sum(numerator.size for numerator, _ in groups)
    if any(numerator.size == 1 for numerator, _ in groups):
        return Interval(point, -math.inf, math.inf, level, documents)
    draws = [
        _resampled(numerator, denominator, np.random.default_rng([seed, place]), resamples)
        for place, (numerator, denominator) in enumerate(groups)
    ]
    low, high = np.quantile(np.mean(draws, axis=0), [(1 - level) / 2, (1 + level) / 2])
    return Interval(point, min(float(low), point), max(float(high), point), level, documents)


def _check_resampling(level: float, resamples: int) -> None:
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"level={level}, resamples={resamples}; expected 0 < level < 1 and at least one resample")


def _checked(numerator: np.ndarray, denominator: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    numerator, denominator = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    if numerator.shape != denominator.shape or numerator.ndim != 1 or not numerator.size:
        raise ValueError(
            f"shapes {numerator.shape} and {denominator.shape}; expected one figure for each of the same documents, "
            "at least one"
        )
    if not np.isfinite(numerator).all():
        raise ValueError(f"document {np.flatnonzero(~np.isfinite(numerator))[0]} has a figure that is not finite")
    positive = np.isfinite(denominator) & (denominator > 0)
    if not positive.all():
        worst = np.flatnonzero(~positive)[0]
        raise ValueError(f"document {worst} has the size {denominator[worst]}; drop empty documents first")
    return numerator, denominator


def _resampled(numerator: np.ndarray, denominator: np.ndarray, rng: np.random.Generator, resamples: int) -> np.ndarray:
    size = numerator.size
    step = max(1, _DRAWS_AT_ONCE // size)
    ratios = []
    for start in range(0, resamples, step):
        drawn = rng.integers(size, size=(min(step, resamples - start), size))
        ratios.append(numerator[drawn].sum(axis=1) / denominator[drawn].sum(axis=1))
    return np.concatenate(ratios)
