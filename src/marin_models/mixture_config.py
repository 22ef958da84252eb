"""The routed part of a mixture-of-experts transformer."""

from typing import Literal, get_args

import attrs

from marin_kernels.expert_parallel import ExpertParallelImplementation
from marin_kernels.grouped_matmul import GroupedMatmulImplementation
from marin_models.checks import at_least, not_negative, one_of, optional, positive

Scoring = Literal["softmax", "sigmoid"]
BalanceOn = Literal["scores", "logits"]
Balancing = Literal["quantiles", "auxiliary", "sign", "none"]


@attrs.frozen
class MixtureOfExpertsConfig:
    """Experts, router and balancing of every routed layer.

    The defaults are the recommended family, expressible as Hugging Face ``Glm4Moe``: sigmoid scores, selection by
    scores plus a balancing bias, combine weights from the unbiased scores, renormalized and scaled. With
    ``scoring="softmax"``, no bias and no shared expert it is ``Qwen3Moe``, ``Mixtral`` or ``OLMoE``.

    Attributes:
        experts: routed experts per layer.
        top_k: experts that each token visits.
        inner: inner size of each routed expert's SwiGLU.
        shared_inner: inner size of the SwiGLU that every token visits beside its routed experts; 0: there is none.
        latent: size of the space in which routed experts work: tokens are projected to it and normalized there before
            they travel, and the weighted sum of their experts is projected back; router and shared expert read the
            model's width. 0: there is none, and experts are as wide as the model.
        scoring: how logits become scores: ``"softmax"`` over all experts, or ``"sigmoid"`` of each.
        renormalize: the scores of a token's chosen experts are divided by their sum before they are its weights.
        scale: multiplies the combine weights; renormalized, they sum to it.
        balance_on: the balancing bias is added to ``"scores"`` (as in ``Glm4Moe``) or to ``"logits"``; only the choice
            of experts sees it.
        balancing: what moves the bias or the router towards equal load: ``"quantiles"`` (the bias of the next step from
            a histogram of margins), ``"sign"`` (a fixed step against each expert's excess), ``"auxiliary"`` (a loss),
            or ``"none"``.
        auxiliary_coefficient: weight of the auxiliary loss; read only with ``balancing="auxiliary"``.
        sign_step: how far one step moves a bias; read only with ``balancing="sign"``.
        quantile_bins: bins of the histogram; read only with ``balancing="quantiles"``.
        router_z_loss: weight of the squared log-normalizer of the router's logits.
        capacity_factor: assignments kept, as a multiple of the mean load, by implementations that drop; None: none
            is dropped.
        implementation: which implementation of `marin_kernels.expert_parallel.moe` runs.
        grouped_matmul: which implementation of `marin_kernels.grouped_matmul` multiplies.

    Raises:
        ValueError: naming the attribute, what was given and what is possible.

    Source: the quantile method: Su, kexue.fm/archives/11619; sign: Wang et al. 2024 (arXiv 2408.15664); auxiliary
    loss: Fedus et al. 2021 (arXiv 2101.03961); z-loss: Zoph et al. 2022 (arXiv 2202.08906);
    latent: LatentMoE (arXiv 2601.18089).
    """

    experts: int = attrs.field(validator=at_least(2))
    top_k: int = attrs.field(validator=at_least(1))
    inner: int = attrs.field(validator=at_least(1))
    shared_inner: int = attrs.field(default=0, validator=at_least(0))
    latent: int = attrs.field(default=0, validator=at_least(0), kw_only=True)
    scoring: Scoring = attrs.field(default="sigmoid", validator=one_of(*get_args(Scoring)))
    renormalize: bool = attrs.field(default=True, validator=one_of(False, True))
    scale: float = attrs.field(default=1.0, validator=positive)
    balance_on: BalanceOn = attrs.field(default="scores", validator=one_of(*get_args(BalanceOn)))
    balancing: Balancing = attrs.field(default="quantiles", validator=one_of(*get_args(Balancing)))
    auxiliary_coefficient: float = attrs.field(default=0.01, validator=not_negative)
    sign_step: float = attrs.field(default=0.001, validator=positive)
    quantile_bins: int = attrs.field(default=1000, validator=at_least(2))
    router_z_loss: float = attrs.field(default=0.0, validator=not_negative)
    capacity_factor: float | None = attrs.field(default=None, validator=optional(positive))
    implementation: ExpertParallelImplementation = attrs.field(
        default="local", validator=one_of(*get_args(ExpertParallelImplementation))
    )
    grouped_matmul: GroupedMatmulImplementation = attrs.field(
        default="default", validator=one_of(*get_args(GroupedMatmulImplementation))
    )

    def __attrs_post_init__(self):
        most = self.experts - 1 if self.balancing == "quantiles" else self.experts
        if self.top_k > most:
            reason = "; balancing by quantiles looks at the first expert not chosen" if most < self.experts else ""
            raise ValueError(
                f"MixtureOfExpertsConfig: top_k {self.top_k} of {self.experts} experts; "
                f"it must be at most {most}{reason}"
            )

    def expert_width(self, width: int) -> int:
        """Size of what a routed expert reads and writes, and of what travels to it, in a model of this width."""
        return self.latent or width

    @property
    def biased(self) -> bool:
        """Whether balancing moves a bias, which then belongs to the training state."""
        return self.balancing in ("quantiles", "sign")
