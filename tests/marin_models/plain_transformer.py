"""The architecture written out in numpy, in double precision: one row, one layer, one head, one token at a time."""

import jax
import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def rms(x, scale, epsilon=1e-6):
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + epsilon) * scale


def norm(x, module):
    if not hasattr(module, "up"):
        return rms(x, module.scale)
    y = rms(x, module.norm.scale)
    return y * 2 * sigmoid(silu(y @ module.down) @ module.up)


def turned(x, theta, fraction):
    """[length, size] with the first part of each row rotated as complex numbers."""
    size = int(x.shape[-1] * fraction)
    half = size // 2
    angles = np.arange(len(x))[:, None] * theta ** (-np.arange(half) / max(half, 1))
    pairs = (x[:, :half] + 1j * x[:, half:size]) * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag, x[:, size:]], axis=-1)


def projected(x, matrix, bias, scale, config, index):
    """One head's part of a projection."""
    y = x @ matrix + (0 if bias is None else bias)
    own = slice(index * config.head_size, (index + 1) * config.head_size)
    if scale is not None and config.qk_norm == "projection":
        return rms(y, scale.scale)[:, own]
    return y[:, own] if scale is None else rms(y[:, own], scale.scale)


def attention(layer, x, segments, window, config):
    positions, out = np.arange(len(x)), []
    distance = positions[:, None] - positions
    seen = (distance >= 0) & (distance < (window or len(x))) & (segments[:, None] == segments)
    for head in range(config.heads):
        shared = head // (config.heads // config.key_value_heads)
        query = projected(x, layer.query, layer.query_bias, layer.query_norm, config, head)
        key = projected(x, layer.key, layer.key_bias, layer.key_norm, config, shared)
        value = projected(x, layer.value, layer.value_bias, None, config, shared)
        query, key = (turned(part, config.rope_theta, config.rotary_fraction) for part in (query, key))
        attended = softmax(np.where(seen, query @ key.T / np.sqrt(config.head_size), -np.inf)) @ value
        out.append(attended if layer.gate is None else attended * 2 * sigmoid(x @ layer.gate[:, head])[:, None])
    return np.concatenate(out, axis=-1) @ layer.output


def swiglu(x, gate, up, down):
    return (silu(x @ gate) * (x @ up)) @ down


def routed(layer, x, bias, valid, config):
    """Each token's experts, one after the other; padding gets zeros from them."""
    out = np.zeros_like(x) if layer.shared is None else swiglu(x, layer.shared.gate, layer.shared.up, layer.shared.down)
    latent = layer.latent
    for token, row in enumerate(x):
        logits = row @ layer.router.weight
        scores = softmax(logits) if config.scoring == "softmax" else sigmoid(logits)
        chosen = np.argsort(-((scores if config.balance_on == "scores" else logits) + bias))[: config.top_k]
        weights = config.scale * scores[chosen] / (scores[chosen].sum() if config.renormalize else 1)
        row = row if latent is None else rms(row @ latent.down, latent.norm.scale)
        parts = [swiglu(row, layer.gate[expert], layer.up[expert], layer.down[expert]) for expert in chosen]
        combined = valid[token] * weights @ np.array(parts)
        out[token] += combined if latent is None else combined @ latent.up
    return out


def plain_logits(model, row, segments, bias=None):
    """Logits of one row of tokens."""
    config, model = model.config, jax.tree.map(lambda x: np.asarray(x, np.float64), model)
    x = model.embedding[row]
    for index, window in enumerate(config.windows):
        above = index - config.dense_layers
        blocks, place = (model.dense_blocks, index) if above < 0 else (model.blocks, above)
        block = jax.tree.map(lambda leaf, place=place: leaf[place], blocks)
        x = x + attention(block.attention, norm(x, block.attention_norm), segments, window, config)
        y, layer = norm(x, block.feed_forward_norm), block.feed_forward
        if hasattr(layer, "router"):
            x = x + routed(layer, y, bias[above], segments >= 0, config.mixture)
        else:
            x = x + swiglu(y, layer.gate, layer.up, layer.down)
    head = model.embedding.T if model.separate_head is None else model.separate_head
    return norm(x, model.final_norm) @ head
