"""The dense model of `benchmarks/models.py` in PyTorch: the same architecture, sizes, loss and optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from marin_models import TransformerConfig


class Layer(nn.Module):
    """One layer: attention with rotary positions and QK-norm, then SwiGLU."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.heads, self.size = config.heads, config.head_size
        inner = config.heads * config.head_size
        self.norms = nn.ModuleList([nn.RMSNorm(config.width), nn.RMSNorm(config.width)])
        self.head_norms = nn.ModuleList([nn.RMSNorm(config.head_size), nn.RMSNorm(config.head_size)])
        self.query, self.key, self.value = (nn.Linear(config.width, inner, bias=False) for _ in range(3))
        self.output = nn.Linear(inner, config.width, bias=False)
        self.gate, self.up = (nn.Linear(config.width, config.feed_forward, bias=False) for _ in range(2))
        self.down = nn.Linear(config.feed_forward, config.width, bias=False)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """The residual stream after this layer."""
        normed = self.norms[0](x)
        shape = (*x.shape[:2], self.heads, self.size)
        query, key, value = (part(normed).view(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        query, key = (
            turned(norm(part), cosine, sine) for norm, part in zip(self.head_norms, (query, key), strict=True)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(*x.shape[:2], -1))
        normed = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary positions, split halves."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


class Model(nn.Module):
    """A decoder-only transformer with a head of its own."""

    def __init__(self, config: TransformerConfig, length: int):
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        half = config.head_size // 2
        angles = torch.arange(length)[:, None] * config.rope_theta ** (-torch.arange(half) / half)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.5 / math.sqrt(config.width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of the next token."""
        x = self.embedding(tokens[:, :-1])
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def train_step(config: TransformerConfig, tokens: np.ndarray, *, compiled: bool = False) -> Callable[[], float]:
    """One optimizer step: loss, gradients, clipping by norm, AdamW; its loss."""
    rows = torch.from_numpy(tokens).long()
    model = Model(config, rows.shape[1] - 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    loss_of = torch.compile(model) if compiled else model

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(rows)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step
