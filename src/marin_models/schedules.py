"""How the learning rate moves over a run."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def warmup_stable_decay(
    step: int | Int[Array, "*shape"],
    steps: int | Int[Array, ""],
    warmup: float | Float[Array, ""],
    decay: float | Float[Array, ""],
) -> Float[Array, "*shape"]:
    """The factor on the learning rate: linear warm-up, constant, linear decay towards zero.

    Args:
        step: 0-based step.
        steps: length of the run.
        warmup: fraction of the run that warms up; its first step has factor ``1 / (warmup * steps)``.
        decay: fraction of the run that decays; its last step has factor ``1 / (decay * steps)``.

    Source: Hu et al. 2024, "MiniCPM", section 4 (arXiv 2404.06395).
    """
    steps, step = jnp.asarray(steps, jnp.float32), jnp.asarray(step, jnp.float32)
    up = (step + 1) / jnp.maximum(1, jnp.round(warmup * steps))
    down = (steps - step) / jnp.maximum(1, jnp.round(decay * steps))
    return jnp.clip(jnp.minimum(up, down), 0, 1)
