"""How fast training is, and what share of the hardware's arithmetic it uses."""

import statistics
import time
from typing import Any

import attrs
import jax
import jax.numpy as jnp

from marin_models.checks import not_negative, optional

PEAK_FLOPS = {
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5p": 459e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "TPU7x": 2307e12,
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "NVIDIA B200": 2250e12,
}
"""Dense bf16 operations per second of one device by how its name begins, from the makers' data sheets (for GPUs of the
SXM form)."""


@attrs.frozen
class Throughput:
    """How fast a run is.

    Attributes:
        tokens_per_second: predicted tokens over wall time.
        flops_per_second: of the model's matrix products (see `marin_models.flops_per_token`), on all devices together.
        utilization: of the devices' peak (model FLOPs utilization, MFU; Chowdhery et al. 2022, arXiv 2204.02311,
            appendix B); None: the peak is not known.
    """

    tokens_per_second: float = attrs.field(validator=not_negative)
    flops_per_second: float = attrs.field(validator=not_negative)
    utilization: float | None = attrs.field(validator=optional(not_negative))


def throughput(tokens: int, seconds: float, flops_per_token: float, peak_flops: float | None = None) -> Throughput:
    """How fast so many tokens in so many seconds are.

    Args:
        tokens: that were predicted.
        seconds: wall time.
        flops_per_token: see `marin_models.flops_per_token`.
        peak_flops: operations per second of all devices together: `known_peak_flops` or `measured_peak_flops` times
            their number; None: not known.
    """
    rate = tokens / seconds if seconds > 0 else 0.0
    flops = rate * flops_per_token
    return Throughput(rate, flops, None if peak_flops is None else flops / peak_flops)


def known_peak_flops(device: Any = None) -> float | None:
    """Dense bf16 operations per second of a device, as its maker says; None for one that is not in `PEAK_FLOPS`.

    Args:
        device: a ``jax.Device``; the first one unless given.
    """
    kind = (jax.devices()[0] if device is None else device).device_kind
    return next((peak for name, peak in PEAK_FLOPS.items() if kind.startswith(name)), None)


def measured_peak_flops(*, size: int = 2048, dtype: str = "float32", repetitions: int = 5) -> float:
    """Operations per second of a square matrix product on the first device, the median of some repetitions.

    Args:
        size: of the matrices.
        dtype: of their entries.
        repetitions: how many products are timed, one by one.
    """
    left, right = (jnp.full((size, size), value, dtype) for value in (1.0, 0.5))
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(left, right))
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        jax.block_until_ready(product(left, right))
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / statistics.median(seconds)
