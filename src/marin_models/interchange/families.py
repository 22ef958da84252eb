"""The families that models can be exported to and imported from."""

from collections.abc import Iterable, Mapping
from typing import Any

from marin_models.interchange.family import (
    LAYER_NAMES,
    Family,
    all_or_no_windows,
    read_windows,
)
from marin_models.interchange.keys import Keys
from marin_models.interchange.rotation import read_rotation, written_rotation
from marin_models.mixture_config import MixtureOfExpertsConfig
from marin_models.transformer_config import TransformerConfig

EXPERT_NAMES: Mapping[str, str] = {
    **LAYER_NAMES,
    "mixture.router.weight": "mlp.gate.weight",
    "mixture.gate": "mlp.experts.{expert}.gate_proj.weight",
    "mixture.up": "mlp.experts.{expert}.up_proj.weight",
    "mixture.down": "mlp.experts.{expert}.down_proj.weight",
    "mixture.shared.gate": "mlp.shared_experts.gate_proj.weight",
    "mixture.shared.up": "mlp.shared_experts.up_proj.weight",
    "mixture.shared.down": "mlp.shared_experts.down_proj.weight",
}
"""Names of most families with routed experts."""

MIXTRAL_NAMES: Mapping[str, str] = {
    **LAYER_NAMES,
    "mixture.router.weight": "block_sparse_moe.gate.weight",
    "mixture.gate": "block_sparse_moe.experts.{expert}.w1.weight",
    "mixture.up": "block_sparse_moe.experts.{expert}.w3.weight",
    "mixture.down": "block_sparse_moe.experts.{expert}.w2.weight",
}

_PLAIN = {"attention_bias": (False,), "rotary_fraction": (1.0,)}
_SOFTMAX = {
    "mixture.scoring": ("softmax",),
    "mixture.shared_inner": (0,),
    "mixture.scale": (1.0,),
    "mixture.balancing": ("none", "auxiliary"),  # no place for a bias
    **_PLAIN,
}


def _read_qwen3(keys: Keys) -> dict[str, Any]:
    keys.require("attention_bias", False)
    if keys.given.get("head_dim") is None:
        keys.problems.append("head_dim is missing")  # transformers assumes 128 here, whatever the width
    window = keys.take("sliding_window", None) if keys.take("use_sliding_window", False) else None
    first, kinds = keys.take("max_window_layers", 28), keys.take("layer_types", None)
    if kinds is None:
        local = [index >= first for index in range(keys.given.get("num_hidden_layers", 0))]
    else:
        local = [kind == "sliding_attention" for kind in kinds]
    keys.take("sliding_window", None)
    return {"qk_norm": "head", **read_rotation(keys, theta=10000.0), **read_windows(keys, window, local)}


def _write_qwen3(config: TransformerConfig) -> dict[str, Any]:
    local = [window is not None for window in config.windows]
    return {
        "attention_bias": False,
        "use_sliding_window": any(local),
        "sliding_window": config.window if any(local) else None,
        "max_window_layers": 0 if all(local) else config.layers,
        "layer_types": ["sliding_attention" if one else "full_attention" for one in local],
    }


def _read_llama(keys: Keys) -> dict[str, Any]:
    keys.require("attention_bias", False)
    keys.require("mlp_bias", False)
    return {"qk_norm": "none", **read_rotation(keys, theta=10000.0)}


def _write_llama(config: TransformerConfig) -> dict[str, Any]:
    return {"attention_bias": False, "mlp_bias": False}


def _heads_fill_width(config: TransformerConfig) -> Iterable[str]:
    if config.width % config.heads:
        yield f"width is {config.width} with {config.heads} heads; here it must be a multiple of them"


def _heads_are_width(config: TransformerConfig) -> Iterable[str]:
    if config.head_size * config.heads != config.width:
        yield f"head_size is {config.head_size}; here {config.heads} of them must make up the width, {config.width}"


def _softmax_mixture(keys: Keys, *, experts: int, inner: int, renormalize: bool) -> dict[str, Any]:
    """A mixture whose router has softmax scores and no bias."""
    return {
        "experts": experts,
        "top_k": keys.take("num_experts_per_tok"),
        "inner": inner,
        "scoring": "softmax",
        "renormalize": renormalize,
        "balancing": "none",
    }


def _read_qwen3_moe(keys: Keys) -> dict[str, Any]:
    keys.require("attention_bias", False)
    keys.require("decoder_sparse_step", 1)
    layers, dense = keys.given.get("num_hidden_layers", 0), keys.take("mlp_only_layers", [])
    if dense != list(range(len(dense))):
        keys.refuse("mlp_only_layers", dense, "only the first layers, such as [0, 1]")
    window = keys.take("sliding_window", None) if keys.take("use_sliding_window", False) else None
    keys.take("sliding_window", None)
    keys.take("max_window_layers", None)
    experts = keys.take("num_local_experts", None)
    return {
        "qk_norm": "head",
        "dense_layers": len(dense),
        "mixture": _softmax_mixture(
            keys,
            experts=keys.take("num_experts", experts) if experts else keys.take("num_experts"),
            inner=keys.take("moe_intermediate_size"),
            renormalize=keys.take("norm_topk_prob", False),
        ),
        **read_rotation(keys, theta=10000.0),
        **read_windows(keys, window, [True] * layers),
    }


def _routed(config: TransformerConfig) -> MixtureOfExpertsConfig:
    assert config.mixture is not None, "a family of routed experts has refused configs without"
    return config.mixture


def _write_qwen3_moe(config: TransformerConfig) -> dict[str, Any]:
    mixture = _routed(config)
    return {
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "mlp_only_layers": list(range(config.dense_layers)),
        "use_sliding_window": config.windows[0] is not None,
        "sliding_window": config.windows[0],
        "max_window_layers": 0,
        "num_experts": mixture.experts,
        "num_experts_per_tok": mixture.top_k,
        "moe_intermediate_size": mixture.inner,
        "norm_topk_prob": mixture.renormalize,
    }


def _read_mixtral(keys: Keys) -> dict[str, Any]:
    layers, inner = keys.given.get("num_hidden_layers", 0), keys.given.get("intermediate_size")
    experts = keys.take("num_local_experts")
    return {
        "qk_norm": "none",
        "mixture": _softmax_mixture(keys, experts=experts, inner=inner, renormalize=True),
        **read_rotation(keys, theta=1e6),
        **read_windows(keys, keys.take("sliding_window", None), [True] * layers),
    }


def _write_mixtral(config: TransformerConfig) -> dict[str, Any]:
    mixture = _routed(config)
    return {
        "intermediate_size": mixture.inner,
        "num_local_experts": mixture.experts,
        "num_experts_per_tok": mixture.top_k,
        "sliding_window": config.windows[0],
    }


def _read_olmoe(keys: Keys) -> dict[str, Any]:
    keys.require("attention_bias", False)
    keys.require("clip_qkv")
    inner, renormalize = keys.given.get("intermediate_size"), keys.take("norm_topk_prob", False)
    experts = keys.take("num_experts")
    return {
        "qk_norm": "projection",
        "mixture": _softmax_mixture(keys, experts=experts, inner=inner, renormalize=renormalize),
        **read_rotation(keys, theta=10000.0),
    }


def _write_olmoe(config: TransformerConfig) -> dict[str, Any]:
    mixture = _routed(config)
    return {
        "attention_bias": False,
        "clip_qkv": None,
        "intermediate_size": mixture.inner,
        "num_experts": mixture.experts,
        "num_experts_per_tok": mixture.top_k,
        "norm_topk_prob": mixture.renormalize,
    }


def _read_glm4_moe(keys: Keys) -> dict[str, Any]:
    keys.require("n_group", 1)
    keys.require("topk_group", 1)
    keys.take("num_nextn_predict_layers", 0)
    experts, top_k, inner = (
        keys.take("n_routed_experts"),
        keys.take("num_experts_per_tok"),
        keys.take("moe_intermediate_size"),
    )
    mixture = {
        "experts": experts,
        "top_k": top_k,
        "inner": inner,
        "shared_inner": keys.take("n_shared_experts", 1) * (inner or 0),
        "scoring": "sigmoid",
        "renormalize": keys.take("norm_topk_prob", True),
        "scale": keys.take("routed_scaling_factor", 1.0),
        "balancing": "sign" if top_k == experts else "quantiles",
    }
    return {
        "qk_norm": "head" if keys.take("use_qk_norm", False) else "none",
        "attention_bias": keys.take("attention_bias", False),
        "dense_layers": keys.take("first_k_dense_replace", 1),
        "mixture": mixture,
        **read_rotation(keys, theta=10000.0, fraction=0.5),
    }


def _write_glm4_moe(config: TransformerConfig) -> dict[str, Any]:
    mixture = _routed(config)
    return {
        "attention_bias": config.attention_bias,
        "use_qk_norm": config.qk_norm == "head",
        "partial_rotary_factor": config.rotary_fraction,
        **written_rotation(config, partial_rotary_factor=config.rotary_fraction),
        "first_k_dense_replace": config.dense_layers,
        "n_routed_experts": mixture.experts,
        "n_shared_experts": mixture.shared_inner // mixture.inner,
        "num_experts_per_tok": mixture.top_k,
        "moe_intermediate_size": mixture.inner,
        "norm_topk_prob": mixture.renormalize,
        "routed_scaling_factor": mixture.scale,
        "n_group": 1,
        "topk_group": 1,
        "num_nextn_predict_layers": 0,
    }


def _shared_is_whole_experts(config: TransformerConfig) -> Iterable[str]:
    mixture = _routed(config)
    if not mixture.shared_inner or mixture.shared_inner % mixture.inner:
        yield (
            f"mixture.shared_inner is {mixture.shared_inner}; here there is a shared expert, whose inner size is a "
            f"multiple of the routed ones', {mixture.inner}"
        )


def _heads_and_windows(config: TransformerConfig) -> Iterable[str]:
    yield from _heads_are_width(config)
    yield from all_or_no_windows(config)


QWEN3 = Family(
    "qwen3", "Qwen3ForCausalLM", {"mixture": (None,), "qk_norm": ("head",), **_PLAIN}, _read_qwen3, _write_qwen3
)
LLAMA = Family(
    "llama",
    "LlamaForCausalLM",
    {"mixture": (None,), "qk_norm": ("none",), "window": (None,), **_PLAIN},
    _read_llama,
    _write_llama,
    check=_heads_fill_width,
)
QWEN3_MOE = Family(
    "qwen3_moe",
    "Qwen3MoeForCausalLM",
    {"qk_norm": ("head",), **_SOFTMAX},
    _read_qwen3_moe,
    _write_qwen3_moe,
    EXPERT_NAMES,
    all_or_no_windows,
)
MIXTRAL = Family(
    "mixtral",
    "MixtralForCausalLM",
    {"qk_norm": ("none",), "dense_layers": (0,), "mixture.renormalize": (True,), **_SOFTMAX},
    _read_mixtral,
    _write_mixtral,
    MIXTRAL_NAMES,
    all_or_no_windows,
)
OLMOE = Family(
    "olmoe",
    "OlmoeForCausalLM",
    {"qk_norm": ("projection",), "dense_layers": (0,), "window": (None,), **_SOFTMAX},
    _read_olmoe,
    _write_olmoe,
    EXPERT_NAMES,
    _heads_are_width,
)
GLM4_MOE = Family(
    "glm4_moe",
    "Glm4MoeForCausalLM",
    {
        "qk_norm": ("head", "none"),
        "window": (None,),
        "mixture.scoring": ("sigmoid",),
        "mixture.balance_on": ("scores",),
    },
    _read_glm4_moe,
    _write_glm4_moe,
    {**EXPERT_NAMES, "balancing_bias": "mlp.gate.e_score_correction_bias"},
    _shared_is_whole_experts,
)

FAMILIES: tuple[Family, ...] = (QWEN3, LLAMA, GLM4_MOE, QWEN3_MOE, MIXTRAL, OLMOE)
"""In the order in which an export tries them."""
