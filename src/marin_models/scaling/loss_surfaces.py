"""The loss as a function of parameters and tokens: ``L = E + A / N**a + B / D**b``."""

import attrs
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize, nnls

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
from marin_models.scaling.isoflops import FLOPS_PER_PARAMETER_AND_TOKEN

ALONG_A_LINE = 0.99
"""Correlation of the logarithms above which runs lie on a line and not over a plane."""

GRID = np.log(np.geomspace(0.05, 1.5, 10))


@attrs.frozen
class LossSurface:
    """``L(N, D) = irreducible + of_parameters / N**parameter_exponent + of_tokens / D**token_exponent``."""

    irreducible: float
    of_parameters: float
    parameter_exponent: float
    of_tokens: float
    token_exponent: float

    def __call__(self, parameters: float, tokens: float) -> float:
        """The loss of a model of so many parameters after so many tokens."""
        of_size = self.of_parameters * parameters**-self.parameter_exponent
        return self.irreducible + of_size + self.of_tokens * tokens**-self.token_exponent

    def optimum(self, compute: float, flops: float = FLOPS_PER_PARAMETER_AND_TOKEN) -> tuple[float, float, float]:
        """The best parameters and tokens of ``flops * parameters * tokens = compute``, and their loss."""
        above_zero("optimum", compute=compute, flops=flops)
        a, b = self.parameter_exponent, self.token_exponent
        weight = a * self.of_parameters / (b * self.of_tokens) if b * self.of_tokens > 0 else float("inf")
        parameters = (weight * (compute / flops) ** b) ** (1 / (a + b))
        if not 0 < parameters < float("inf"):
            return float("nan"), float("nan"), float("nan")
        tokens = compute / flops / parameters
        return parameters, tokens, self(parameters, tokens)


@attrs.frozen(eq=False)
class LossSurfaceFit:
    """A loss surface, and how well it is known.

    Attributes:
        surface: the best fit.
        samples: surfaces that could have been found instead.
        parameter_range: the smallest and largest number of parameters that were fitted.
        token_range: the same of tokens.
        deviation: standard deviation of the noise of a run's loss.
        warnings: why it should not be trusted further; sentences.
    """

    surface: LossSurface
    samples: tuple[LossSurface, ...] = attrs.field(repr=False)
    parameter_range: tuple[float, float]
    token_range: tuple[float, float]
    deviation: float
    warnings: tuple[str, ...] = ()

    def forecast(self, parameters: float, tokens: float, *, level: float = LEVEL) -> Estimate:
        """The loss at so many parameters and tokens (the noise of a single run comes on top)."""
        above_zero("forecast", parameters=parameters, tokens=tokens)
        warnings = [*self.warnings, *outside("parameters", parameters, self.parameter_range)]
        warnings += outside("tokens", tokens, self.token_range)
        samples = np.array([surface(parameters, tokens) for surface in self.samples])
        return estimate(self.surface(parameters, tokens), samples, level, warnings)

    def optimum(
        self, compute: float, *, flops: float = FLOPS_PER_PARAMETER_AND_TOKEN, level: float = LEVEL
    ) -> tuple[Estimate, Estimate, Estimate]:
        """The best parameters and tokens at a budget of compute, and their loss."""
        parameters, tokens, loss = self.surface.optimum(compute, flops)
        warnings = [*self.warnings, *outside("parameters", parameters, self.parameter_range)]
        warnings += outside("tokens", tokens, self.token_range)
        samples = np.array([surface.optimum(compute, flops) for surface in self.samples])
        values = (parameters, tokens, loss)
        found = [estimate(value, samples[:, index], level, warnings) for index, value in enumerate(values)]
        return found[0], found[1], found[2]

    @property
    def irreducible(self) -> Estimate:
        """The loss that neither parameters nor tokens remove."""
        return self._of("irreducible")

    @property
    def parameter_exponent(self) -> Estimate:
        """How fast the loss falls with parameters."""
        return self._of("parameter_exponent")

    @property
    def token_exponent(self) -> Estimate:
        """How fast the loss falls with tokens."""
        return self._of("token_exponent")

    def _of(self, name: str) -> Estimate:
        samples = np.array([getattr(surface, name) for surface in self.samples])
        return estimate(getattr(self.surface, name), samples, LEVEL, self.warnings)


def fit_loss_surface(
    parameters: Column,
    tokens: Column,
    loss: Column,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> LossSurfaceFit:
    """Fit ``L(N, D) = E + A / N**a + B / D**b`` by variable projection.

    The two exponents are searched; for each pair the three other numbers follow by least squares with none below 0.

    Args:
        parameters: N of each run.
        tokens: D of each run.
        loss: at its end.
        resamples: how many surfaces the intervals come from.
        seed: of the resampling.

    Raises:
        ValueError: fewer than 6 runs, of fewer than 2 different sizes or numbers of tokens, or numbers that are not
            above 0.

    Source: Hoffmann et al. 2022, section 3.3 (arXiv 2203.15556); Golub & Pereyra 1973 for the method.
    """
    checked_resampling("fit_loss_surface", resamples, seed)
    sizes, counts, losses = checked("fit_loss_surface", 6, parameters=parameters, tokens=tokens, loss=loss)
    for name, column in (("parameters", sizes), ("tokens", counts)):
        if len(np.unique(column)) < 2:
            raise ValueError(
                f"fit_loss_surface: all runs have the same {name}, {float(column[0]):.4g}; how the loss depends on "
                "them is not known without others"
            )
    logs = _centered(sizes), _centered(counts)
    grid = [np.array([a, b]) for a in GRID for b in GRID]
    start = min(grid, key=lambda exponents: _solved(exponents, *logs, losses)[1])
    exponents = _searched(start, *logs, losses)
    fitted = _columns(exponents, *logs) @ _solved(exponents, *logs, losses)[0]
    worlds = resampled(fitted, losses, 5, resamples=resamples, seed=seed)
    samples = tuple(_surface(_searched(exponents, *logs, world), sizes, counts, world) for world in worlds)
    return LossSurfaceFit(
        _surface(exponents, sizes, counts, losses),
        samples,
        (float(sizes.min()), float(sizes.max())),
        (float(counts.min()), float(counts.max())),
        residual_deviation(losses - fitted, 5),
        _warnings(exponents, *logs, losses),
    )


def _centered(values: np.ndarray) -> np.ndarray:
    return np.log(values) - np.log(values).mean()


def _columns(log_exponents: np.ndarray, sizes: np.ndarray, counts: np.ndarray) -> Float[np.ndarray, "points 3"]:
    a, b = np.exp(log_exponents)
    return np.column_stack([np.ones_like(sizes), np.exp(-a * sizes), np.exp(-b * counts)])


def _solved(
    log_exponents: np.ndarray, sizes: np.ndarray, counts: np.ndarray, losses: np.ndarray
) -> tuple[Float[np.ndarray, " 3"], float]:
    found, residual = nnls(_columns(log_exponents, sizes, counts), losses)
    return found, float(residual)


def _searched(start: np.ndarray, sizes: np.ndarray, counts: np.ndarray, losses: np.ndarray) -> Float[np.ndarray, " 2"]:
    bounds = [(GRID[0] - 1, GRID[-1] + 1)] * 2
    options = {"xatol": 1e-5, "fatol": 1e-12, "maxiter": 400}
    objective = lambda exponents: _solved(exponents, sizes, counts, losses)[1]  # noqa: E731
    return minimize(objective, start, method="Nelder-Mead", bounds=bounds, options=options).x


def _surface(log_exponents: np.ndarray, sizes: np.ndarray, counts: np.ndarray, losses: np.ndarray) -> LossSurface:
    (constant, of_sizes, of_counts), _ = _solved(log_exponents, _centered(sizes), _centered(counts), losses)
    a, b = (float(one) for one in np.exp(log_exponents))
    return LossSurface(
        float(constant),
        float(of_sizes * np.exp(a * np.log(sizes).mean())),
        a,
        float(of_counts * np.exp(b * np.log(counts).mean())),
        b,
    )


def _warnings(log_exponents: np.ndarray, sizes: np.ndarray, counts: np.ndarray, losses: np.ndarray) -> tuple[str, ...]:
    found = []
    for name, logs in (("parameters", sizes), ("tokens", counts)):
        if np.ptp(logs) < np.log(4):
            found.append(f"{name} span only a factor of {np.exp(np.ptp(logs)):.3g}; their exponent is hardly known")
    if np.ptp(sizes) > 0 and np.ptp(counts) > 0 and abs(np.corrcoef(sizes, counts)[0, 1]) > ALONG_A_LINE:
        found.append("parameters and tokens of the runs rise together; what each does is hardly known apart")
    columns = _columns(log_exponents, sizes, counts)
    design = np.column_stack([columns, columns[:, 1] * sizes, columns[:, 2] * counts])
    chance = lack_of_fit(design, sizes * counts, losses)
    if chance < SIGNIFICANT:
        found.append(f"parameters and tokens do not act apart (chance {chance:.2g}); do not extrapolate")
    return tuple(found)
