"""Models to and from the checkpoints of Hugging Face: safetensors, config.json and a tokenizer.

Families: Qwen3, Llama, Qwen3-MoE, Mixtral, OLMoE and Glm4Moe. An export is read again and its logits compared before
its folder appears; an import refuses by name what it cannot express.
"""

from marin_models.interchange.exporting import export_model
from marin_models.interchange.families import FAMILIES
from marin_models.interchange.family import Family
from marin_models.interchange.importing import Imported, LeftOut, import_model, read_config
from marin_models.interchange.keys import Inexpressible
from marin_models.interchange.shards import DamagedCheckpoint
from marin_models.interchange.tokenizer_files import TokenizerFiles

__all__ = [
    "FAMILIES",
    "DamagedCheckpoint",
    "Family",
    "Imported",
    "Inexpressible",
    "LeftOut",
    "TokenizerFiles",
    "export_model",
    "import_model",
    "read_config",
]
