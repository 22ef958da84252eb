"""The tokenizer beside a checkpoint, in the files that `transformers` and its kin read."""

import json
from pathlib import Path
from typing import Any

import attrs

from marin_models.transformer_config import TransformerConfig


@attrs.frozen
class TokenizerFiles:
    """A tokenizer for export.

    Attributes:
        tokenizer: contents of a tokenizer.json of Hugging Face `tokenizers`.
        end_of_text: the id of the added token that ends a document and, in front of a text, begins one.
    """

    tokenizer: str
    end_of_text: int


def write_tokenizer(
    folder: Path, files: TokenizerFiles, config: TransformerConfig, context_length: int
) -> dict[str, Any]:
    """Write tokenizer.json, tokenizer_config.json and generation_config.json.

    Returns:
        The keys that config.json says about the ends of texts.

    Raises:
        ValueError: the tokenizer is no tokenizer.json, has ids that the model does not know, or no such token as
            ``end_of_text``.
    """
    try:
        contents = json.loads(files.tokenizer)
        added = {token["id"]: token["content"] for token in contents.get("added_tokens", [])}
        largest = max([*contents["model"]["vocab"].values(), *added])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            "export: the tokenizer is no tokenizer.json of Hugging Face tokenizers with ids under 'model' and 'vocab' "
            f"({type(error).__name__}: {error}); give the contents of such a file"
        ) from error
    if largest >= config.vocabulary:
        raise ValueError(
            f"export: the tokenizer has ids up to {largest}, the model a vocabulary of {config.vocabulary}; give the "
            "tokenizer that the model was trained with"
        )
    if files.end_of_text not in added:
        raise ValueError(
            f"export: end_of_text {files.end_of_text} is none of the tokenizer's added tokens "
            f"({', '.join(map(str, sorted(added))) or 'there are none'})"
        )
    ends = {"bos_token_id": files.end_of_text, "eos_token_id": files.end_of_text}
    name = added[files.end_of_text]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": name,
        "eos_token": name,
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer.json").write_text(files.tokenizer, "utf-8")
    _write(folder / "tokenizer_config.json", settings)
    _write(folder / "generation_config.json", {"_from_model_config": True, **ends})
    return ends


def _write(path: Path, contents: dict[str, Any]) -> None:
    path.write_text(json.dumps(contents, indent=2) + "\n", "utf-8")
