"""The dense decoder-only transformer: pre-norm, rotary, grouped-query, QK-normalized, SwiGLU."""

from typing import Literal

import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from marin_kernels import AttentionImplementation
from marin_models.attention import Attention
from marin_models.checks import at_least, one_of, positive
from marin_models.feed_forward import SwiGLU
from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.normalization import RMSNorm
from marin_models.rotary import RotaryTable, rotary_table

UNROLLED_LAYERS = 4  # up to here the layers are compiled one by one: faster steps, longer compilation


@attrs.frozen
class TransformerConfig:
    """The shape of a dense transformer; expressible as Hugging Face ``Qwen3``.

    Attributes:
        vocabulary: number of token ids.
        width: size of the residual stream.
        layers: number of blocks.
        heads: query heads.
        key_value_heads: key/value heads; each serves ``heads // key_value_heads`` query heads.
        feed_forward: inner size of the SwiGLU block.
        head_size: size of a head, even; ``width // heads`` unless given.
        rope_theta: base of the rotary frequencies.
        tied_head: the head is the transposed embedding.
        norm_epsilon: added to the mean square in every RMSNorm.
        initial_scale: matrices begin with standard deviation ``initial_scale / sqrt(inputs)``; those that write to
            the residual stream with ``1 / sqrt(2 * layers)`` of it.
        dtype: dtype of activations and matrix products; parameters, norms, softmax and loss are fp32.
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
    rope_theta: float = attrs.field(default=10000.0, validator=positive)
    tied_head: bool = attrs.field(default=False, validator=one_of(False, True))
    norm_epsilon: float = attrs.field(default=1e-6, validator=positive)
    initial_scale: float = attrs.field(default=0.5, validator=positive)
    dtype: Literal["float32", "bfloat16"] = attrs.field(default="float32", validator=one_of("float32", "bfloat16"))
    attention: AttentionImplementation = attrs.field(default="folded", validator=one_of("reference", "folded"))

    @head_size.default
    def _head_size(self) -> int:
        if self.width % self.heads:
            raise ValueError(
                f"TransformerConfig: width {self.width} is not a multiple of {self.heads} heads; "
                "change one of them or give head_size"
            )
        return self.width // self.heads

    def __attrs_post_init__(self):
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"TransformerConfig: {self.heads} heads cannot share {self.key_value_heads} key_value_heads equally; "
                "make heads a multiple of key_value_heads"
            )
        if self.head_size % 2:
            raise ValueError(
                f"TransformerConfig: head_size {self.head_size} is odd; rotary positions turn pairs, make it even"
            )


class Block(eqx.Module):
    """One layer: attention, then feed-forward, each normalized on entry and added to the residual stream."""

    attention_norm: RMSNorm
    attention: Attention
    feed_forward_norm: RMSNorm
    feed_forward: SwiGLU

    def __init__(self, config: TransformerConfig, *, key: Key[Array, ""]):
        attention_key, feed_forward_key = jax.random.split(key)
        scales = {"scale": config.initial_scale, "output_scale": config.initial_scale / (2 * config.layers) ** 0.5}
        self.attention_norm = RMSNorm(config.width, config.norm_epsilon)
        self.attention = Attention(
            config.width,
            config.heads,
            config.key_value_heads,
            config.head_size,
            epsilon=config.norm_epsilon,
            implementation=config.attention,
            key=attention_key,
            **scales,
        )
        self.feed_forward_norm = RMSNorm(config.width, config.norm_epsilon)
        self.feed_forward = SwiGLU(config.width, config.feed_forward, key=feed_forward_key, **scales)

    def __call__(
        self,
        x: Float[Array, "batch length width"],
        table: RotaryTable,
        segment_ids: Int[Array, "batch length"] | None = None,
    ) -> Float[Array, "batch length width"]:
        """The residual stream after this layer."""
        x = x + self.attention(self.attention_norm(x), table, segment_ids)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(eqx.Module):
    """A decoder-only language model; every parameter of ``blocks`` has a leading layer axis.

    >>> config = TransformerConfig(vocabulary=16, width=8, layers=2, heads=2, key_value_heads=1, feed_forward=16)
    >>> Transformer(config, key=jax.random.key(0))(jnp.zeros((1, 5), int)).shape
    (1, 5, 16)
    """

    embedding: Float[Array, "vocabulary width"] = parameter("embedding")
    blocks: Block
    final_norm: RMSNorm
    separate_head: Float[Array, "width vocabulary"] | None = parameter("head")
    config: TransformerConfig = eqx.field(static=True)

    def __init__(self, config: TransformerConfig, *, key: Key[Array, ""]):
        embedding_key, blocks_key, head_key = jax.random.split(key, 3)
        scale, vocabulary, width = config.initial_scale, config.vocabulary, config.width
        self.embedding = initial_matrix(embedding_key, width, vocabulary, scale=scale).T
        self.blocks = eqx.filter_vmap(lambda key: Block(config, key=key))(jax.random.split(blocks_key, config.layers))
        self.final_norm = RMSNorm(width, config.norm_epsilon)
        self.separate_head = None if config.tied_head else initial_matrix(head_key, width, vocabulary, scale=scale)
        self.config = config

    @property
    def head(self) -> Float[Array, "width vocabulary"]:
        """The matrix from hidden states to logits, in the dtype of activations."""
        matrix = self.embedding.T if self.separate_head is None else self.separate_head
        return matrix.astype(self.config.dtype)

    def hidden(
        self, tokens: Int[Array, "batch length"], segment_ids: Int[Array, "batch length"] | None = None
    ) -> Float[Array, "batch length width"]:
        """Final normalized hidden states.

        Args:
            tokens: token ids.
            segment_ids: the document of each token in packed rows; None: each row is one document.
        """
        config = self.config
        table = rotary_table(tokens.shape[1], config.head_size, config.rope_theta)
        start = jnp.take(self.embedding, tokens, axis=0).astype(config.dtype)
        unroll = config.layers if config.layers <= UNROLLED_LAYERS else 1
        end, _ = jax.lax.scan(lambda x, block: (block(x, table, segment_ids), None), start, self.blocks, unroll=unroll)
        return self.final_norm(end)

    def __call__(
        self, tokens: Int[Array, "batch length"], segment_ids: Int[Array, "batch length"] | None = None
    ) -> Float[Array, "batch length vocabulary"]:
        """Logits of the token after each position, in fp32; arguments as for `hidden`."""
        return jnp.matmul(self.hidden(tokens, segment_ids), self.head, preferred_element_type=jnp.float32)
