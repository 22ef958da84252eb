"""What goes into an expert-parallel layer and what comes out of it."""

from typing import Literal, NamedTuple

from jaxtyping import Array, Bool, Float, Int

ExpertParallelImplementation = Literal[
    "reference",
    "local",
    "ring",
    "ring_dedup",
    "fixed",
    "pooled",
    "ragged",
    "hierarchical",
    "fused_tpu",
    "grouped_gpu",
]


class Routing(NamedTuple):
    """Which experts each token goes to.

    Attributes:
        experts: expert ids in ``[0, experts)``, distinct within a token; an id outside of that range is no assignment.
        weights: combine weights: the output is their sum over experts, weighted. Differentiable.
        valid: False marks padding, which belongs to no expert and comes out as zero; None: all tokens are real.
    """

    experts: Int[Array, "tokens top_k"]
    weights: Float[Array, "tokens top_k"]
    valid: Bool[Array, " tokens"] | None = None


class Experts(NamedTuple):
    """The matrices of all experts; each computes ``(silu(x @ gate) * (x @ up)) @ down``.

    Source: Shazeer 2020, "GLU Variants Improve Transformer" (arXiv 2002.05202).
    """

    gate: Float[Array, "experts width inner"]
    up: Float[Array, "experts width inner"]
    down: Float[Array, "experts inner width"]


class Dispatch(NamedTuple):
    """Exact counts of one call, over all shards of the mesh.

    Attributes:
        load: assignments to each expert, before any is dropped.
        dropped_by_sender: assignments that their own shard did not send.
        dropped_by_receiver: assignments that their expert's shard had no room for.
        padding: entries of the routing that are no assignment: those of invalid tokens.
    """

    load: Int[Array, " experts"]
    dropped_by_sender: Int[Array, ""]
    dropped_by_receiver: Int[Array, ""]
    padding: Int[Array, ""]
