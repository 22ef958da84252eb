"""A ladder of named sizes from 100 thousand to a trillion parameters, dense and with mixtures of experts."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import attrs

from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.transformer_config import TransformerConfig


class Size(NamedTuple):
    """A rung of the ladder.

    Attributes:
        purpose: what it is for.
        config: its shape; ``attrs.evolve`` gives it another vocabulary or another variant.
    """

    purpose: str
    config: TransformerConfig


def size(name: str) -> TransformerConfig:
    """The shape of a named size.

    A name tells the parameters in all and, after ``-a``, those that take part in one token, embeddings included.

    Raises:
        ValueError: there is no such size; the message lists those that are.
    """
    if name not in SIZES:
        raise ValueError(f"size: there is no size {name!r}; choose one of {', '.join(SIZES)}")
    return SIZES[name].config


def _dense(purpose: str, vocabulary: int, width: int, layers: int, heads: tuple[int, int], inner: int) -> Size:
    """A Qwen3-like shape; ``heads`` are of queries and of keys and values."""
    large = vocabulary >= _LARGE_VOCABULARY
    config = TransformerConfig(
        vocabulary,
        width,
        layers,
        *heads,
        inner,
        head_size=_head_size(width),
        rope_theta=1e6 if large else 1e4,
        tied_head=width < _UNTIED_WIDTH,
        remat="full" if large else "none",
        dtype="bfloat16" if large else "float32",
    )
    return Size(purpose, config)


def _mixture(
    purpose: str,
    vocabulary: int,
    width: int,
    layers: tuple[int, int],
    heads: tuple[int, int],
    inner: int,
    experts: tuple[int, int, int],
) -> Size:
    """A Glm4Moe-like shape.

    ``layers`` are all and the dense ones at the bottom; ``inner`` is of dense layers; ``experts`` are the routed ones,
    those that a token visits, and the inner size of each and of the shared one.
    """
    dense = _dense(purpose, vocabulary, width, layers[0], heads, inner)
    count, top_k, expert_inner = experts
    mixture = MixtureOfExpertsConfig(count, top_k, expert_inner, shared_inner=expert_inner, scale=2.5)
    remat = "none" if dense.config.remat == "none" else "save_moe"
    config = attrs.evolve(dense.config, mixture=mixture, dense_layers=layers[1], rotary_fraction=0.5, remat=remat)
    return Size(purpose, config)


def _head_size(width: int) -> int:
    return 16 if width < 128 else 32 if width < 384 else 64 if width < 2048 else 128


_UNTIED_WIDTH = 4096
_LARGE_VOCABULARY = 131072

SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "dense-100k": _dense("unit tests and first pages: seconds on one core", 512, 64, 2, (4, 2), 128),
        "dense-1m": _dense("sweeps on a laptop: minutes", 2048, 128, 4, (4, 2), 352),
        "dense-10m": _dense("ablations on a workstation's CPU", 4096, 256, 12, (8, 2), 704),
        "dense-30m": _dense("the smallest rung of a scaling fit", 16384, 384, 16, (6, 2), 1024),
        "dense-100m": _dense("scaling fits on one accelerator: an hour", 32768, 640, 18, (10, 2), 1728),
        "dense-300m": _dense("scaling fits on one accelerator: a day", 32768, 1024, 24, (16, 4), 2752),
        "dense-1b": _dense("the upper rung of a scaling fit: one host", 131072, 2048, 18, (16, 4), 5632),
        "dense-3b": _dense("a first useful assistant: a few hosts", 131072, 3072, 26, (24, 8), 8192),
        "dense-8b": _dense("the shape of Qwen3 8B", 131072, 4096, 36, (32, 8), 12288),
        "dense-32b": _dense("the shape of Qwen3 32B", 131072, 5120, 64, (64, 8), 25600),
        "dense-70b": _dense("the shape of Llama 70B", 131072, 8192, 80, (64, 8), 28672),
        "dense-405b": _dense("the shape of Llama 405B", 131072, 16384, 126, (128, 8), 53248),
        "dense-1t": _dense("plans of memory and time only", 131072, 20480, 186, (160, 16), 71680),
        "moe-300k-a170k": _mixture("unit tests", 512, 64, (3, 1), (4, 2), 128, (8, 2, 64)),
        "moe-3m-a1m": _mixture("sweeps on a laptop", 2048, 128, (4, 1), (4, 2), 352, (16, 2, 128)),
        "moe-30m-a8m": _mixture("ablations on a workstation's CPU", 4096, 256, (10, 1), (8, 2), 704, (32, 4, 128)),
        "moe-300m-a50m": _mixture("scaling fits on one accelerator", 32768, 512, (13, 1), (8, 2), 1408, (64, 4, 224)),
        "moe-1b-a150m": _mixture("scaling fits on one host", 32768, 1024, (12, 1), (16, 4), 2752, (64, 4, 448)),
        "moe-7b-a1b": _mixture("the upper rung of a scaling fit", 131072, 2048, (17, 1), (16, 4), 8192, (64, 4, 1024)),
        "moe-32b-a5b": _mixture("one slice of 64 chips", 131072, 2560, (40, 1), (32, 8), 10240, (64, 6, 1536)),
        "moe-106b-a12b": _mixture("much like GLM-4.5 Air", 131072, 4096, (46, 1), (96, 8), 10944, (128, 8, 1408)),
        "moe-355b-a32b": _mixture("much like GLM-4.5", 131072, 5120, (92, 3), (96, 8), 12288, (160, 8, 1536)),
        "moe-1t-a32b": _mixture("much like Kimi K2", 131072, 7168, (61, 1), (64, 8), 18432, (384, 8, 2048)),
    }
)
"""All named sizes, from small to large, dense ones first."""
