"""`fused_tpu`: dispatch, experts and combination in one kernel for TPUs."""

from jaxtyping import Array, Float

from marin_kernels.expert_parallel.routing import Experts, Routing
from marin_kernels.expert_parallel.shard import Shard, Transported


def fused_tpu(x: Float[Array, "tokens width"], routing: Routing, experts: Experts, shard: Shard) -> Transported:
    """See `marin_kernels.expert_parallel.fused.transport`; Pallas is imported when it is first asked for."""
    from marin_kernels.expert_parallel.fused.transport import fused_tpu as send

    return send(x, routing, experts, shard)


__all__ = ["fused_tpu"]
