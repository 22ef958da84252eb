"""How many parameters a config has and how many operations a token costs."""

from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.transformer_config import TransformerConfig


def parameter_count(config: TransformerConfig) -> int:
    """Number of trained numbers, embedding, head, norms and every expert included."""
    mixture = config.mixture
    experts = 0 if mixture is None else config.routed_layers * mixture.experts * _expert_matrices(config, mixture)
    return _dense_matrices(config) + experts + _vectors(config) + _tables(config)


def active_parameter_count(config: TransformerConfig) -> int:
    """Number of parameters that take part in one token: all but the experts that it does not visit."""
    mixture = config.mixture
    if mixture is None:
        return parameter_count(config)
    idle = mixture.experts - mixture.top_k
    return parameter_count(config) - config.routed_layers * idle * _expert_matrices(config, mixture)


def forward_flops_per_token(config: TransformerConfig, length: int) -> float:
    """Floating-point operations of the matrix products of one forward pass, per token.

    A multiplication with an addition counts as two; a token attends to ``(length + 1) / 2`` keys on average, fewer in
    windows; it visits ``top_k`` experts; the embedding is a look-up and costs nothing.
    """
    mixture = config.mixture
    visited = 0 if mixture is None else config.routed_layers * mixture.top_k * _expert_matrices(config, mixture)
    matrices = _dense_matrices(config) + visited + config.vocabulary * config.width
    seen = sum(mean_visible(length, window) for window in config.windows)
    return 2 * (matrices + 2 * config.heads * config.head_size * seen)


def flops_per_token(config: TransformerConfig, length: int) -> float:
    """Floating-point operations per trained token: forward, and twice that for the two sides of every gradient.

    Source: Kaplan et al. 2020, section 2.1 (arXiv 2001.08361), with the attention term.
    """
    return 3 * forward_flops_per_token(config, length)


def mean_visible(length: int, window: int | None = None) -> float:
    """How many positions a token of a row sees, itself included; the mean over the row.

    >>> mean_visible(5), mean_visible(5, window=2)
    (3.0, 1.8)
    """
    most = length if window is None else min(window, length)
    return (most * (most + 1) / 2 + (length - most) * most) / length


def _expert_matrices(config: TransformerConfig, mixture: MixtureOfExpertsConfig) -> int:
    """Entries of the matrices of one routed expert."""
    return 3 * mixture.expert_width(config.width) * mixture.inner


def _dense_matrices(config: TransformerConfig) -> int:
    """Entries of all layers' matrices that every token meets, each once, and of the gate at the end."""
    mixture, routed = config.mixture, config.routed_layers
    attention = 2 * config.width * config.head_size * (config.heads + config.key_value_heads)
    gates = config.width * (config.heads * config.attention_gate + 4 * config.norm_gate)
    dense = (config.layers - routed) * 3 * config.width * config.feed_forward
    beside = 0 if mixture is None else mixture.experts + 3 * mixture.shared_inner + 2 * mixture.latent
    beside_experts = routed * config.width * beside
    return config.layers * (attention + gates) + dense + beside_experts + 2 * config.width * config.norm_gate


def _vectors(config: TransformerConfig) -> int:
    """Scales of norms and biases."""
    queries, shared = config.heads * config.head_size, config.key_value_heads * config.head_size
    scales = {"head": 2 * config.head_size, "projection": queries + shared, "none": 0}[config.qk_norm]
    biases = queries + 2 * shared if config.attention_bias else 0
    latent = 0 if config.mixture is None else config.routed_layers * config.mixture.latent
    return config.layers * (2 * config.width + scales + biases) + latent + config.width


def _tables(config: TransformerConfig) -> int:
    return config.vocabulary * config.width * (1 if config.tied_head else 2)
