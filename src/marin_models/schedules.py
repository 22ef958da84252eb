"""How the learning rate moves over a run."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Schedule = Literal["wsd", "cosine", "linear", "constant"]


class ScheduleNumbers(NamedTuple):
    """The numbers of a schedule; a compiled step takes them as input.

    Attributes:
        warmup: fraction of the run that warms up linearly.
        warmup_steps: steps that warm up instead; negative: ``warmup`` holds.
        decay: under ``"wsd"``, the fraction of the run, at its end, that decays.
        final: the factor that the decay goes to, at most 1.
        branch_start: under ``"constant"``, the 0-based step from which on a branch decays; infinity: never.
        branch_steps: the length of that decay.
    """

    warmup: float | Float[Array, ""] = 0.0
    warmup_steps: float | Float[Array, ""] = -1.0
    decay: float | Float[Array, ""] = 0.0
    final: float | Float[Array, ""] = 0.0
    branch_start: float | Float[Array, ""] = float("inf")
    branch_steps: float | Float[Array, ""] = 1.0


def schedule_factor(
    schedule: Schedule,
    numbers: ScheduleNumbers,
    step: int | Int[Array, "*shape"],
    steps: int | Int[Array, ""],
) -> Float[Array, "*shape"]:
    """The factor on the learning rate at a step.

    Every schedule warms up linearly; the first step of ``w`` has the factor ``1 / w``. A decay over ``d`` steps goes
    linearly (``"cosine"``: along half a cosine) from 1 to ``final``, which it reaches one step after the last:

    - ``"wsd"``: constant, then the last ``decay`` of the run decays;
    - ``"cosine"``, ``"linear"``: all after the warm-up decays;
    - ``"constant"``: stays, or from step ``branch_start`` on decays over ``branch_steps``. Up to there it is the same
      for the trunk, which knows nothing of its branches, if ``warmup_steps`` is given.

    Args:
        schedule: the shape.
        numbers: its numbers.
        step: 0-based step.
        steps: length of the run.

    Source: Hu et al. 2024, "MiniCPM", section 4 (arXiv 2404.06395); Hägele et al. 2024 (arXiv 2405.18392).
    """
    steps, step = jnp.asarray(steps, jnp.float32), jnp.asarray(step, jnp.float32)
    warm = jnp.where(numbers.warmup_steps < 0, jnp.round(numbers.warmup * steps), numbers.warmup_steps)
    up = jnp.minimum(1.0, (step + 1) / jnp.maximum(1, warm))
    if schedule == "constant":
        start, length = numbers.branch_start, numbers.branch_steps
    elif schedule == "wsd":
        length = jnp.round(numbers.decay * steps)
        start = steps - length
    else:
        start, length = warm, steps - warm
    passed = jnp.clip((step - start) / jnp.maximum(1, length), 0, 1)
    left = (1 + jnp.cos(jnp.pi * passed)) / 2 if schedule == "cosine" else 1 - passed
    return up * (numbers.final + (1 - numbers.final) * left)
