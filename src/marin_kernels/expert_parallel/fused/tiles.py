"""How much of everything a kernel holds in fast memory at once."""

import attrs
import jax
import jax.numpy as jnp

from marin_kernels.expert_parallel.fused.layout import Grain

LANES = 128
"""Numbers that a register of a TPU holds side by side; widths are multiples of it."""

_MEMORY = {"TPU v5 lite": 128, "TPU v5": 64, "TPU v5p": 64, "TPU v6 lite": 128, "TPU7x": 64}
_LEAST_MEMORY = 16
_STEPS = ((512, 256), (256, 256), (256, 128), (128, 128), (64, 128), (32, 128))  # larger ones compile for minutes


@attrs.frozen
class Tiles:
    """Sizes of what is multiplied at once.

    Attributes:
        grain: rows of a tile, and what a chunk's rows are multiples of.
        inner: the part of an expert's inner width that is held at once.
        memory: bytes of fast memory that a kernel may use.
    """

    grain: Grain
    inner: int
    memory: int


def choose_tiles(width: int, inner: int, dtype: jnp.dtype) -> Tiles:
    """The largest tiles that fit the fast memory of the devices in force.

    Args:
        width: model width.
        inner: inner width of an expert, on one device.
        dtype: of rows and matrices.

    Raises:
        ValueError: a width is no multiple of `LANES`, or nothing fits.
    """
    size = jnp.dtype(dtype).itemsize
    if width % LANES or inner % LANES:
        raise ValueError(
            f"fused_tpu: widths must be multiples of {LANES}, but the model's is {width} and an expert's, on one "
            f"device, {inner}; choose such widths, a smaller model axis, or another implementation"
        )
    capacity = _capacity()
    for rows, part in _STEPS:
        part = _divisor(inner, part)
        if _held(width, part, rows, size) <= capacity * 7 // 8:
            return Tiles(Grain(32 // size, rows), part, capacity * 15 // 16)
    raise ValueError(
        f"fused_tpu: a width of {width} in {jnp.dtype(dtype).name} leaves no room for a tile in {capacity >> 20} MiB "
        "of fast memory; choose a smaller width, bfloat16, or another implementation"
    )


def _divisor(inner: int, most: int) -> int:
    """The largest multiple of `LANES` that divides the inner width and is not above ``most``."""
    return max(part for part in range(LANES, max(most, LANES) + 1, LANES) if inner % part == 0)


def _held(width: int, inner: int, rows: int, size: int) -> int:
    """Bytes that the larger kernel, the reverse one, holds: two of what is fetched, sums, and what is in flight."""
    fetched = 2 * (2 * rows * width + 3 * width * inner) * size
    sums = 2 * rows * width * 4 + 6 * rows * inner * 4
    return fetched + sums + rows * (width + 3 * inner) * size


def _capacity() -> int:
    device = jax.sharding.get_abstract_mesh().abstract_device
    kind = None if device is None else device.device_kind
    return _MEMORY.get(kind, _LEAST_MEMORY) << 20
