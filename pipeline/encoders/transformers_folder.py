"""Reads a Hugging Face folder as a `TransformersEncoder`: checked, offline, without its code."""

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from data_prep.errors import SesameError, UsageError
from data_prep.reading.untrusted import read_object
from pipeline.encoders.transformers_encoder import TransformersEncoder, is_pooler
from pipeline.models.untrusted import State, read_safetensors, refuse_unusable, refused_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def load_transformers_encoder(folder: Path) -> TransformersEncoder:
    """Read a Hugging Face folder through transformers, offline.

    Raises SesameError if weights are missing, pickled or not finite, and UsageError for a model
    whose code is not part of transformers.
    """
    from transformers import AutoConfig, AutoModel, AutoTokenizer
    from transformers.models.auto.modeling_auto import MODEL_MAPPING
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    weights = _weights(folder)
    offline: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(folder, **offline)
        made = MODEL_MAPPING[type(config)]
    except Exception as error:  # the library has no narrower class
        raise UsageError(
            f"{folder / 'config.json'}: no model of transformers {_version()} reads it"
        ) from error
    if getattr(config, "is_encoder_decoder", False):
        raise UsageError(
            f"{folder / 'config.json'}: model_type {config.model_type} has a decoder; choose an "
            "encoder such as BERT or RoBERTa"
        )
    layers, tensors = getattr(config, "num_hidden_layers", 0), _tensor_count(weights)
    if not isinstance(layers, int) or layers > tensors:
        raise SesameError(
            f"{weights}: has {tensors} tensors, but the folder's config.json asks for "
            f"{layers!s:.20} layers"
        )
    # Only BERT's class for sentences uses the encoder's pooler.
    has_choice = "add_pooling_layer" in inspect.signature(made).parameters
    plain = {"add_pooling_layer": config.model_type == "bert"} if has_choice else {}
    try:
        network, report = AutoModel.from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True,
            output_loading_info=True, **plain, **offline,
        )  # fmt: skip
    except Exception as error:
        raise SesameError(
            f"{weights}: its tensors do not fit the folder's config.json; fetch the folder again"
        ) from error
    lacking = sorted(report["missing_keys"])
    missing = [name for name in lacking if not is_pooler(name)]
    if missing:
        raise SesameError(
            f"{weights}: has no {missing[0]}, so it is no complete {config.model_type} encoder"
        )
    if unread := _unread(network, report["unexpected_keys"]):
        raise UsageError(
            f"{weights}: {type(network).__name__} of transformers {_version()} does not read "
            f"{unread[0]}, so it would not compute this encoder"
        )
    for name, value in network.named_parameters():
        refuse_unusable(weights, name, value.detach())
    try:
        words = AutoTokenizer.from_pretrained(folder, **offline)
    except Exception as error:
        raise SesameError(
            f"{folder}: its tokenizer cannot be read; fetch the folder again"
        ) from error
    if not words.is_fast:
        raise UsageError(
            f"{folder}: its tokenizer gives no characters of tokens; save it with tokenizer.json"
        )
    try:
        masked = _masked_layers(weights) if config.model_type == "modernbert" else None
        encoder = TransformersEncoder(network, words, lacking == missing, masked)
    except SesameError:
        raise
    except Exception as error:
        raise SesameError(
            f"{folder}: its model cannot read its tokenizer's tokens; fetch the folder again"
        ) from error
    encoder.source = folder
    return encoder


def _weights(folder: Path) -> Path:
    """Return the file of weights, or of their index. Raises UsageError if there is none."""
    names = ("model.safetensors", "model.safetensors.index.json")
    found = [folder / name for name in names if (folder / name).is_file()]
    pickled = sorted(folder.glob("pytorch_model*.bin"))
    if not found and pickled:
        raise refused_weights(pickled[0])
    if not found:
        raise UsageError(f"{folder}: has no model.safetensors")
    return found[0]


def _tensor_count(weights: Path) -> int:
    """Return the number of tensors in a file of weights or in an index."""
    if weights.suffix == ".json":
        names = read_object(weights).get("weight_map")
        return len(names) if isinstance(names, dict) else 0
    return len(read_safetensors(weights))


def _version() -> str:
    import transformers

    return str(transformers.__version__)


def _unread(network: "PreTrainedModel", names: Iterable[str]) -> list[str]:
    """Return those of the names that belong to the encoder, not to a head that it had."""
    own = {name for name, _ in network.named_children()}
    prefix = f"{network.base_model_prefix}."
    return sorted(name for name in names if name.removeprefix(prefix).partition(".")[0] in own)


def _masked_layers(weights: Path) -> State | None:
    """Return the layers of ModernBERT's masked-LM head before its decoder; None without a head."""
    if weights.suffix == ".json":
        return None
    tensors = read_safetensors(weights)
    prefix = "head."
    own = {name: value for name, value in tensors.items() if name.startswith(prefix)}
    for name, value in own.items():
        refuse_unusable(weights, name, value)
    layers = {name.removeprefix(prefix): value.float() for name, value in own.items()}
    return layers if layers and "decoder.bias" in tensors else None
