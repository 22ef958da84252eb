"""Numbers with intervals, and the resampling that they come from."""

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
from jaxtyping import Float
from scipy import stats

RESAMPLES = 200
LEVEL = 0.95
Column = Sequence[float | int] | np.ndarray
"""One number per run."""

SIGNIFICANT = 0.01  # chance below which a term that a law lacks is told of


@attrs.frozen
class Estimate:
    """A number and where it lies with the probability ``level``.

    Attributes:
        value: the best fit's.
        low: lower end of the interval.
        high: upper end of the interval.
        level: coverage of the interval, such as 0.95.
        warnings: why it should not be trusted further; sentences.
    """

    value: float
    low: float
    high: float
    level: float = LEVEL
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def estimate(
    value: float, samples: Float[np.ndarray, " resamples"], level: float = LEVEL, warnings: Sequence[str] = ()
) -> Estimate:
    """The estimate whose interval holds the middle ``level`` of ``samples``; no number counts as highest.

    Raises:
        ValueError: the level is not between 0 and 1, or there are no samples.
    """
    if not 0 < level < 1:
        raise ValueError(f"estimate: level must be between 0 and 1, such as 0.95, not {level!r}")
    if not len(samples):
        raise ValueError("estimate: without resamples there is no interval; fit with resamples of at least 1")
    ordered = np.where(np.isnan(samples), np.inf, samples)
    low, high = np.quantile(ordered, [(1 - level) / 2, (1 + level) / 2], method="nearest")
    return Estimate(float(value), float(low), float(high), level, tuple(warnings))


def resampled(
    fitted: Float[np.ndarray, " points"],
    observed: Float[np.ndarray, " points"],
    parameters: int,
    *,
    resamples: int,
    seed: int,
) -> Iterator[Float[np.ndarray, " points"]]:
    """What could have been observed instead: fitted values with residuals drawn anew.

    Residuals are drawn with replacement and scaled for the ``parameters`` that the fit used up, each time by another
    plausible variance: with few points the intervals are as wide as Student's, not as the normal distribution's.
    """
    random, points = np.random.default_rng(seed), len(observed)
    freedom = max(points - parameters, 1)
    residuals = (observed - fitted) * np.sqrt(points / freedom)
    for _ in range(resamples):
        spread = np.sqrt(freedom / random.chisquare(freedom))
        yield fitted + spread * random.choice(residuals, points) * random.choice([-1.0, 1.0], points)


def residual_deviation(residuals: Float[np.ndarray, " points"], parameters: int) -> float:
    """The standard deviation of the noise, for the degrees of freedom that are left."""
    return float(np.sqrt(np.sum(residuals**2) / max(len(residuals) - parameters, 1)))


def lack_of_fit(
    design: Float[np.ndarray, "points terms"],
    extra: Float[np.ndarray, " points"],
    observed: Float[np.ndarray, " points"],
) -> float:
    """How likely one more term explains so much by chance (F test); 1 if there are too few points to tell.

    Args:
        design: the terms of the law that was fitted, linearized at its solution.
        extra: the term that it lacks.
        observed: what was fitted.
    """
    freedom = len(observed) - design.shape[1] - 1
    if freedom < 1:
        return 1.0
    without = _sum_of_squares(design, observed)
    with_extra = _sum_of_squares(np.column_stack([design, extra]), observed)
    if with_extra <= 1e-24 * max(np.sum(observed**2), 1e-300):
        return 1.0 if without <= 1e-20 * np.sum(observed**2) else 0.0
    return float(stats.f.sf((without - with_extra) / (with_extra / freedom), 1, freedom))


def _sum_of_squares(design: np.ndarray, observed: np.ndarray) -> float:
    solution = np.linalg.lstsq(design, observed, rcond=None)[0]
    return float(np.sum((observed - design @ solution) ** 2))


def above_zero(owner: str, **numbers: float | int) -> None:
    """Raise ``ValueError`` in the name of ``owner`` for a number that is not finite or not above 0."""
    for name, number in numbers.items():
        if not 0 < number < float("inf"):
            raise ValueError(f"{owner}: {name} must be a finite number above 0, not {number!r}")


def checked_resampling(owner: str, resamples: int, seed: int) -> None:
    """Raise ``ValueError`` in the name of ``owner`` for a number of resamples or a seed below 0."""
    if resamples < 0 or seed < 0:
        raise ValueError(f"{owner}: resamples {resamples} and seed {seed} must be integers of at least 0")


def checked(owner: str, least: int, **columns: Column) -> list[Float[np.ndarray, " points"]]:
    """The columns as arrays of one length.

    Raises:
        ValueError: they differ in length, are fewer than ``least``, or hold something that is not a finite number
            above 0.
    """
    arrays = [_numbers(owner, name, column) for name, column in columns.items()]
    lengths = {name: len(array) for name, array in zip(columns, arrays, strict=True)}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{owner}: one number of each per run is needed, but their lengths are {lengths}")
    if len(arrays[0]) < least:
        raise ValueError(f"{owner}: at least {least} runs are needed for this law, {len(arrays[0])} were given")
    for name, array in zip(columns, arrays, strict=True):
        if not (np.isfinite(array).all() and (array > 0).all()):
            bad = int(np.flatnonzero(~(np.isfinite(array) & (array > 0)))[0])
            raise ValueError(
                f"{owner}: {name}[{bad}] is {float(array[bad])!r}, not a finite number above 0; leave this run out"
            )
    return arrays


def _numbers(owner: str, name: str, column: Column) -> Float[np.ndarray, " points"]:
    try:
        found = np.asarray(list(column), np.float64)
        if found.ndim == 1:
            return found
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{owner}: {name} must be a sequence with one number per run, not {column!r:.200}")


def outside(name: str, value: float, seen: Column) -> list[str]:
    """A warning if ``value`` lies beyond what was seen."""
    low, high = min(seen), max(seen)
    if low <= value <= high:
        return []
    factor = value / high if value > high else low / value
    side = "above the largest" if value > high else "below the smallest"
    return [f"{name} {value:.3g} is {factor:.3g} times {side} of the runs that were fitted"]
