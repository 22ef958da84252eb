"""Expert parallelism: tokens to their experts and back, over the expert axis of a mesh."""

from marin_kernels.expert_parallel.dispatch import moe
from marin_kernels.expert_parallel.routing import Dispatch, ExpertParallelImplementation, Experts, Routing

__all__ = ["Dispatch", "ExpertParallelImplementation", "Experts", "Routing", "moe"]
