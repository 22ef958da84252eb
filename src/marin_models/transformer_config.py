"""The shape of a transformer, dense or with mixtures of experts."""

from typing import Literal, get_args

import attrs

from marin_kernels import AttentionImplementation
from marin_models.checks import at_least, fraction, instance_of, one_of, optional, positive
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.rotary_scaling import RotaryScaling

QKNorm = Literal["head", "projection", "none"]
Remat = Literal["none", "full", "save_moe"]
Precision = Literal["float32", "bfloat16"]


@attrs.frozen
class TransformerConfig:
    """The shape of a transformer.

    Dense, it is expressible as Hugging Face ``Qwen3`` (``qk_norm="head"``) or ``Llama`` (``qk_norm="none"``); with
    ``mixture``, as ``Qwen3Moe``, ``Mixtral``, ``OLMoE`` (``qk_norm="projection"``) or ``Glm4Moe`` (see
    `MixtureOfExpertsConfig`).

    Attributes:
        vocabulary: number of token ids.
        width: size of the residual stream.
        layers: number of blocks.
        heads: query heads.
        key_value_heads: key/value heads; each serves ``heads // key_value_heads`` query heads.
        feed_forward: inner size of the SwiGLU of dense layers.
        head_size: size of a head, even; ``width // heads`` unless given.
        mixture: experts and router of routed layers; None: every layer is dense.
        dense_layers: with ``mixture``, how many layers at the bottom are dense all the same.
        rope_theta: base of the rotary frequencies.
        rotary_scaling: how these were changed for texts longer than those of the first training; None: they were not.
        rotary_fraction: the part of each head, from its start, that is rotated.
        qk_norm: queries and keys are normalized per ``"head"``, as whole ``"projection"``, or not (``"none"``).
        attention_bias: queries, keys and values have additive biases (as in ``Glm4Moe``).
        window: in local layers, how many positions a token sees, itself included; None: every layer sees all.
        local_to_global: with ``window``, the layers repeat so many local ones, then so many global ones.
        attention_gate: each head's output is multiplied by ``2 * sigmoid(x @ gate)``; begins as 1.
        norm_gate: rank of the gate on every normalized input and on the end (see `GatedNorm`); 0: there is none.
        tied_head: the head is the transposed embedding.
        norm_epsilon: added to the mean square in every RMSNorm.
        initial_scale: matrices begin with standard deviation ``initial_scale / sqrt(inputs)``; those that write to
            the residual stream with ``1 / sqrt(2 * layers)`` of it.
        remat: what a layer computes again in the reverse pass instead of keeping it: ``"none"``; ``"full"``: all of
            it; ``"save_moe"``: all but the routed experts' inputs, hidden values and outputs, and what tokens are in
            their latent space.
        dtype: dtype of activations and matrix products; parameters, norms, softmax and loss are fp32. Products of
            fp32 are exact on every device: a TPU takes several times as long for them.
        attention: which implementation of `marin_kernels.causal_attention` runs.

    Raises:
        ValueError: naming the attribute, what was given and what is possible.
    """

    vocabulary: int = attrs.field(validator=at_least(2))
    width: int = attrs.field(validator=at_least(1))
    layers: int = attrs.field(validator=at_least(1))
    heads: int = attrs.field(validator=at_least(1))
    key_value_heads: int = attrs.field(validator=at_least(1))
    feed_forward: int = attrs.field(validator=at_least(1))
    head_size: int = attrs.field(validator=at_least(2))
    mixture: MixtureOfExpertsConfig | None = attrs.field(
        default=None, validator=optional(instance_of(MixtureOfExpertsConfig)), kw_only=True
    )
    dense_layers: int = attrs.field(default=0, validator=at_least(0), kw_only=True)
    rope_theta: float = attrs.field(default=10000.0, validator=positive)
    rotary_scaling: RotaryScaling | None = attrs.field(
        default=None, validator=optional(instance_of(RotaryScaling)), kw_only=True, metadata={"neutral": True}
    )
    rotary_fraction: float = attrs.field(default=1.0, validator=fraction, kw_only=True)
    qk_norm: QKNorm = attrs.field(default="head", validator=one_of(*get_args(QKNorm)), kw_only=True)
    attention_bias: bool = attrs.field(default=False, validator=one_of(False, True), kw_only=True)
    window: int | None = attrs.field(default=None, validator=optional(at_least(1)), kw_only=True)
    local_to_global: tuple[int, int] = attrs.field(default=(3, 1), kw_only=True)
    attention_gate: bool = attrs.field(default=False, validator=one_of(False, True), kw_only=True)
    norm_gate: int = attrs.field(default=0, validator=at_least(0), kw_only=True)
    tied_head: bool = attrs.field(default=False, validator=one_of(False, True))
    norm_epsilon: float = attrs.field(default=1e-6, validator=positive)
    initial_scale: float = attrs.field(default=0.5, validator=positive)
    remat: Remat = attrs.field(default="none", validator=one_of(*get_args(Remat)), kw_only=True)
    dtype: Precision = attrs.field(default="float32", validator=one_of(*get_args(Precision)))
    attention: AttentionImplementation = attrs.field(
        default="folded", validator=one_of(*get_args(AttentionImplementation))
    )

    @head_size.default
    def _head_size(self) -> int:
        if self.width % self.heads:
            raise ValueError(
                f"TransformerConfig: width {self.width} is not a multiple of {self.heads} heads; "
                "change one of them or give head_size"
            )
        return self.width // self.heads

    @local_to_global.validator
    def _check_pattern(self, _, value):
        counts = isinstance(value, tuple) and len(value) == 2 and all(type(count) is int for count in value)
        if not counts or min(value) < 0 or value[0] < 1:
            raise ValueError(
                "TransformerConfig: local_to_global must be two integers, at least one local layer and at least no "
                f"global one, such as (3, 1), not {value!r}"
            )

    def __attrs_post_init__(self):
        self._check_heads()
        self._check_latent()
        self._check_rotation()
        self._check_layers()

    def _check_heads(self):
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"TransformerConfig: {self.heads} heads cannot share {self.key_value_heads} key_value_heads equally; "
                "make heads a multiple of key_value_heads"
            )
        if self.head_size % 2:
            raise ValueError(
                f"TransformerConfig: head_size {self.head_size} is odd; rotary positions turn pairs, make it even"
            )

    def _check_rotation(self):
        rotated = self.rotary_fraction * self.head_size
        if rotated % 2:
            raise ValueError(
                f"TransformerConfig: rotary_fraction {self.rotary_fraction!r} of head_size {self.head_size} is "
                f"{rotated:g}; rotary positions turn pairs, make it an even integer"
            )
        if self.rope_theta <= 1 and self.rotary_scaling is not None:
            raise ValueError(
                f"TransformerConfig: rope_theta {self.rope_theta!r} with rotary_scaling must be above 1, so that pairs "
                "turn at different speeds"
            )

    def _check_latent(self):
        latent = 0 if self.mixture is None else self.mixture.latent
        if latent > self.width:
            raise ValueError(
                f"TransformerConfig: mixture.latent {latent} is above width {self.width}; lower it, or give 0 for "
                "experts of the model's width"
            )

    def _check_layers(self):
        if self.dense_layers and self.mixture is None:
            raise ValueError(
                f"TransformerConfig: dense_layers {self.dense_layers} without mixture; "
                "every layer is dense already, give a mixture or leave dense_layers out"
            )
        if self.dense_layers >= self.layers:
            raise ValueError(
                f"TransformerConfig: dense_layers {self.dense_layers} of {self.layers} layers leaves none to the "
                "mixture; lower it or leave mixture out"
            )
        if self.remat == "save_moe" and self.mixture is None:
            raise ValueError(
                "TransformerConfig: remat 'save_moe' without mixture has nothing to save; choose 'none' or 'full'"
            )

    @property
    def output_scale(self) -> float:
        """The initial scale of matrices that write to the residual stream."""
        return self.initial_scale / (2 * self.layers) ** 0.5

    @property
    def rotated_size(self) -> int:
        """How many entries of each head are rotated."""
        return int(self.rotary_fraction * self.head_size)

    @property
    def routed_layers(self) -> int:
        """How many layers have routed experts: the last ones."""
        return 0 if self.mixture is None else self.layers - self.dense_layers

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The window of each layer; None where it sees all."""
        local, period = self.local_to_global[0], sum(self.local_to_global)
        return tuple(self.window if index % period < local else None for index in range(self.layers))
