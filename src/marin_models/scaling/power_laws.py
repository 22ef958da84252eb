"""Power laws, with or without a constant that they level off at."""

from typing import Literal, get_args

import attrs
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar, nnls

from marin_models.scaling.estimates import (
    LEVEL,
    RESAMPLES,
    SIGNIFICANT,
    Column,
    Estimate,
    above_zero,
    checked,
    checked_resampling,
    estimate,
    lack_of_fit,
    outside,
    resampled,
    residual_deviation,
)

Offset = Literal["none", "fitted"]
EXPONENTS = np.geomspace(0.005, 3.0, 40)  # falling laws are searched between these


@attrs.frozen
class PowerLaw:
    """``y = offset + coefficient * x ** exponent``.

    >>> PowerLaw(2.0, -0.5, 1.0)(4.0)
    2.0
    >>> PowerLaw(2.0, -0.5, 1.0).inverse(2.0)
    4.0
    """

    coefficient: float
    exponent: float
    offset: float = 0.0

    def __call__(self, x: float) -> float:
        """``y`` at ``x``."""
        return self.offset + self.coefficient * x**self.exponent

    def inverse(self, y: float) -> float:
        """The ``x`` at which ``y`` is reached; infinity if the law levels off before."""
        if y <= self.offset or self.exponent == 0 or self.coefficient == 0:
            return float("inf")
        return ((y - self.offset) / self.coefficient) ** (1 / self.exponent)


@attrs.frozen(eq=False)
class PowerLawFit:
    """A power law, and how well it is known.

    Attributes:
        law: the best fit.
        samples: laws that could have been found instead.
        range: the smallest and largest ``x`` that were fitted.
        deviation: standard deviation of the noise, of ``log y`` without an offset and of ``y`` with one.
        warnings: why it should not be trusted further; sentences.
    """

    law: PowerLaw
    samples: tuple[PowerLaw, ...] = attrs.field(repr=False)
    range: tuple[float, float]
    deviation: float
    warnings: tuple[str, ...] = ()

    @property
    def exponent(self) -> Estimate:
        """The exponent with its interval."""
        return estimate(self.law.exponent, np.array([law.exponent for law in self.samples]), LEVEL, self.warnings)

    def forecast(self, x: float, *, level: float = LEVEL) -> Estimate:
        """The law's value at ``x``, with the interval of the law (the noise of a single run comes on top)."""
        above_zero("forecast", x=x)
        warnings = [*self.warnings, *outside("x", x, self.range)]
        return estimate(self.law(x), np.array([law(x) for law in self.samples]), level, warnings)

    def needed(self, y: float, *, level: float = LEVEL) -> Estimate:
        """The ``x`` at which the law reaches ``y``; infinite where it levels off before."""
        above_zero("needed", y=y)
        value = self.law.inverse(y)
        warnings = [*self.warnings, *outside("x", value, self.range)]
        return estimate(value, np.array([law.inverse(y) for law in self.samples]), level, warnings)


def fit_power_law(
    x: Column,
    y: Column,
    *,
    offset: Offset = "none",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PowerLawFit:
    """Fit ``y = offset + coefficient * x ** exponent``.

    Args:
        x: compute, parameters or tokens of each run.
        y: what it led to.
        offset: ``"none"``: 0, least squares in logarithms; ``"fitted"``: a falling law that levels off at a constant
            of at least 0, least squares in ``y``: the exponent is searched, the two other numbers follow from it.
        resamples: how many laws the intervals come from.
        seed: of the resampling.

    Raises:
        ValueError: too few runs (3, or 4 with an offset), of fewer than two different ``x``, numbers that are not
            above 0, or an unknown offset.
    """
    if offset not in get_args(Offset):
        raise ValueError(
            f"fit_power_law: unknown offset {offset!r}; choose one of {', '.join(map(repr, get_args(Offset)))}"
        )
    checked_resampling("fit_power_law", resamples, seed)
    least = 3 if offset == "none" else 4
    xs, ys = checked("fit_power_law", least, x=x, y=y)
    if len(np.unique(xs)) < least - 1:
        raise ValueError(
            f"fit_power_law: the {len(xs)} runs have {len(np.unique(xs))} different x, {float(xs[0]):.4g} the first; "
            f"at least {least - 1} are needed to tell how y depends on it"
        )
    fit = _fit_logarithms if offset == "none" else _fit_with_offset
    law = fit(xs, ys)
    fitted = np.array([law(one) for one in xs])
    if offset == "none":
        worlds = map(np.exp, resampled(np.log(fitted), np.log(ys), 2, resamples=resamples, seed=seed))
        deviation = residual_deviation(np.log(ys / fitted), 2)
    else:
        worlds = iter(resampled(fitted, ys, 3, resamples=resamples, seed=seed))
        deviation = residual_deviation(ys - fitted, 3)
    samples = tuple(fit(xs, world) for world in worlds)
    return PowerLawFit(law, samples, (float(xs.min()), float(xs.max())), deviation, _warnings(law, xs, ys, offset))


def _fit_logarithms(x: Float[np.ndarray, " points"], y: Float[np.ndarray, " points"]) -> PowerLaw:
    center = np.log(x).mean()
    exponent, height = np.polyfit(np.log(x) - center, np.log(y), 1)
    return PowerLaw(float(np.exp(height - exponent * center)), float(exponent))


def _fit_with_offset(x: Float[np.ndarray, " points"], y: Float[np.ndarray, " points"]) -> PowerLaw:
    unit = np.exp(np.log(x).mean())

    def solved(log_exponent: float) -> tuple[np.ndarray, float]:
        columns = np.column_stack([np.ones_like(x), (x / unit) ** -np.exp(log_exponent)])
        return nnls(columns, y)

    starts = np.log(EXPONENTS)
    best = int(np.argmin([solved(one)[1] for one in starts]))
    bounds = (starts[max(best - 1, 0)], starts[min(best + 1, len(starts) - 1)])
    found = minimize_scalar(lambda one: solved(one)[1], bounds=bounds, method="bounded", options={"xatol": 1e-6}).x
    (constant, coefficient), exponent = solved(found)[0], -float(np.exp(found))
    return PowerLaw(float(coefficient * unit**-exponent), exponent, float(constant))


def _warnings(law: PowerLaw, x: np.ndarray, y: np.ndarray, offset: Offset) -> tuple[str, ...]:
    found = []
    if x.max() / x.min() < 10:
        found.append(f"x spans only a factor of {x.max() / x.min():.3g}; exponents need a factor of 10 or more")
    logs = np.log(x) - np.log(x).mean()
    if offset == "none":
        chance = lack_of_fit(np.column_stack([np.ones_like(x), logs]), logs**2, np.log(y))
    else:
        falling = law.coefficient * x**law.exponent
        chance = lack_of_fit(np.column_stack([np.ones_like(x), falling, falling * logs]), falling * logs**2, y)
        if not EXPONENTS[0] * 1.01 < -law.exponent < EXPONENTS[-1] * 0.99:
            found.append(f"the exponent {law.exponent:.3g} lies at the edge of the search; the offset is not known")
    if chance < SIGNIFICANT:
        found.append(f"the runs bend away from a power law (chance {chance:.2g}); do not extrapolate it")
    return tuple(found)
