"""What the makers say of their chips."""

from collections.abc import Mapping
from types import MappingProxyType

import attrs


@attrs.frozen
class Chip:
    """The documented numbers of one chip.

    Attributes:
        name: as people write it.
        flops: dense bf16 operations per second.
        memory: bytes.
        memory_bandwidth: bytes per second.
        network: bytes per second over all links to its neighbours, both directions together.
    """

    name: str
    flops: float
    memory: float
    memory_bandwidth: float
    network: float


CHIPS: Mapping[str, Chip] = MappingProxyType(
    {
        "v4": Chip("TPU v4", 275e12, 32 * 2**30, 1228e9, 300e9),
        "v5e": Chip("TPU v5e", 197e12, 16 * 2**30, 819e9, 200e9),
        "v5p": Chip("TPU v5p", 459e12, 95 * 2**30, 2765e9, 600e9),
        "v6e": Chip("TPU v6e", 918e12, 32 * 2**30, 1640e9, 448e9),
        "tpu7x": Chip("TPU7x", 2307e12, 192 * 2**30, 7380e9, 1200e9),
        "h100": Chip("NVIDIA H100 SXM", 989e12, 80e9, 3350e9, 900e9),
        "h200": Chip("NVIDIA H200 SXM", 989e12, 141e9, 4800e9, 900e9),
    }
)
"""By the kind in the name of a topology.

Sources: Cloud TPU documentation, "System architecture" of each generation (interchip interconnect bandwidth per chip);
data sheets of H100 and H200 (NVLink).
"""


def chip(topology: str) -> Chip:
    """The chip of a topology such as ``v5p:4x4x4``.

    Raises:
        ValueError: there is no such kind of chip.
    """
    kind = topology.partition(":")[0]
    if kind not in CHIPS:
        raise ValueError(f"topology {topology!r}: no numbers of chip {kind!r}; choose one of {', '.join(CHIPS)}")
    return CHIPS[kind]
