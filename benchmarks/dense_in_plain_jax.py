"""The dense model of `benchmarks/models.py` in fifty lines of plain JAX: what a first sketch of it costs."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from marin_models import TransformerConfig


def initial_parameters(config: TransformerConfig) -> dict:
    """Matrices in dictionaries, a list of them for the layers."""
    keys = iter(jax.random.split(jax.random.key(0), 2 + 7 * config.layers))
    width, inner, hidden = config.width, config.heads * config.head_size, config.feed_forward

    def matrix(*shape: int) -> jax.Array:
        return 0.03 * jax.random.normal(next(keys), shape)

    def layer() -> dict:
        attention = {name: matrix(width, inner) for name in ("query", "key", "value")} | {
            "output": matrix(inner, width)
        }
        scales = {name: jnp.ones(config.head_size) for name in ("query_norm", "key_norm")}
        norms = {name: jnp.ones(width) for name in ("norm", "feed_norm")}
        feed = {"gate": matrix(width, hidden), "up": matrix(width, hidden), "down": matrix(hidden, width)}
        return attention | scales | norms | feed

    ends = {"embedding": matrix(config.vocabulary, width), "head": matrix(width, config.vocabulary)}
    return ends | {"layers": [layer() for _ in range(config.layers)], "norm": jnp.ones(width)}


def loss_of(parameters: dict, tokens: jax.Array, config: TransformerConfig) -> jax.Array:
    """Mean cross-entropy of the next token."""
    half = config.head_size // 2
    angles = np.arange(tokens.shape[1] - 1)[:, None, None] * config.rope_theta ** (-np.arange(half) / half)

    def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + config.norm_epsilon) * scale

    def turned(x: jax.Array) -> jax.Array:
        (first, second), cosine, sine = jnp.split(x, 2, -1), jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)

    x = parameters["embedding"][tokens[:, :-1]]
    for layer in parameters["layers"]:
        y = normed(x, layer["norm"])
        heads = [(y @ layer[name]).reshape(*x.shape[:2], config.heads, -1) for name in ("query", "key", "value")]
        query, key = turned(normed(heads[0], layer["query_norm"])), turned(normed(heads[1], layer["key_norm"]))
        attended = jax.nn.dot_product_attention(query, key, heads[2], is_causal=True)
        x = x + attended.reshape(*x.shape[:2], -1) @ layer["output"]
        y = normed(x, layer["feed_norm"])
        x = x + (jax.nn.silu(y @ layer["gate"]) * (y @ layer["up"])) @ layer["down"]
    logits = normed(x, parameters["norm"]) @ parameters["head"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def train_step(config: TransformerConfig, tokens: np.ndarray) -> Callable[[], float]:
    """One optimizer step: loss, gradients, clipping by norm, AdamW; its loss."""
    rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, 0.9, 0.95, weight_decay=0.1))
    parameters, rows = initial_parameters(config), jnp.asarray(tokens)
    state = rule.init(parameters)

    @jax.jit
    def move(parameters: dict, state: optax.OptState) -> tuple[dict, optax.OptState, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, rows, config)
        updates, state = rule.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    def step() -> float:
        nonlocal parameters, state
        parameters, state, loss = move(parameters, state)
        return float(loss)

    return step
