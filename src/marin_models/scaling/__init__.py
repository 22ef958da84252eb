"""Scaling laws: fits of loss against compute, parameters and tokens, with intervals, warnings and forecasts."""

from marin_models.scaling.estimates import Estimate
from marin_models.scaling.isoflops import IsoflopFit, Parabola, fit_isoflops
from marin_models.scaling.loss_surfaces import LossSurface, LossSurfaceFit, fit_loss_surface
from marin_models.scaling.power_laws import PowerLaw, PowerLawFit, fit_power_law
from marin_models.scaling.speedups import effective_speedup

__all__ = [
    "Estimate",
    "IsoflopFit",
    "LossSurface",
    "LossSurfaceFit",
    "Parabola",
    "PowerLaw",
    "PowerLawFit",
    "effective_speedup",
    "fit_isoflops",
    "fit_loss_surface",
    "fit_power_law",
]
