"""Arrays in, arrays out: the numerical kernels under `marin_models`."""

from marin_kernels.attention import AttentionImplementation, causal_attention
from marin_kernels.attention_peaks import attention_logit_peaks
from marin_kernels.cross_entropy import (
    CrossEntropyImplementation,
    LinearCrossEntropy,
    linear_cross_entropy,
    token_cross_entropy,
)

__all__ = [
    "AttentionImplementation",
    "CrossEntropyImplementation",
    "LinearCrossEntropy",
    "attention_logit_peaks",
    "causal_attention",
    "linear_cross_entropy",
    "token_cross_entropy",
]
