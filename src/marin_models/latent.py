"""A space narrower than the model, in which routed experts work."""

import equinox as eqx
import jax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Key

from marin_kernels.expert_parallel.saved import LATENT
from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.mesh import BATCH, SHARDS, product, put
from marin_models.normalization import RMSNorm


class LatentSpace(eqx.Module):
    """The way from the model's width into a latent space, normalized on entry, and the way back.

    Source: LatentMoE (arXiv 2601.18089); the norm is that of Marin's recipes.
    """

    down: Float[Array, "*layers width latent"] = parameter("matrix", (SHARDS, "model"))
    norm: RMSNorm
    up: Float[Array, "*layers latent width"] = parameter("matrix", ("model", SHARDS))

    def __init__(
        self, width: int, latent: int, *, scale: float, output_scale: float, epsilon: float, key: Key[Array, ""]
    ):
        down_key, up_key = jax.random.split(key)
        self.down = initial_matrix(down_key, width, latent, scale=scale)
        self.norm = RMSNorm(latent, epsilon)
        self.up = initial_matrix(up_key, latent, width, scale=output_scale)

    def enter(self, x: Float[Array, "tokens width"]) -> Float[Array, "tokens latent"]:
        """Project tokens, and normalize what comes of it; over a mesh each device has whole vectors."""
        down = put(self.down.astype(x.dtype), None, "model")
        projected = put(product(x, down, BATCH, "model"), BATCH, None)
        return self.norm(checkpoint_name(projected, LATENT))

    def leave(self, y: Float[Array, "tokens latent"]) -> Float[Array, "tokens width"]:
        """Project back to the model's width."""
        return product(put(y, BATCH, "model"), put(self.up.astype(y.dtype), "model", None), BATCH, None)
