"""The decoder-only transformer: pre-norm, rotary, grouped-query, QK-normalized, SwiGLU or mixtures of experts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from marin_kernels.precision import exact_product
from marin_models.attention import Attention
from marin_models.feed_forward import SwiGLU
from marin_models.groups import parameter
from marin_models.initialization import initial_matrix
from marin_models.mesh import BATCH, SHARDS, axis_sizes, check_divisible, looked_up, put, spec
from marin_models.mixture_of_experts import MixtureOfExperts, RouterStatistics
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
    feed_forward: SwiGLU | MixtureOfExperts

    def __init__(self, config: TransformerConfig, *, routed: bool, key: Key[Array, ""]):
        attention_key, feed_forward_key = jax.random.split(key)
        norm_keys = jax.random.split(jax.random.fold_in(key, 1))
        scales = {"scale": config.initial_scale, "output_scale": config.output_scale}
        self.attention_norm = _norm(config, norm_keys[0])
        self.attention = Attention(config, key=attention_key)
        self.feed_forward_norm = _norm(config, norm_keys[1])
        if routed and config.mixture is not None:
            self.feed_forward = MixtureOfExperts(
                config.mixture, config.width, norm_epsilon=config.norm_epsilon, key=feed_forward_key, **scales
            )
        else:
            self.feed_forward = SwiGLU(config.width, config.feed_forward, key=feed_forward_key, **scales)

    def __call__(
        self,
        x: Float[Array, "batch length width"],
        table: RotaryTable,
        segment_ids: Int[Array, "batch length"] | None = None,
        *,
        window: int | None = None,
        bias: Float[Array, " experts"] | None = None,
        peaks: bool = False,
    ) -> tuple[Float[Array, "batch length width"], RouterStatistics | None, Float[Array, " heads"] | None]:
        """The residual stream after this layer, what its router says, and the largest logits of its heads.

        Arguments and results are as for `Attention` and `feed`.
        """
        attended, found = self.attention(self.attention_norm(x), table, segment_ids, window=window, peaks=peaks)
        x, statistics = self.feed(x + attended, bias, None if segment_ids is None else segment_ids >= 0)
        return x, statistics, found

    def feed(
        self,
        x: Float[Array, "batch length width"],
        bias: Float[Array, " experts"] | None = None,
        valid: Bool[Array, "batch length"] | None = None,
    ) -> tuple[Float[Array, "batch length width"], RouterStatistics | None]:
        """The residual stream after the second half of this layer, and what its router says; None if it has none.

        Args:
            x: the residual stream after attention.
            bias: the balancing bias in force, fp32; None: zeros.
            valid: tokens that are more than padding; None: all. Only routed experts look at it.
        """
        entering = self.feed_forward_norm(x)
        if isinstance(self.feed_forward, SwiGLU):
            return x + self.feed_forward(entering), None
        rows = entering.reshape(-1, x.shape[-1])
        output, statistics = self.feed_forward(rows, bias, None if valid is None else valid.reshape(-1))
        # Left to infer, a reshape would split the tokens of a row over the devices of an expert group.
        split = spec(BATCH, None, None) if axis_sizes() else None
        return x + jnp.reshape(output, x.shape, out_sharding=split), statistics


class Forward(NamedTuple):
    """What a forward pass gives.

    Attributes:
        hidden: final normalized hidden states, in the config's dtype.
        router: statistics stacked over routed layers; None if there are none.
        peaks: the largest logit of each layer's query heads over the batch, without gradient (see
            `marin_kernels.attention_logit_peaks`); None: not measured.
    """

    hidden: Float[Array, "batch length width"]
    router: RouterStatistics | None
    peaks: Float[Array, "layers heads"] | None


class Transformer(eqx.Module):
    """A decoder-only language model; every parameter of blocks has a leading layer axis.

    ``dense_blocks`` are the dense layers under routed ones; ``blocks`` are the routed layers, or all of a dense model.

    >>> config = TransformerConfig(vocabulary=16, width=8, layers=2, heads=2, key_value_heads=1, feed_forward=16)
    >>> Transformer(config, key=jax.random.key(0))(jnp.zeros((1, 5), int)).shape
    (1, 5, 16)
    """

    embedding: Float[Array, "vocabulary width"] = parameter("embedding", ("model", SHARDS))
    dense_blocks: Block | None
    blocks: Block
    final_norm: RMSNorm | GatedNorm
    separate_head: Float[Array, "width vocabulary"] | None = parameter("head", (SHARDS, "model"))
    config: TransformerConfig = eqx.field(static=True)

    def __init__(self, config: TransformerConfig, *, key: Key[Array, ""]):
        embedding_key, blocks_key, head_key = jax.random.split(key, 3)
        scale, vocabulary, width = config.initial_scale, config.vocabulary, config.width
        self.embedding = initial_matrix(embedding_key, width, vocabulary, scale=scale).T
        keys, dense = jax.random.split(blocks_key, config.layers), config.dense_layers
        self.dense_blocks = _blocks(config, keys[:dense], routed=False) if dense else None
        self.blocks = _blocks(config, keys[dense:], routed=True)
        self.final_norm = _norm(config, jax.random.fold_in(key, 1))
        self.separate_head = None if config.tied_head else initial_matrix(head_key, width, vocabulary, scale=scale)
        self.config = config

    @property
    def head(self) -> Float[Array, "width vocabulary"]:
        """The matrix from hidden states to logits, in the dtype of activations."""
        matrix = self.embedding.T if self.separate_head is None else self.separate_head
        return put(matrix.astype(self.config.dtype), None, "model")

    def hidden(
        self,
        tokens: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"] | None = None,
        *,
        bias: Float[Array, "routed_layers experts"] | None = None,
    ) -> Float[Array, "batch length width"]:
        """Final normalized hidden states; see `forward`."""
        return self.forward(tokens, segment_ids, bias=bias).hidden

    def forward(
        self,
        tokens: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"] | None = None,
        *,
        bias: Float[Array, "routed_layers experts"] | None = None,
        peaks: bool = False,
    ) -> Forward:
        """The hidden states of a batch, and what the layers report on the way.

        Args:
            tokens: token ids.
            segment_ids: the document of each token in packed rows; None: each row is one document. A negative number
                marks padding, which is not routed to experts.
            bias: the balancing biases in force, fp32; None: zeros.
            peaks: the largest attention logits are measured, which costs another product of queries and keys.

        Raises:
            ValueError: the mesh in force cannot split the model or the batch evenly.
        """
        config, reported = self.config, []
        segment_ids = None if segment_ids is None else put(segment_ids, BATCH, None)
        table = rotary_table(tokens.shape[1], config.rotated_size, config.rope_theta, config.rotary_scaling)

        def layer(x: Array, stacked: tuple, window: int | None) -> tuple[Array, tuple]:
            block, bias = stacked
            x, *report = block(x, table, segment_ids, window=window, bias=bias, peaks=peaks)
            return x, tuple(report)

        x = self.embedded(tokens)
        for blocks, windows in self.stacks:
            stacked = blocks, bias if blocks is self.blocks else None
            x, report = through_layers(layer, x, stacked, windows, remat=config.remat)
            reported.append(report)
        measured = jnp.concatenate([found for _, found in reported]) if peaks else None
        return Forward(self.final_norm(x), reported[-1][0], measured)

    @property
    def stacks(self) -> list[tuple[Block, tuple[int | None, ...]]]:
        """The stacks of blocks from the bottom up, each with the windows of its layers."""
        windows, dense = self.config.windows, self.config.dense_layers
        upper = [(self.blocks, windows[dense:])]
        return upper if self.dense_blocks is None else [(self.dense_blocks, windows[:dense]), *upper]

    def embedded(self, tokens: Int[Array, "batch length"]) -> Float[Array, "batch length width"]:
        """What enters the first layer, in the config's dtype.

        Raises:
            ValueError: the mesh in force cannot split the model or the batch evenly.
        """
        check_mesh(self.config, tokens.shape[0])
        if not axis_sizes():  # rows first: to convert the whole table would cost more
            return looked_up(self.embedding, tokens).astype(self.config.dtype)
        return looked_up(put(self.embedding.astype(self.config.dtype), None, None), tokens)

    def __call__(
        self,
        tokens: Int[Array, "batch length"],
        segment_ids: Int[Array, "batch length"] | None = None,
        *,
        bias: Float[Array, "routed_layers experts"] | None = None,
    ) -> Float[Array, "batch length vocabulary"]:
        """Logits of the token after each position, in fp32; arguments as for `forward`."""
        return self.logits(self.hidden(tokens, segment_ids, bias=bias))

    def logits(self, hidden: Float[Array, "*rows width"]) -> Float[Array, "*rows vocabulary"]:
        """Logits of the next token from final hidden states, in fp32."""
        return exact_product("...d,dv->...v", hidden, self.head)


def _blocks(config: TransformerConfig, keys: Key[Array, " layers"], *, routed: bool) -> Block:
    return eqx.filter_vmap(lambda key: Block(config, routed=routed, key=key))(keys)


def check_mesh(config: TransformerConfig, batch: int) -> None:
    """Refuse a mesh in force that cannot split this model or a batch of so many rows.

    Raises:
        ValueError: naming the size, the axes and what would fit.
    """
    split = ("vocabulary", "heads", "key_value_heads", "feed_forward")
    check_divisible(batch=(batch, BATCH), **{name: (getattr(config, name), "model") for name in split})
    if config.mixture is not None:
        check_divisible(experts=(config.mixture.experts, "expert"))
        inner = ("inner", "shared_inner", "latent")
        check_divisible(**{name: (getattr(config.mixture, name), "model") for name in inner})
