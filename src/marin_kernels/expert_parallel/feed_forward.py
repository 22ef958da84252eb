"""The experts' own computation, on rows sorted by expert."""

from collections.abc import Callable

import jax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from marin_kernels.expert_parallel.routing import Experts
from marin_kernels.expert_parallel.saved import DISPATCHED, GATED, RAISED

GroupedMatmul = Callable[[Array, Array, Array], Array]
"""``(rows [rows in], matrices [groups in out], sizes [groups]) -> [rows out]``; zero behind the last group."""

FeedForward = Callable[[Array, Array, Experts], Array]
"""``(rows [rows width], sizes [experts], experts) -> [rows width]``; zero behind the last expert."""


def expert_feed_forward(
    rows: Float[Array, "rows width"],
    sizes: Int[Array, " experts"],
    experts: Experts,
    multiply: GroupedMatmul,
) -> Float[Array, "rows width"]:
    """``(silu(x @ gate) * (x @ up)) @ down`` with the matrices of each row's expert; zero behind the last expert."""
    gate, up, down = (matrix.astype(rows.dtype) for matrix in experts)
    rows = checkpoint_name(rows, DISPATCHED)
    gated, raised = multiply(rows, gate, sizes), multiply(rows, up, sizes)
    hidden = jax.nn.silu(checkpoint_name(gated, GATED)) * checkpoint_name(raised, RAISED)
    return multiply(hidden, down, sizes)
