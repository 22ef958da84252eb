"""Isoflop curves: at each budget of compute, the best number of parameters; and how it grows with compute."""

import attrs
import numpy as np
from jaxtyping import Float

from marin_models.scaling.estimates import (
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
)
from marin_models.scaling.power_laws import PowerLawFit, fit_power_law

FLOPS_PER_PARAMETER_AND_TOKEN = 6.0


@attrs.frozen(eq=False)
class Parabola:
    """The loss at one budget, as a parabola in the logarithm of the number of parameters.

    Attributes:
        compute: floating-point operations of each of its runs.
        runs: how many there are.
        optimum: the number of parameters at which the loss is lowest.
        loss: the lowest loss.
        curvature: second derivative of the loss by the natural logarithm of the parameters.
        warnings: why it should not be trusted further; sentences.
    """

    compute: float
    runs: int
    optimum: Estimate
    loss: Estimate
    curvature: float
    warnings: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class IsoflopFit:
    """The best shapes over several budgets.

    Attributes:
        parabolas: one per budget, in order.
        parameters: the best number of parameters, as a power law of compute.
        tokens: the best number of tokens, likewise.
        loss: the lowest loss, as a power law of compute; levels off at a constant from 4 budgets on.
        warnings: of the fit as a whole; sentences.
    """

    parabolas: tuple[Parabola, ...]
    parameters: PowerLawFit
    tokens: PowerLawFit
    loss: PowerLawFit
    warnings: tuple[str, ...] = ()


def fit_isoflops(
    compute: Column,
    parameters: Column,
    loss: Column,
    *,
    flops: float = FLOPS_PER_PARAMETER_AND_TOKEN,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> IsoflopFit:
    """Fit a parabola to each budget, and power laws to their optima.

    The intervals come from resampling the runs of each budget around its parabola, and fitting all again.

    Args:
        compute: floating-point operations of each run; runs of equal compute (to 5%) make a budget.
        parameters: of each run's model.
        loss: at its end.
        flops: operations per parameter and token, which tells the tokens.
        resamples: how many fits the intervals come from.
        seed: of the resampling.

    Raises:
        ValueError: fewer than 3 budgets of runs of at least 3 different sizes each, a budget whose loss has no lowest
            point, or numbers that are not above 0.

    Source: Hoffmann et al. 2022, section 3.2 (arXiv 2203.15556).
    """
    above_zero("fit_isoflops", flops=flops, resamples=resamples)
    checked_resampling("fit_isoflops", resamples, seed)
    computes, sizes, losses = checked("fit_isoflops", 9, compute=compute, parameters=parameters, loss=loss)
    budgets = _budgets(computes)
    if len(budgets) < 3 or min(map(len, budgets)) < 3:
        counts = {f"{computes[rows[0]]:.3g}": len(rows) for rows in budgets}
        raise ValueError(f"fit_isoflops: at least 3 budgets of at least 3 runs each are needed; there are {counts}")
    for rows in budgets:
        if (different := len(np.unique(sizes[rows]))) < 3:
            raise ValueError(
                f"fit_isoflops: the {len(rows)} runs at compute {computes[rows[0]]:.3g} have {different} different "
                "numbers of parameters, and a parabola needs 3; add runs, or leave this budget out"
            )
    curves = [
        _curve(float(np.exp(np.log(computes[rows]).mean())), sizes[rows], losses[rows], resamples, seed + index)
        for index, rows in enumerate(budgets)
    ]
    parabolas = tuple(curve[0] for curve in curves)
    optima, lowest = (np.array([curve[index] for curve in curves]) for index in (1, 2))
    found = np.array([one.compute for one in parabolas])
    best = _law(found, [one.optimum.value for one in parabolas], optima)
    tokens = _law(
        found, [one.compute / flops / one.optimum.value for one in parabolas], found[:, None] / flops / optima
    )
    ends = _law(found, [one.loss.value for one in parabolas], lowest, levels_off=len(found) >= 4)
    warnings = tuple(f"budget {one.compute:.3g}: {text}" for one in parabolas for text in one.warnings)
    return IsoflopFit(parabolas, best, tokens, ends, warnings)


def _budgets(compute: np.ndarray) -> list[np.ndarray]:
    order = np.argsort(compute, kind="stable")
    breaks = np.flatnonzero(np.diff(np.log(compute[order])) > np.log(1.05)) + 1
    return np.split(order, breaks)


def _curve(
    compute: float, sizes: np.ndarray, losses: np.ndarray, resamples: int, seed: int
) -> tuple[Parabola, Float[np.ndarray, " resamples"], Float[np.ndarray, " resamples"]]:
    logs = np.log(sizes)
    center = logs.mean()
    coefficients = np.polyfit(logs - center, losses, 2)
    optimum, lowest = _vertex(coefficients, center)
    if not np.isfinite(optimum) or optimum == 0:
        raise ValueError(
            f"fit_isoflops: the losses at compute {compute:.3g} have no lowest point (their parabola opens downwards, "
            f"or is flat); add runs below {sizes.min():.3g} and above {sizes.max():.3g} parameters, or leave this "
            "budget out"
        )
    worlds = resampled(np.polyval(coefficients, logs - center), losses, 3, resamples=resamples, seed=seed)
    vertices = np.array([_vertex(np.polyfit(logs - center, world, 2), center) for world in worlds])
    warnings = outside("the optimum", optimum, sizes.tolist())
    design = np.vander(logs - center, 3)
    chance = lack_of_fit(design, (logs - center) ** 3, losses)
    if chance < SIGNIFICANT:
        warnings.append(f"the losses are no parabola (chance {chance:.2g} of the cubic term); narrow the range")
    found = Parabola(
        compute,
        len(sizes),
        estimate(optimum, vertices[:, 0]),
        estimate(lowest, vertices[:, 1]),
        float(2 * coefficients[0]),
        tuple(warnings),
    )
    return found, vertices[:, 0], vertices[:, 1]


def _vertex(coefficients: np.ndarray, center: float) -> tuple[float, float]:
    a, b, c = (float(one) for one in coefficients)
    if a <= 0:  # a resample without a lowest point tells nothing of where it lies
        return float("nan"), float("nan")
    with np.errstate(over="ignore"):
        return float(np.exp(center - b / (2 * a))), c - b**2 / (4 * a)


def _law(x: np.ndarray, y: Column, samples: np.ndarray, *, levels_off: bool = False) -> PowerLawFit:
    """A power law through the optima, its samples through the resampled optima [budgets, resamples]."""
    offset = "fitted" if levels_off else "none"
    fit = fit_power_law(x.tolist(), list(y), offset=offset, resamples=1)
    kept = samples[:, np.isfinite(samples).all(axis=0) & (samples > 0).all(axis=0)].T
    laws = tuple(fit_power_law(x.tolist(), one.tolist(), offset=offset, resamples=0).law for one in kept)
    return attrs.evolve(fit, samples=laws or fit.samples)
