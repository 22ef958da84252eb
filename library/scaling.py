"""Scaling laws as operators: fits of what runs cost and reached (see `marin_models.scaling`)."""

from collections.abc import Sequence

import attrs

from marin_dsl import encodable, op
from marin_models import scaling
from marin_models.scaling import (
    Estimate,
    IsoflopFit,
    LossSurface,
    LossSurfaceFit,
    Parabola,
    PowerLaw,
    PowerLawFit,
)

for _kind in (Estimate, IsoflopFit, LossSurface, LossSurfaceFit, Parabola, PowerLaw, PowerLawFit):
    encodable(name=f"marin:{_kind.__name__}")(_kind)


@encodable
@attrs.frozen
class Measured:
    """One run as a point of a scaling law.

    Attributes:
        parameters: of its model.
        tokens: that it was trained on.
        compute: floating-point operations of the whole run.
        loss: at its end, nats per token.
    """

    parameters: int
    tokens: int
    compute: float
    loss: float


@op(pin=["numpy", "scipy"])
def isoflops(runs: Sequence[Measured], *, seed: int = 0) -> IsoflopFit:
    """The best shape at each budget of compute, and how it grows.

    Raises:
        ValueError: fewer than 3 budgets of at least 3 runs each, or a budget whose loss has no lowest point.
    """
    compute, parameters, loss = (_column(runs, name) for name in ("compute", "parameters", "loss"))
    return scaling.fit_isoflops(compute, parameters, loss, seed=seed)


@op(pin=["numpy", "scipy"])
def loss_surface(runs: Sequence[Measured], *, seed: int = 0) -> LossSurfaceFit:
    """The loss as a function of parameters and tokens.

    Raises:
        ValueError: fewer than 6 runs.
    """
    parameters, tokens, loss = (_column(runs, name) for name in ("parameters", "tokens", "loss"))
    return scaling.fit_loss_surface(parameters, tokens, loss, seed=seed)


@op(pin=["numpy", "scipy"])
def loss_of_compute(runs: Sequence[Measured], *, seed: int = 0) -> PowerLawFit:
    """The loss as a power law of compute that levels off at a constant.

    Raises:
        ValueError: fewer than 4 runs.
    """
    compute, loss = (_column(runs, name) for name in ("compute", "loss"))
    return scaling.fit_power_law(compute, loss, offset="fitted", seed=seed)


@op(pin=["numpy", "scipy"])
def forecast(fit: PowerLawFit, compute: float) -> Estimate:
    """The loss at another compute, with an interval, and a warning where it lies beyond the runs."""
    return fit.forecast(compute)


@op(pin=["numpy", "scipy"])
def speedup(base: PowerLawFit, variant: PowerLawFit, compute: float, *, throughput: float = 1.0) -> Estimate:
    """How much more compute the base needs for the loss that the variant reaches with ``compute``."""
    return scaling.effective_speedup(base, variant, compute, throughput=throughput)


def _column(runs: Sequence[Measured], name: str) -> list[float]:
    return [float(getattr(run, name)) for run in runs]
