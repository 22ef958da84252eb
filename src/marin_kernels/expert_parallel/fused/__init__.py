"""`fused_tpu`: dispatch, experts and combination in one kernel for TPUs."""

from marin_kernels.expert_parallel.fused.transport import fused_tpu

__all__ = ["fused_tpu"]
