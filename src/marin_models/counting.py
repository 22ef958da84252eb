"""How many parameters a config has and how many operations a token costs."""

from marin_models.transformer_config import TransformerConfig


def matrix_parameters_per_layer(config: TransformerConfig) -> int:
    """Entries of one layer's matrices, each used once per token."""
    attention = 2 * config.width * config.head_size * (config.heads + config.key_value_heads)
    return attention + 3 * config.width * config.feed_forward


def parameter_count(config: TransformerConfig) -> int:
    """Number of trained numbers, embedding, head and norms included."""
    norms_per_layer = 2 * config.width + 2 * config.head_size
    tables = config.vocabulary * config.width * (1 if config.tied_head else 2)
    return config.layers * (matrix_parameters_per_layer(config) + norms_per_layer) + tables + config.width


def forward_flops_per_token(config: TransformerConfig, length: int) -> float:
    """Floating-point operations of the matrix products of one forward pass, per token.

    A multiplication with an addition counts as two; a token attends to ``(length + 1) / 2`` keys on average;
    the embedding is a look-up and costs nothing.
    """
    matrices = config.layers * matrix_parameters_per_layer(config) + config.vocabulary * config.width
    scores_and_values = 2 * config.layers * config.heads * config.head_size * (length + 1) / 2
    return 2 * (matrices + scores_and_values)


def flops_per_token(config: TransformerConfig, length: int) -> float:
    """Floating-point operations per trained token: forward, and twice that for the two sides of every gradient.

    Source: Kaplan et al. 2020, section 2.1 (arXiv 2001.08361), with the attention term.
    """
    return 3 * forward_flops_per_token(config, length)
