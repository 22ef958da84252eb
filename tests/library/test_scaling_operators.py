import numpy as np
import pytest

from library.scaling import Measured, forecast, isoflops, loss_of_compute, loss_surface, speedup
from marin_dsl import evaluate
from marin_models.scaling import LossSurface

SURFACE = LossSurface(1.7, 400.0, 0.34, 600.0, 0.29)


def runs(budgets=(1e18, 1e19, 1e20, 1e21), factors=(0.3, 0.6, 1.2, 2.4), gain=1.0):
    found = []
    for compute in budgets:
        best = SURFACE.optimum(compute)[0]
        for factor in factors:
            parameters = int(best * factor)
            tokens = int(compute / 6 / parameters)
            loss = SURFACE(float(parameters), tokens * gain)
            found.append(Measured(parameters, tokens, 6.0 * parameters * tokens, loss))
    return found


def value(expression, store):
    return evaluate(expression, store=store, debug=True).value


def test_fits_are_values_of_expressions_and_round_trip_through_a_store(tmp_path):
    measured = runs()
    shapes, surface = isoflops(measured), loss_surface(measured)
    first, second = ([value(one, tmp_path) for one in (shapes, surface)] for _ in range(2))
    assert first[0].parameters.law.exponent == pytest.approx(0.29 / 0.63, abs=0.02)
    assert first[1].surface.irreducible == pytest.approx(1.7, abs=0.01)
    for one, other in zip(first, second, strict=True):
        assert type(one) is type(other)
    assert second[1].samples == first[1].samples
    assert str(second[0].parabolas[0].optimum) == str(first[0].parabolas[0].optimum)


def test_forecasts_and_speedups_follow_from_fits(tmp_path):
    base = loss_of_compute(runs(factors=(1.0,), budgets=np.geomspace(1e18, 1e21, 6).tolist()))
    better = loss_of_compute(runs(factors=(1.0,), budgets=np.geomspace(1e18, 1e21, 6).tolist(), gain=2.0))
    ahead, gain = (value(one, tmp_path) for one in (forecast(base, 1e22), speedup(base, better, 1e20)))
    assert ahead.value == pytest.approx(SURFACE.optimum(1e22)[2], abs=0.02)
    assert "10 times above the largest" in ahead.warnings[0]
    assert 1.2 < gain.value < 2
