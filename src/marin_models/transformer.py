"""The decoder-only transformer: pre-norm, rotary, grouped-query, QK-normalized, SwiGLU or mixtures of experts."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from marin_models.attention import Attention
from marin_models.feed_forward import SwiGLU
from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.mesh import BATCH, SHARDS, axis_sizes, check_divisible, put, spec
from marin_models.normalization import GatedNorm, RMSNorm
from marin_models.rotary import RotaryTable, rotary_table
from marin_models.stack import through_layers
from marin_models.transformer_config import TransformerConfig


def _norm(config: TransformerConfig, key: Key[Array, ""]) -> RMSNorm | GatedNorm:
    if not config.norm_gate:
        return RMSNorm(config.width, config.norm_epsilon)
    return GatedNorm(config.width, config.norm_gate, config.norm_epsilon, scale=config.initial_scale, key=key)


class Block(eqx.Module):
    """One layer: attention, then feed-forward, each normalized on entry and added to the residual stream."""

    attention_norm: RMSNorm | GatedNorm
    attention: Attention
    feed_forward_norm: RMSNorm | GatedNorm
    feed_forward: SwiGLU

    def __init__(self, config: TransformerConfig, *, key: Key[Array, ""]):
        attention_key, feed_forward_key = jax.random.split(key)
        norm_keys = jax.random.split(jax.random.fold_in(key, 1))
        scales = {"scale": config.initial_scale, "output_scale": config.output_scale}
        self.attention_norm = _norm(config, norm_keys[0])
        self.attention = Attention(config, key=attention_key)
        self.feed_forward_norm = _norm(config, norm_keys[1])
        self.feed_forward = SwiGLU(config.width, config.feed_forward, key=feed_forward_key, **scales)

    def __call__(
        self,
        x: Float[Array, "batch length width"],
        table: RotaryTable,
        segment_ids: Int[Array, "batch length"] | None = None,
        *,
        window: int | None = None,
    ) -> Float[Array, "batch length width"]:
        """The residual stream after this layer; arguments as for `Attention`."""
        x = x + self.attention(self.attention_norm(x), table, segment_ids, window=window)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(eqx.Module):
    """A decoder-only language model; every parameter of ``blocks`` has a leading layer axis.

    >>> config = TransformerConfig(vocabulary=16, width=8, layers=2, heads=2, key_value_heads=1, feed_forward=16)
    >>> Transformer(config, key=jax.random.key(0))(jnp.zeros((1, 5), int)).shape
    (1, 5, 16)
    """

    embedding: Float[Array, "vocabulary width"] = parameter("embedding", ("model", SHARDS))
    blocks: Block
    final_norm: RMSNorm | GatedNorm
    separate_head: Float[Array, "width vocabulary"] | None = parameter("head", (SHARDS, "model"))
    config: TransformerConfig = eqx.field(static=True)

    def __init__(self, config: TransformerConfig, *, key: Key[Array, ""]):
        embedding_key, blocks_key, head_key = jax.random.split(key, 3)
        scale, vocabulary, width = config.initial_scale, config.vocabulary, config.width
        self.embedding = initial_matrix(embedding_key, width, vocabulary, scale=scale).T
        self.blocks = eqx.filter_vmap(lambda key: Block(config, key=key))(jax.random.split(blocks_key, config.layers))
        self.final_norm = _norm(config, jax.random.fold_in(key, 1))
        self.separate_head = None if config.tied_head else initial_matrix(head_key, width, vocabulary, scale=scale)
        self.config = config

    @property
    def head(self) -> Float[Array, "width vocabulary"]:
        """The matrix from hidden states to logits, in the dtype of activations."""
        matrix = self.embedding.T if self.separate_head is None else self.separate_head
        return put(matrix.astype(self.config.dtype), None, "model")

    def hidden(
        self, tokens: Int[Array, "batch length"], segment_ids: Int[Array, "batch length"] | None = None
    ) -> Float[Array, "batch length width"]:
        """Final normalized hidden states.

        Args:
            tokens: token ids.
            segment_ids: the document of each token in packed rows; None: each row is one document.
        """
        config = self.config
        segment_ids = None if segment_ids is None else put(segment_ids, BATCH, None)
        table = rotary_table(tokens.shape[1], config.rotated_size, config.rope_theta)

        def layer(x: Array, block: Block, window: int | None) -> tuple[Array, PyTree]:
            return block(x, table, segment_ids, window=window), None

        end, _ = through_layers(layer, self._embedded(tokens), self.blocks, config.windows, remat=config.remat)
        return self.final_norm(end)

    def _embedded(self, tokens: Int[Array, "batch length"]) -> Float[Array, "batch length width"]:
        _check_mesh(self.config, tokens.shape[0])
        if not axis_sizes():
            return jnp.take(self.embedding, tokens, axis=0).astype(self.config.dtype)
        table = put(self.embedding.astype(self.config.dtype), None, None)
        return table.at[put(tokens, BATCH, None)].get(out_sharding=spec(BATCH, None, None))

    def __call__(
        self, tokens: Int[Array, "batch length"], segment_ids: Int[Array, "batch length"] | None = None
    ) -> Float[Array, "batch length vocabulary"]:
        """Logits of the token after each position, in fp32; arguments as for `hidden`."""
        return jnp.matmul(self.hidden(tokens, segment_ids), self.head, preferred_element_type=jnp.float32)


def _check_mesh(config: TransformerConfig, batch: int) -> None:
    """Refuse a mesh in force that cannot split this model or batch."""
    split = ("vocabulary", "heads", "key_value_heads", "feed_forward")
    check_divisible(batch=(batch, BATCH), **{name: (getattr(config, name), "model") for name in split})
