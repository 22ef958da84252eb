"""What a family of Hugging Face models calls things, and what of ours it can express."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from marin_models.interchange.keys import Inexpressible, Keys
from marin_models.interchange.rotation import written_rotation
from marin_models.transformer_config import TransformerConfig

MODEL_NAMES: Mapping[str, str] = {
    "embedding": "model.embed_tokens.weight",
    "final_norm.scale": "model.norm.weight",
    "separate_head": "lm_head.weight",
}
"""Our parameter: its tensor. The same in all families."""

LAYER_NAMES: Mapping[str, str] = {
    "attention_norm.scale": "input_layernorm.weight",
    "attention.query": "self_attn.q_proj.weight",
    "attention.key": "self_attn.k_proj.weight",
    "attention.value": "self_attn.v_proj.weight",
    "attention.output": "self_attn.o_proj.weight",
    "attention.query_bias": "self_attn.q_proj.bias",
    "attention.key_bias": "self_attn.k_proj.bias",
    "attention.value_bias": "self_attn.v_proj.bias",
    "attention.query_norm.scale": "self_attn.q_norm.weight",
    "attention.key_norm.scale": "self_attn.k_norm.weight",
    "feed_forward_norm.scale": "post_attention_layernorm.weight",
    "feed_forward.gate": "mlp.gate_proj.weight",
    "feed_forward.up": "mlp.up_proj.weight",
    "feed_forward.down": "mlp.down_proj.weight",
}
"""A layer's parameter: its tensor, under ``model.layers.N``."""


@attrs.frozen
class Family:
    """One architecture of Hugging Face `transformers`.

    Attributes:
        name: the ``model_type`` in config.json.
        architecture: the class that `transformers` loads it with.
        requires: attributes of `TransformerConfig` (``mixture.scoring`` for one of its mixture) and the values that the
            family can express; it can express any value of what is not named.
        read: the attributes that a config.json gives, beside those of `read_common`.
        write: the keys that a config becomes, beside those of `write_common`.
        names: tensor of each parameter of a layer; a stack of experts has ``{expert}`` in it.
        check: problems of a config that `requires` cannot say.
    """

    name: str
    architecture: str
    requires: Mapping[str, tuple[Any, ...]]
    read: Callable[[Keys], dict[str, Any]]
    write: Callable[[TransformerConfig], dict[str, Any]]
    names: Mapping[str, str] = LAYER_NAMES
    check: Callable[[TransformerConfig], Iterable[str]] = lambda config: ()

    def problems(self, config: TransformerConfig) -> list[str]:
        """Why the family cannot express a config; nothing if it can."""
        found = []
        if config.mixture is None and any(path.startswith("mixture.") for path in self.requires):
            return [f"mixture is None; {self.name} has routed experts"]
        for path, possible in {**_NEVER, **self.requires}.items():
            if config.mixture is None and path.startswith("mixture."):
                continue
            value = _at(config, path)
            if value not in possible:
                choices = " or ".join(map(repr, possible))
                found.append(f"{path} is {value!r}; {self.name} expresses only {choices}")
        return found or list(self.check(config))


_NEVER: Mapping[str, tuple[Any, ...]] = {"attention_gate": (False,), "norm_gate": (0,), "mixture.latent": (0,)}
"""What no family expresses."""


def _at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def read_common(keys: Keys) -> dict[str, Any]:
    """The attributes that all families write alike."""
    heads, width = keys.take("num_attention_heads"), keys.take("hidden_size")
    keys.require("hidden_act", "silu")
    keys.require("quantization_config")
    return {
        "vocabulary": keys.take("vocab_size"),
        "width": width,
        "layers": keys.take("num_hidden_layers"),
        "heads": heads,
        "key_value_heads": keys.take("num_key_value_heads", heads),
        "head_size": keys.take("head_dim", width // heads if heads and width else None),
        "feed_forward": keys.take("intermediate_size"),
        "norm_epsilon": keys.take("rms_norm_eps"),
        "tied_head": keys.take("tie_word_embeddings", False),
    }


def write_common(config: TransformerConfig) -> dict[str, Any]:
    """The keys that all families read alike."""
    return {
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_size,
        "hidden_act": "silu",
        "intermediate_size": config.feed_forward,
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tied_head,
        **written_rotation(config),
    }


def read_windows(keys: Keys, window: int | None, local: list[bool]) -> dict[str, Any]:
    """Window and pattern of layers.

    Args:
        keys: takes the blame for a pattern that is no repetition.
        window: positions that a local layer sees, its own included.
        local: which layers are local.
    """
    if window is None or not any(local):
        return {}
    first = [*local, False].index(False)
    after = [*local[first:], True].index(True)
    period = first + after
    if not first or local != [index % period < first for index in range(len(local))]:
        kinds = ["sliding_attention" if one else "full_attention" for one in local]
        keys.refuse("layer_types", kinds, "only so many sliding layers, then so many full ones, repeated")
    return {"window": window, "local_to_global": (max(first, 1), after)}


def all_or_no_windows(config: TransformerConfig) -> Iterable[str]:
    """A problem if some layers have a window and others have none."""
    if len(set(config.windows)) > 1:
        yield (
            f"local_to_global is {config.local_to_global} with window {config.window}; here either all layers have a "
            "window or none"
        )


def fitting(families: Iterable[Family], config: TransformerConfig) -> Family:
    """The first family that can express a config.

    Raises:
        Inexpressible: none can; the message says what is in each one's way.
    """
    families = list(families)
    for family in families:
        if not family.problems(config):
            return family
    reasons = [f"{family.name}: {'; '.join(family.problems(config))}" for family in families]
    raise Inexpressible("no Hugging Face family expresses this TransformerConfig:\n  " + "\n  ".join(reasons))
