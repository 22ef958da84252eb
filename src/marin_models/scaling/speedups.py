"""How much less compute a variant needs."""

import numpy as np

from marin_models.scaling.estimates import LEVEL, Estimate, above_zero, estimate, outside
from marin_models.scaling.power_laws import PowerLawFit


def effective_speedup(
    base: PowerLawFit, variant: PowerLawFit, compute: float, *, throughput: float = 1.0, level: float = LEVEL
) -> Estimate:
    """The compute that the base needs for the loss which the variant reaches with ``compute``, over ``compute``.

    Args:
        base: loss of the base as a law of compute.
        variant: loss of the variant as a law of compute.
        compute: where they are compared.
        throughput: operations per second of the variant over those of the base; the result is then of time.
        level: of the interval, which comes from laws of both that could have been found instead.

    Returns:
        Above 1: the variant is better. Infinite: the base's law levels off above the variant's loss.

    Raises:
        ValueError: ``throughput`` or ``compute`` is not finite or not above 0.
    """
    above_zero("effective_speedup", compute=compute, throughput=throughput)
    value = throughput * base.law.inverse(variant.law(compute)) / compute
    count = min(len(base.samples), len(variant.samples))
    # the samples of two fits are independent only if they are not paired by the same seed
    pairs = zip(base.samples[:count], np.random.default_rng(0).permutation(count), strict=True)
    samples = [throughput * one.inverse(variant.samples[other](compute)) / compute for one, other in pairs]
    warnings = [f"base: {text}" for text in base.warnings] + [f"variant: {text}" for text in variant.warnings]
    warnings += outside("variant: compute", compute, variant.range)
    warnings += outside("base: compute", value * compute / throughput, base.range)
    return estimate(value, np.array(samples), level, warnings)
