"""A feed-forward block of many experts, of which each token visits a few."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from marin_kernels.expert_parallel import Dispatch, Experts, Routing, moe
from marin_models.balancing import auxiliary_loss, load_entropy, max_violation, measured_bias, sign_bias
from marin_models.feed_forward import SwiGLU
from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.latent import LatentSpace
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.router import Routed, Router, router_z_loss


class RouterStatistics(NamedTuple):
    """What a routed layer says of one batch; of many layers, stacked. All but ``loss`` carry no gradient.

    Attributes:
        loss: what to add to the training loss: the weighted auxiliary and z-loss, as far as the config asks for them.
        next_bias: the balancing bias that this batch asks for, to route the next one.
        load: assignments of valid tokens to each expert, before any is dropped.
        max_violation: by how much the busiest expert exceeds the mean load, as a share of the mean (MaxVio).
        load_entropy: of the shares of load, nats.
        auxiliary_loss: before its coefficient; 1 when load and probabilities are even.
        z_loss: the mean squared log-normalizer of the router's logits, before its coefficient.
        dropped_by_sender: assignments that their own shard did not send.
        dropped_by_receiver: assignments that their expert's shard had no room for.
        padding: assignments that tokens which are not valid would have had.
    """

    loss: Float[Array, "*layers"]
    next_bias: Float[Array, "*layers experts"]
    load: Int[Array, "*layers experts"]
    max_violation: Float[Array, "*layers"]
    load_entropy: Float[Array, "*layers"]
    auxiliary_loss: Float[Array, "*layers"]
    z_loss: Float[Array, "*layers"]
    dropped_by_sender: Int[Array, "*layers"]
    dropped_by_receiver: Int[Array, "*layers"]
    padding: Int[Array, "*layers"]


class MixtureOfExperts(eqx.Module):
    """Routed experts, each a SwiGLU, and beside them a shared one that every token visits.

    ``expert_width`` is the model's width, or the size of the latent space.
    """

    router: Router
    latent: LatentSpace | None
    gate: Float[Array, "*layers experts expert_width inner"] = parameter("matrix", ("expert", "data", "model"))
    up: Float[Array, "*layers experts expert_width inner"] = parameter("matrix", ("expert", "data", "model"))
    down: Float[Array, "*layers experts inner expert_width"] = parameter("matrix", ("expert", "model", "data"))
    shared: SwiGLU | None
    config: MixtureOfExpertsConfig = eqx.field(static=True)

    def __init__(
        self,
        config: MixtureOfExpertsConfig,
        width: int,
        *,
        scale: float,
        output_scale: float,
        norm_epsilon: float = 1e-6,
        key: Key[Array, ""],
    ):
        router_key, gate_key, up_key, down_key, shared_key = jax.random.split(key, 5)
        latent_key = jax.random.fold_in(key, 1)
        scales = {"scale": scale, "output_scale": output_scale}
        # What writes to the residual stream is the way back from a latent space, where there is one.
        size, down_scale = config.expert_width(width), scale if config.latent else output_scale
        self.router = Router(config, width, scale=scale, key=router_key)
        self.latent = (
            LatentSpace(width, config.latent, epsilon=norm_epsilon, key=latent_key, **scales) if config.latent else None
        )
        self.gate = _initial_matrices(gate_key, config.experts, size, config.inner, scale)
        self.up = _initial_matrices(up_key, config.experts, size, config.inner, scale)
        self.down = _initial_matrices(down_key, config.experts, config.inner, size, down_scale)
        self.shared = SwiGLU(width, config.shared_inner, key=shared_key, **scales) if config.shared_inner else None
        self.config = config

    def __call__(
        self,
        x: Float[Array, "tokens width"],
        bias: Float[Array, " experts"] | None = None,
        valid: Bool[Array, " tokens"] | None = None,
    ) -> tuple[Float[Array, "tokens width"], RouterStatistics]:
        """Transform each token by the experts that the router chooses for it.

        Args:
            x: hidden states; over a mesh their rows are split as `marin_kernels.expert_parallel.moe` says.
            bias: the balancing bias in force, fp32; None: zeros.
            valid: tokens that are more than padding; None: all. The routed experts give the others zeros, and no
                statistic counts them.

        Returns:
            The sum of routed and shared experts in the dtype of ``x``, and what balancing and metrics need.

        Raises:
            ValueError: the implementation cannot run on the mesh in force.
        """
        routed = self.router(x, bias, valid)
        output, dispatch = moe(
            x if self.latent is None else self.latent.enter(x),
            Routing(routed.experts, routed.weights, valid),
            Experts(*(matrix.astype(x.dtype) for matrix in (self.gate, self.up, self.down))),
            implementation=self.config.implementation,
            capacity_factor=self.config.capacity_factor,
            grouped_matmul=self.config.grouped_matmul,
        )
        if self.latent is not None:
            output = self.latent.leave(output)
        if self.shared is not None:
            output = output + self.shared(x)
        return output, _statistics(self.config, routed, dispatch, bias, valid)


def merged(
    statistics: RouterStatistics, bias: Float[Array, "*layers experts"] | None, config: MixtureOfExpertsConfig
) -> RouterStatistics:
    """The statistics of a batch that was worked on in parts, from those of the parts.

    Counts, and a next bias by sign, are those of the whole batch. A next bias by quantiles is the mean of what the
    parts ask for, and losses are the means of theirs, each part weighing as many valid tokens as it has.

    Args:
        statistics: stacked over parts on their first axis.
        bias: what routed the batch; None: zeros.
        config: how to balance.
    """
    assignments = jnp.sum(statistics.load, axis=-1)
    shares = assignments / jnp.maximum(jnp.sum(assignments, axis=0), 1)
    means = {name: jnp.sum(shares * getattr(statistics, name), axis=0) for name in ("loss", "auxiliary_loss", "z_loss")}
    counts = {name: jnp.sum(getattr(statistics, name), axis=0) for name in _COUNTS}
    load = counts["load"]
    if config.balancing == "sign":
        next_bias = sign_bias(load, jnp.zeros(load.shape) if bias is None else bias, config.sign_step)
    else:
        asked = jnp.sum(shares[..., None] * statistics.next_bias, axis=0)
        next_bias = jnp.where(jnp.any(load > 0, axis=-1, keepdims=True), asked, statistics.next_bias[0])
    return RouterStatistics(
        next_bias=next_bias,
        max_violation=max_violation(load),
        load_entropy=load_entropy(load),
        **means,
        **counts,
    )


_COUNTS = ("load", "dropped_by_sender", "dropped_by_receiver", "padding")


def _initial_matrices(key: Array, count: int, inputs: int, outputs: int, scale: float) -> Array:
    """Independent matrices, drawn as one tall one: to draw three axes takes several times as long to compile."""
    tall = initial_matrix(key, count * inputs, outputs, scale=scale * count**0.5)
    return tall.reshape(count, inputs, outputs)


def _statistics(
    config: MixtureOfExpertsConfig, routed: Routed, dispatch: Dispatch, bias: Array | None, valid: Array | None
) -> RouterStatistics:
    auxiliary = auxiliary_loss(routed, dispatch.load, valid, config=config)
    z_loss = router_z_loss(routed.logits, valid)
    coefficient = config.auxiliary_coefficient if config.balancing == "auxiliary" else 0.0
    return RouterStatistics(
        loss=coefficient * auxiliary + config.router_z_loss * z_loss,
        next_bias=measured_bias(routed, dispatch.load, bias, valid, config=config),
        max_violation=max_violation(dispatch.load),
        load_entropy=load_entropy(dispatch.load),
        auxiliary_loss=jax.lax.stop_gradient(auxiliary),
        z_loss=jax.lax.stop_gradient(z_loss),
        **dispatch._asdict(),
    )
