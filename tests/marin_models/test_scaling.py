import attrs
import numpy as np
import pytest

from marin_models.scaling import (
    LossSurface,
    PowerLaw,
    effective_speedup,
    fit_isoflops,
    fit_loss_surface,
    fit_power_law,
)
from marin_models.scaling.estimates import resampled

SURFACE = LossSurface(1.7, 400.0, 0.34, 600.0, 0.29)
COMPUTE = np.geomspace(1e18, 1e21, 7)


def noisy(values, deviation, seed=0):
    return np.asarray(values) + deviation * np.random.default_rng(seed).standard_normal(len(values))


def grid(budgets=5, runs=7):
    """Compute, parameters and tokens around the optimum of each budget."""
    rows = []
    for compute in np.geomspace(1e18, 1e21, budgets):
        best, *_ = SURFACE.optimum(compute)
        rows += [(compute, best * factor, compute / 6 / (best * factor)) for factor in np.geomspace(0.25, 4, runs)]
    return np.array(rows).T


def test_a_power_law_without_noise_is_found_exactly():
    law = PowerLaw(0.3, 0.54)
    fit = fit_power_law(COMPUTE, [law(x) for x in COMPUTE])
    assert fit.law.exponent == pytest.approx(0.54)
    assert fit.law.coefficient == pytest.approx(0.3)
    assert fit.warnings == ()
    forecast = fit.forecast(1e22)
    assert forecast.value == pytest.approx(law(1e22))
    assert forecast.low == pytest.approx(forecast.high)


def test_a_law_that_levels_off_is_found_exactly():
    law = PowerLaw(95.0, -0.094, 1.6)
    fit = fit_power_law(COMPUTE, [law(x) for x in COMPUTE], offset="fitted", resamples=5)
    assert fit.law.offset == pytest.approx(1.6, abs=1e-3)
    assert fit.law.exponent == pytest.approx(-0.094, abs=1e-4)
    assert fit.needed(law(3e20)).value == pytest.approx(3e20, rel=1e-3)


def test_intervals_hold_the_truth_and_widen_beyond_the_runs():
    law = PowerLaw(95.0, -0.094, 1.6)
    fit = fit_power_law(COMPUTE, noisy([law(x) for x in COMPUTE], 0.003), offset="fitted", resamples=100)
    within, beyond = fit.forecast(1e20), fit.forecast(1e24)
    for found, x in ((within, 1e20), (beyond, 1e24)):
        assert found.low <= law(x) <= found.high
    assert beyond.high - beyond.low > 3 * (within.high - within.low)
    assert fit.exponent.low <= -0.094 <= fit.exponent.high


def test_what_is_beyond_the_runs_is_told():
    fit = fit_power_law(COMPUTE, COMPUTE**0.5, resamples=2)
    assert fit.forecast(1e20).warnings == ()
    assert fit.forecast(1e23).warnings == ("x 1e+23 is 100 times above the largest of the runs that were fitted",)
    assert fit.forecast(1e17).warnings == ("x 1e+17 is 10 times below the smallest of the runs that were fitted",)


@pytest.mark.parametrize("offset", ["none", "fitted"])
def test_runs_that_bend_away_from_the_law_are_told(offset):
    bent = 3.0 + 0.1 * np.sin(np.linspace(0, 3, 9)) + 2 * np.linspace(1, 0, 9)
    fit = fit_power_law(np.geomspace(1e18, 1e22, 9), bent, offset=offset, resamples=2)
    assert any("bend away from a power law" in text for text in fit.warnings)


def test_a_narrow_range_is_told():
    fit = fit_power_law([1.0, 2.0, 3.0], [1.0, 1.5, 2.0], resamples=2)
    assert "x spans only a factor of 3; exponents need a factor of 10 or more" in fit.warnings


def test_a_law_that_is_already_flat_needs_infinite_compute_for_less():
    assert PowerLaw(2.0, -0.5, 1.0).inverse(0.9) == float("inf")


def test_a_parabola_of_each_budget_gives_the_best_shapes():
    compute, parameters, _ = grid()
    loss = noisy([SURFACE(n, c / 6 / n) for c, n in zip(compute, parameters, strict=True)], 1e-4)
    fit = fit_isoflops(compute, parameters, loss, resamples=100)
    assert len(fit.parabolas) == 5
    for parabola in fit.parabolas:
        best, _, lowest = SURFACE.optimum(parabola.compute)
        assert parabola.optimum.value == pytest.approx(best, rel=0.1)
        assert parabola.loss.value == pytest.approx(lowest, abs=0.02)
        assert parabola.optimum.low < parabola.optimum.value < parabola.optimum.high
        assert parabola.curvature > 0
    wanted = 0.29 / (0.34 + 0.29)
    assert fit.parameters.law.exponent == pytest.approx(wanted, abs=0.01)
    assert fit.tokens.law.exponent == pytest.approx(1 - wanted, abs=0.01)
    assert fit.parameters.exponent.low < fit.parameters.exponent.high
    best, _, lowest = SURFACE.optimum(1e23)
    assert fit.parameters.forecast(1e23).value == pytest.approx(best, rel=0.15)
    assert fit.loss.forecast(1e23).value == pytest.approx(lowest, abs=0.05)


def test_an_optimum_beyond_its_runs_and_losses_that_are_no_parabola_are_told():
    compute, parameters, _ = grid(runs=9)
    best = np.array([SURFACE.optimum(c)[0] for c in compute])
    logs = np.log(parameters / best)
    skewed = fit_isoflops(compute, parameters, 3 + logs**2 + 0.3 * logs**3, resamples=2)
    assert any("budget 1e+18: the losses are no parabola" in text for text in skewed.warnings)
    beside = fit_isoflops(compute, parameters, 3 + (logs - 2) ** 2, resamples=2)
    assert any("the optimum" in text and "above the largest" in text for text in beside.warnings)


def test_a_budget_without_a_lowest_point_is_refused():
    compute, parameters, _ = grid()
    logs = np.log(parameters) - np.log(parameters).mean()
    with pytest.raises(ValueError, match=r"losses at compute 1e\+18 have no lowest point .* add runs below"):
        fit_isoflops(compute, parameters, 1000 - logs**2)


def test_too_few_budgets_are_refused_with_what_there_is():
    with pytest.raises(ValueError, match=r"at least 3 budgets of at least 3 runs .* there are \{'1': 6, '100': 3\}"):
        fit_isoflops([1] * 6 + [100] * 3, [*range(1, 10)], [*range(1, 10)])


def test_a_surface_without_noise_is_found_exactly():
    _, parameters, tokens = grid()
    loss = [SURFACE(*point) for point in zip(parameters, tokens, strict=True)]
    fit = fit_loss_surface(parameters, tokens, loss, resamples=3)
    for name, value in attrs.asdict(SURFACE).items():
        assert getattr(fit.surface, name) == pytest.approx(value, rel=1e-2), name
    assert fit.warnings == ()
    assert fit.forecast(1e11, 1e13).value == pytest.approx(SURFACE(1e11, 1e13), abs=1e-3)


def test_the_optimum_of_a_surface_is_its_lowest_point_at_a_budget():
    parameters, tokens, loss = SURFACE.optimum(1e21)
    assert 6 * parameters * tokens == pytest.approx(1e21)
    for factor in (0.9, 1.1):
        assert SURFACE(parameters * factor, tokens / factor) > loss


def test_a_surface_with_noise_is_known_to_an_interval():
    _, parameters, tokens = grid()
    loss = noisy([SURFACE(*point) for point in zip(parameters, tokens, strict=True)], 0.002)
    fit = fit_loss_surface(parameters, tokens, loss, resamples=40)
    assert fit.deviation == pytest.approx(0.002, rel=0.4)
    assert fit.irreducible.low <= 1.7 <= fit.irreducible.high
    assert fit.parameter_exponent.low <= 0.34 <= fit.parameter_exponent.high
    assert fit.token_exponent.low <= 0.29 <= fit.token_exponent.high
    for found, truth in zip(fit.optimum(1e24), SURFACE.optimum(1e24), strict=True):
        assert found.low <= truth <= found.high
        assert any("above the largest" in text for text in found.warnings)


def test_parameters_and_tokens_that_act_together_are_told():
    _, parameters, tokens = grid()
    loss = 2 + 1e-3 * np.log(parameters) * np.log(tokens) + 400 * parameters**-0.34 + 600 * tokens**-0.29
    fit = fit_loss_surface(parameters, tokens, loss, resamples=1)
    assert any("do not act apart" in text for text in fit.warnings)


def test_what_could_have_been_observed_scatters_around_the_fit_as_wide_as_the_residuals():
    fitted, residuals = np.linspace(1, 2, 40), np.tile([0.01, -0.03], 20)
    drawn = np.array(list(resampled(fitted, fitted + residuals, 2, resamples=4000, seed=0))) - fitted
    expected = np.sqrt(np.mean(residuals**2) * 40 / 38 * 38 / 36)  # 38 degrees of freedom: Student's variance
    assert drawn.std() == pytest.approx(expected, rel=0.03)
    assert abs(drawn.mean()) < 0.001


def test_a_variant_that_needs_half_the_compute_is_twice_as_fast():
    base, variant = PowerLaw(95.0, -0.094, 1.6), PowerLaw(95.0 * 2**-0.094, -0.094, 1.6)
    fits = [
        fit_power_law(COMPUTE, noisy([law(x) for x in COMPUTE], 0.001, seed), offset="fitted", resamples=100, seed=seed)
        for seed, law in enumerate((base, variant))
    ]
    found = effective_speedup(*fits, 1e20)
    assert found.low <= 2 <= found.high
    assert found.value == pytest.approx(2, rel=0.1)
    assert effective_speedup(*fits, 1e20, throughput=0.5).value == pytest.approx(found.value / 2)
    slower = effective_speedup(*fits, 1e20, throughput=1e-6)
    assert slower.warnings == found.warnings, "a slower variant needs no more of the base's compute"
    assert any(text.startswith("variant: compute 1e+25") for text in effective_speedup(*fits, 1e25).warnings)
    with pytest.raises(ValueError, match=r"throughput must be a finite number above 0, not 0\.0"):
        effective_speedup(*fits, 1e20, throughput=0.0)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [1, 2], "at least 3 runs are needed for this law, 2 were given"),
        ([1, 2, 3], [1, 2], r"their lengths are \{'x': 3, 'y': 2\}"),
        ([1, 2, 3], [1, 0, 2], r"y\[1\] is .*0\.0.*, not a finite number above 0; leave this run out"),
        ([1, float("nan"), 3], [1, 2, 2], r"x\[1\] is nan, not a finite number above 0"),
        ([1, -2.0, 3], [1, 2, 2], r"x\[1\] is -2\.0, not a finite number above 0"),
        ([7, 7, 7], [1, 2, 2], "the 3 runs have 1 different x, 7 the first; at least 2 are needed to tell how y"),
        (np.ones((3, 2)), [1, 2, 2], "x must be a sequence with one number per run, not array"),
    ],
)
def test_runs_that_cannot_be_fitted_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message):
        fit_power_law(x, y)


def test_a_law_that_levels_off_needs_three_places():
    with pytest.raises(ValueError, match="the 4 runs have 2 different x, 1 the first; at least 3 are needed"):
        fit_power_law([1, 1, 2, 2], [4, 3, 2, 1], offset="fitted")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda fit: fit.forecast(0.0), r"forecast: x must be a finite number above 0, not 0\.0"),
        (lambda fit: fit.forecast(-1.0), r"forecast: x must be a finite number above 0, not -1\.0"),
        (lambda fit: fit.needed(float("nan")), "needed: y must be a finite number above 0, not nan"),
        (lambda fit: fit.forecast(1e20, level=95.0), r"level must be between 0 and 1, such as 0\.95, not 95\.0"),
        (lambda fit: effective_speedup(fit, fit, 0.0), r"effective_speedup: compute must be .* above 0, not 0\.0"),
    ],
)
def test_what_cannot_be_asked_of_a_law_is_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(fit_power_law(COMPUTE, COMPUTE**0.5, resamples=2))


def test_without_resamples_there_is_a_law_and_no_interval():
    fit = fit_power_law(COMPUTE, COMPUTE**0.5, resamples=0)
    assert fit.law.exponent == pytest.approx(0.5)
    with pytest.raises(ValueError, match="without resamples there is no interval; fit with resamples of at least 1"):
        fit.forecast(1e20)
    with pytest.raises(ValueError, match="resamples -1 and seed 0 must be integers of at least 0"):
        fit_power_law(COMPUTE, COMPUTE, resamples=-1)


BUDGETS = np.repeat([1e18, 1e19, 1e20], 3)


@pytest.mark.parametrize(
    ("sizes", "losses", "settings", "message"),
    [
        ([1e6, 1e6, 2e6], [3, 3.1, 2.9], {}, r"the 3 runs at compute 1e\+18 have 2 different numbers of parameters"),
        ([1e6, 2e6, 4e6], [3, 2.9, 2.8 + 1e-14], {}, r"the losses at compute 1e\+18 have no lowest point .* add runs"),
        ([1e6, 2e6, 4e6], [3, 2.8, 2.9], {"flops": -6.0}, r"flops must be a finite number above 0, not -6\.0"),
        ([1e6, 2e6, 4e6], [3, 2.8, 2.9], {"resamples": 0}, "resamples must be a finite number above 0, not 0"),
    ],
)
def test_budgets_that_have_no_parabola_are_refused(sizes, losses, settings, message):
    with pytest.raises(ValueError, match=message):
        fit_isoflops(BUDGETS, sizes * 3, losses * 3, **settings)


def test_a_surface_needs_runs_of_different_sizes_and_tokens():
    parameters = np.geomspace(1e6, 1e8, 6)
    for changed, message in (
        ({"parameters": [1e6] * 6}, "all runs have the same parameters, 1e\\+06; how the loss depends on them"),
        ({"tokens": [1e9] * 6}, "all runs have the same tokens, 1e\\+09"),
    ):
        columns = {"parameters": parameters, "tokens": 20 * parameters, "loss": np.linspace(4, 3, 6), **changed}
        with pytest.raises(ValueError, match=message):
            fit_loss_surface(**columns)


def test_runs_along_a_line_are_told():
    parameters = np.geomspace(1e6, 1e8, 6)
    loss = [SURFACE(one, 20 * one) for one in parameters]
    fit = fit_loss_surface(parameters, 20 * parameters, loss, resamples=1)
    assert "parameters and tokens of the runs rise together; what each does is hardly known apart" in fit.warnings
    with pytest.raises(ValueError, match=r"optimum: compute must be a finite number above 0, not -1\.0"):
        fit.optimum(-1.0)
    with pytest.raises(ValueError, match=r"forecast: tokens must be a finite number above 0, not 0\.0"):
        fit.forecast(1e6, 0.0)


@pytest.mark.long
def test_intervals_of_forecasts_hold_the_truth_as_often_as_they_say():
    law, held, worlds = PowerLaw(0.3, 0.54), 0, 150
    for seed in range(worlds):
        y = np.exp(noisy(np.log([law(x) for x in COMPUTE]), 0.1, seed))
        found = fit_power_law(COMPUTE, y, resamples=100, seed=seed).forecast(1e23)
        held += found.low <= law(1e23) <= found.high
    assert 0.90 <= held / worlds <= 0.99


@pytest.mark.long
def test_intervals_of_surfaces_and_isoflops_hold_the_truth_as_often_as_they_say():
    compute, parameters, tokens = grid()
    clean = np.array([SURFACE(*point) for point in zip(parameters, tokens, strict=True)])
    held, worlds = {"loss": 0, "exponent": 0, "isoflop exponent": 0}, 30
    truth = SURFACE.optimum(1e22)[2]
    logs = np.log(parameters / np.array([SURFACE.optimum(c)[0] for c in compute]))
    for seed in range(worlds):
        surface = fit_loss_surface(parameters, tokens, noisy(clean, 0.003, seed), resamples=60, seed=seed)
        loss = surface.optimum(1e22)[2]
        held["loss"] += loss.low <= truth <= loss.high
        held["exponent"] += surface.token_exponent.low <= 0.29 <= surface.token_exponent.high
        curves = fit_isoflops(compute, parameters, noisy(3 + 0.05 * logs**2, 0.003, seed), resamples=60, seed=seed)
        exponent = curves.parameters.exponent
        held["isoflop exponent"] += exponent.low <= 0.29 / 0.63 <= exponent.high
    assert all(count / worlds >= 0.83 for count in held.values()), held
