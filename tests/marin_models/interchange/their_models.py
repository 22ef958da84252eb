"""Small models as `transformers` makes them; `checkpoints/` holds what it writes of each, without the numbers."""

import json
from pathlib import Path

COMMON = {
    "vocab_size": 33,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "bos_token_id": 32,
    "eos_token_id": 32,
}
LONGER = {"head_dim": 16, "max_position_embeddings": 128}
EXTENDED = {"rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
CASES = {
    "qwen3": {"head_dim": 6},
    "qwen3-windows": {
        "head_dim": 6,
        "use_sliding_window": True,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "tie_word_embeddings": True,
    },
    "llama": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "llama-llama3": {**LONGER, "rope_parameters": {**EXTENDED, "rope_type": "llama3", **LLAMA3}},
    "llama-yarn": {**LONGER, "rope_parameters": {**EXTENDED, "rope_type": "yarn", "beta_fast": 4.0}},
    "llama-older_yarn": {
        **LONGER,
        "rope_theta": 500.0,
        "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "truncate": False},
    },
    "llama-linear": {**LONGER, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}},
    "qwen3_moe": {
        "head_dim": 6,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "norm_topk_prob": True,
        "mlp_only_layers": [0],
    },
    "mixtral": {"num_local_experts": 4, "sliding_window": 4},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2, "pad_token_id": None},
    "glm4_moe": {
        "head_dim": 8,
        "n_routed_experts": 4,
        "n_shared_experts": 2,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "first_k_dense_replace": 2,
        "use_qk_norm": True,
        "attention_bias": True,
        "routed_scaling_factor": 1.7,
    },
}
FOLDER = Path(__file__).parent / "checkpoints"


def model(case):
    """Made anew by `transformers`, with random numbers everywhere."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(case.split("-")[0], **{**COMMON, **CASES[case]})
    made = transformers.AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        biases = [tensor for name, tensor in made.named_buffers() if name.endswith("e_score_correction_bias")]
        for tensor in [*made.parameters(), *biases]:
            tensor.add_(0.3 * torch.randn(tensor.shape, generator=generator))
    return made


def without_numbers(folder):
    """config.json, and the shape of every tensor, of a checkpoint."""
    from safetensors import safe_open

    config = json.loads((folder / "config.json").read_text())
    shapes = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="np") as file:
            shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
    return {"config": config, "tensors": dict(sorted(shapes.items()))}


def recorded(case):
    """What was committed of a case."""
    return json.loads((FOLDER / f"{case}.json").read_text())
