"""The loss of a batch, on one device or in pieces over a mesh."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from marin_kernels import CrossEntropyImplementation, LinearCrossEntropy, linear_cross_entropy
from marin_models.mesh import BATCH, axis_sizes, put, spec


def mean_cross_entropy(
    hidden: Float[Array, "batch length width"],
    head: Float[Array, "width vocabulary"],
    targets: Int[Array, "batch length"],
    weights: Float[Array, "batch length"] | None = None,
    *,
    z_loss: float | Float[Array, ""] = 0.0,
    implementation: CrossEntropyImplementation = "chunked",
) -> LinearCrossEntropy:
    """`marin_kernels.linear_cross_entropy` of rows; over a mesh in force each device scores its own rows.

    Args:
        hidden: final hidden states; over a mesh, their rows are split as those of a batch.
        head: output projection; over a mesh, every device puts it together.
        targets: the next token of each position.
        weights: how much each prediction counts; None: all the same.
        z_loss: coefficient of the squared log-normalizer.
        implementation: of the kernel.
    """

    def of_rows(
        hidden: Array, head: Array, targets: Array, weights: Array | None, z_loss: float | Array
    ) -> LinearCrossEntropy:
        flat = (hidden.reshape(-1, hidden.shape[-1]), head, targets.reshape(-1))
        weights = None if weights is None else weights.reshape(-1)
        return linear_cross_entropy(*flat, weights, z_loss, implementation=implementation)

    if not axis_sizes():
        return of_rows(hidden, head, targets, weights, z_loss)
    weights = jnp.ones_like(targets, jnp.float32) if weights is None else weights
    total = jnp.maximum(jnp.sum(weights), 1)

    def of_shard(
        hidden: Array, head: Array, targets: Array, weights: Array, z_loss: Array, total: Array
    ) -> LinearCrossEntropy:
        share = jnp.sum(weights) / total
        return jax.tree.map(lambda mean: (share * mean)[None], of_rows(hidden, head, targets, weights, z_loss))

    rows = spec(BATCH, None)
    arguments = (spec(BATCH, None, None), spec(None, None), rows, rows, spec(), spec())
    # Carries of the kernel's loops begin as constants, the same on all devices, which the check would refuse.
    shards = jax.shard_map(of_shard, in_specs=arguments, out_specs=spec(BATCH), check_vma=False)
    split = (put(targets, BATCH, None), put(weights, BATCH, None))
    found = shards(hidden, put(head, None, None), *split, jnp.asarray(z_loss, jnp.float32), total)
    return jax.tree.map(jnp.sum, found)
