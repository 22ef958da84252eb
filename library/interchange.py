"""Trained models as Hugging Face checkpoints, and such checkpoints as models."""

import json
from collections.abc import Sequence
from typing import Literal

import attrs
import numpy as np
import tokenizers as hugging_face

from library.tokenizers import Tokenizer, byte_characters
from library.training import Run
from marin_dsl import Directory, context, encodable, op
from marin_models import TransformerConfig
from marin_models.interchange import TokenizerFiles, export_model, import_model

END_OF_DOCUMENT = "<|endoftext|>"


@encodable
@attrs.frozen(eq=False)
class Model:
    """A model without its training.

    Attributes:
        family: the `model_type` of the checkpoint that it came from.
        config: its shape.
        parameters: by dotted name, fp32.
        router_bias: the balancing bias of each router, fp32 of shape [routed layers, experts]; None: there is none.
    """

    family: str
    config: TransformerConfig
    parameters: dict[str, np.ndarray]
    router_bias: np.ndarray | None


@op(pin=["jax", "jaxlib", "safetensors", "tokenizers"])
def export_checkpoint(
    model: Run | Model,
    tokenizer: Tokenizer,
    *,
    context_length: int,
    family: str | None = None,
    dtype: Literal["float32", "bfloat16"] = "float32",
    shard_bytes: int = 5_000_000_000,
) -> Directory:
    """Write a model as `transformers`, vLLM and SGLang load it: safetensors, config.json and tokenizer.

    The checkpoint is read again and its logits compared before it is given back. In the exported tokenizer the text
    `<|endoftext|>` stands for the end of a document.

    Args:
        model: what was trained.
        tokenizer: the one that it was trained with.
        context_length: longest text that the model is good for, in tokens, such as the length it was trained with.
        family: `qwen3`, `llama`, `qwen3_moe`, `mixtral`, `olmoe` or `glm4_moe`; None for the first that can express it.
        dtype: of the tensors; `bfloat16` rounds them.
        shard_bytes: bound on the size of a file.

    Raises:
        Inexpressible: the family (or any) cannot express the model; every obstacle is named.
    """
    config = model.model if isinstance(model, Run) else model.config
    folder = context().scratch / "checkpoint"
    export_model(
        folder,
        config,
        model.parameters,
        context_length=context_length,
        bias=model.router_bias,
        family=family,
        dtype=dtype,
        shard_bytes=shard_bytes,
        tokenizer=TokenizerFiles(tokenizer_json(tokenizer), tokenizer.end_of_document),
    )
    return Directory.of(folder)


@op(pin=["safetensors"])
def import_checkpoint(checkpoint: Directory, *, ignore: Sequence[str] = ()) -> Model:
    """Read a checkpoint of one of the families that `export_checkpoint` writes.

    Args:
        checkpoint: a folder with config.json and safetensors files.
        ignore: keys of config.json that are known not to change what the model computes.

    Raises:
        Inexpressible: the family or a value in config.json has no counterpart here; all such values are named.
        DamagedCheckpoint: a file is missing or broken, or tensors are missing, unknown or of another shape.
    """
    found = import_model(checkpoint.path, ignore=ignore)
    return Model(found.family, found.config, found.parameters, found.bias)


def tokenizer_json(tokenizer: Tokenizer) -> str:
    """The contents of a `tokenizer.json` with the same ids, and the end of a document as an added token."""
    if tokenizer.model is None:
        characters = byte_characters()
        alphabet = {characters[value]: value for value in range(len(characters))}
        encoder = hugging_face.Tokenizer(hugging_face.models.BPE(vocab=alphabet, merges=[]))
        encoder.pre_tokenizer = hugging_face.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        encoder.decoder = hugging_face.decoders.ByteLevel()
    else:
        encoder = hugging_face.Tokenizer.from_file(str(tokenizer.model.path))
    encoder.add_special_tokens([END_OF_DOCUMENT])
    added = encoder.token_to_id(END_OF_DOCUMENT)
    if added != tokenizer.end_of_document:
        raise ValueError(
            f"the end of a document is id {tokenizer.end_of_document} here and would become {added} in tokenizer.json; "
            f"a tokenizer whose vocabulary holds {END_OF_DOCUMENT!r} cannot be exported"
        )
    return json.dumps(json.loads(encoder.to_str()), ensure_ascii=False, indent=2)
