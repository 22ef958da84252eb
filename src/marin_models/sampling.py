"""Choosing a token from logits."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key


def sample(
    logits: Float[Array, " vocabulary"], temperature: Float[Array, ""], top_p: Float[Array, ""], key: Key[Array, ""]
) -> Int[Array, ""]:
    """One token: the most likely at temperature 0, else drawn from the nucleus of probability ``top_p``.

    Args:
        logits: unnormalized log-probabilities.
        temperature: divides the logits.
        top_p: only the fewest tokens that together hold this probability are drawn from.
        key: randomness; not used at temperature 0.

    Source: Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration" (arXiv 1904.09751).
    """
    order = jnp.argsort(-logits)
    scaled = logits[order] / jnp.where(temperature > 0, temperature, 1.0)
    probabilities = jax.nn.softmax(scaled)
    before = jnp.cumsum(probabilities) - probabilities
    nucleus = jnp.where((before < top_p).at[0].set(True), scaled, -jnp.inf)
    drawn = jax.random.categorical(key, nucleus)
    return order[jnp.where(temperature > 0, drawn, 0)].astype(jnp.int32)
