"""Grouped products in kernels written for GPUs, under the transports that leave rows sorted by expert."""

from jaxtyping import Array, Float

from marin_kernels.expert_parallel.local import local
from marin_kernels.expert_parallel.ragged import ragged
from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported
from marin_kernels.implementations import platform

GROUPED_MATMUL = "pallas_triton"
"""The grouped matmul that this transport runs or raises with, unless another one is named."""


def grouped_gpu(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """As `local` where one shard has all experts, as `ragged` where several do.

    Raises:
        ValueError: the devices are no GPUs.
    """
    if (here := platform(x)) != "gpu":
        raise ValueError(
            f"moe: 'grouped_gpu' runs on GPUs, and these devices are {here}; choose 'local' for one shard of experts, "
            "'ragged' or 'ring' for several"
        )
    return (local if shard.axis.size == 1 else ragged)(x, routing, experts, shard)
