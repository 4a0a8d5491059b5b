"""Weights to and from Hugging Face's BERT: the names of both sides, and reading their folders.

Every tensor of ours is one of theirs, except that query, key and value lie in one matrix here.
"""

from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from data_prep.errors import SesameError, UsageError
from pipeline.models.bert import Bert, BertForPretraining
from pipeline.models.config import BertConfig
from pipeline.models.stated import SEGMENTS, read_stated

State = dict[str, Tensor]

LAYER_MODULES = {
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feedforward.input": "intermediate.dense",
    "feedforward.output": "output.dense",
    "feedforward_norm": "output.LayerNorm",
}
MODULES = {
    "bert.embeddings.tokens": "bert.embeddings.word_embeddings",
    "bert.embeddings.positions": "bert.embeddings.position_embeddings",
    "bert.embeddings.segments": "bert.embeddings.token_type_embeddings",
    "bert.embeddings.norm": "bert.embeddings.LayerNorm",
    "bert.pooler": "bert.pooler.dense",
    "masked": "cls.predictions",
    "masked.transform": "cls.predictions.transform.dense",
    "masked.norm": "cls.predictions.transform.LayerNorm",
    "masked.decoder": "cls.predictions.decoder",
    "pair": "cls.seq_relationship",
}
PROJECTIONS = ("query", "key", "value")
HEADS = {"bert.pooler": "pooler", "masked": "masked-LM head", "pair": "pair head"}
# What our options must be for BERT's architecture to have a place for them.
AS_IN_BERT = {"norm": "post", "positions": "learned", "activation": "gelu", "biases": True}


def _their_names(ours: str) -> list[str]:
    """The tensors that are, one below the other, our tensor."""
    module, _, kind = ours.rpartition(".")
    if not module.startswith("bert.layers."):
        return [f"{MODULES[module]}.{kind}"]
    number, _, part = module.removeprefix("bert.layers.").partition(".")
    layer = f"bert.encoder.layer.{number}"
    if part == "attention.qkv":
        return [f"{layer}.attention.self.{name}.{kind}" for name in PROJECTIONS]
    return [f"{layer}.{LAYER_MODULES[part]}.{kind}"]


def to_huggingface(state: State) -> State:
    """Tensors of BertForPretraining under the names of transformers' BertForPreTraining."""
    theirs: State = {}
    for ours, tensor in state.items():
        names = _their_names(ours)
        parts = tensor.chunk(len(names))
        theirs |= {name: part.contiguous() for name, part in zip(names, parts, strict=True)}
    theirs["cls.predictions.decoder.bias"] = theirs["cls.predictions.bias"].clone()
    return theirs


def from_huggingface(theirs: State, wanted: list[str]) -> State:
    """Those of our `wanted` tensors whose counterparts are all there."""
    found = {}
    for ours in wanted:
        names = _their_names(ours)
        if all(name in theirs for name in names):
            found[ours] = torch.cat([theirs[name] for name in names]).float()
    return found


def huggingface_config(config: BertConfig, vocab_size: int, pad: int) -> dict[str, Any]:
    """config.json for transformers; options that BERT's architecture lacks are refused."""
    odd = [
        f"model.{key}={str(getattr(config, key)).lower()}"
        for key, needed in AS_IN_BERT.items()
        if getattr(config, key) != needed
    ]
    if odd:
        raise UsageError(
            f"{', '.join(odd)}: no architecture of transformers computes exactly this, so the "
            "model cannot be exported; BERT's own form (norm=post, positions=learned, "
            "activation=gelu, biases=true) can"
        )
    return {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "vocab_size": vocab_size,
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": SEGMENTS,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.norm_eps,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tied,
        "pad_token_id": pad,
    }


@dataclass(frozen=True)
class _Folder:
    config: BertConfig
    vocab_size: int
    weights: State
    path: Path


def load_folder(folder: Path) -> Bert:
    """The encoder of a Hugging Face BERT folder; a missing pooler starts fresh."""
    read = _read(folder)
    model = Bert(read.config, read.vocab_size)
    _fill(model, read, "bert.")
    return model


def load_for_pretraining(folder: Path) -> tuple[BertForPretraining, list[str]]:
    """The encoder and heads of a Hugging Face BERT folder, and the parts that start fresh."""
    read = _read(folder)
    model = BertForPretraining(read.config, read.vocab_size)
    return model, _fill(model, read, "")


def _fill(model: torch.nn.Module, read: _Folder, prefix: str) -> list[str]:
    """Put the folder's weights into the model; the parts it does not have."""
    state = model.state_dict()
    found = from_huggingface(read.weights, [prefix + name for name in state])
    missing = [prefix + name for name in state if prefix + name not in found]
    fresh: dict[str, None] = {}  # ordered, each once
    for name in missing:
        head = next((title for start, title in HEADS.items() if name.startswith(start)), None)
        if head is None:
            raise SesameError(
                f"{read.path}: has no {_their_names(name)[0]}, so it is no whole BERT encoder"
            )
        fresh[head] = None
    for name, tensor in found.items():
        expected = state[name.removeprefix(prefix)].shape
        if tensor.shape != expected:
            raise SesameError(
                f"{read.path}: {_their_names(name)[0]} makes {list(tensor.shape)}, but the "
                f"folder's config.json asks for {list(expected)}"
            )
    model.load_state_dict(
        {name.removeprefix(prefix): tensor for name, tensor in found.items()}, strict=False
    )
    return list(fresh)


def _read(folder: Path) -> _Folder:
    stated = read_stated(folder)
    weights_path, weights = _read_weights(folder)
    words = weights.get("bert.embeddings.word_embeddings.weight")
    vocab_size = stated.vocab_size
    if vocab_size is None:
        vocab_size = 0 if words is None else len(words)
    return _Folder(stated.config, vocab_size, weights, weights_path)


def _read_weights(folder: Path) -> tuple[Path, State]:
    """The tensors of a folder under the names BertForPreTraining gives them."""
    path = folder / "model.safetensors"
    try:
        if path.exists():
            weights = load_file(path)
        else:
            path = folder / "pytorch_model.bin"
            weights = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UsageError(f"{folder}: has neither model.safetensors nor {path.name}") from error
    except (SafetensorError, UnpicklingError, RuntimeError, OSError, ValueError) as error:
        raise SesameError(f"{path}: damaged or not a file of weights; fetch it again") from error
    return path, {_modern_name(name): tensor for name, tensor in weights.items()}


def _modern_name(name: str) -> str:
    """Undo what older files and bare encoders call their tensors."""
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )
