"""Expert parallelism: tokens to their experts and back, over the expert axis of a mesh."""

from marin_kernels.expert_parallel.dispatch import moe
from marin_kernels.expert_parallel.extent import Extent
from marin_kernels.expert_parallel.routing import Dispatch, ExpertParallelImplementation, Experts, Routing
from marin_kernels.expert_parallel.traffic import collective_bytes

__all__ = [
    "Dispatch",
    "ExpertParallelImplementation",
    "Experts",
    "Extent",
    "Routing",
    "collective_bytes",
    "moe",
]
