"""Weights to and from transformers' encoders, and reading the folders that hold them.

Every tensor of ours is one of theirs, except that query, key and value lie in one matrix here, and
that architectures without pairs have no place for our pooler and pair head.

D width of a head
"""

from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from data_prep.errors import SesameError, UsageError
from pipeline.models.architectures import ROFORMER, Architecture, read_stated
from pipeline.models.bert import Bert, BertForPretraining
from pipeline.models.config import BertConfig
from pipeline.models.positions import sinusoids

State = dict[str, Tensor]

HEADS = {"bert.pooler": "pooler", "masked": "masked-LM head", "pair": "pair head"}
QKV = ".attention.qkv."


def to_huggingface(state: State, architecture: Architecture, config: BertConfig) -> State:
    """Tensors of BertForPretraining under the names of one of transformers' models."""
    theirs: State = {}
    for ours, tensor in state.items():
        names = architecture.names(ours)
        if not names:
            continue
        if architecture.is_interleaved and QKV in ours:
            tensor = _interleave(tensor, config.heads)
        parts = tensor.chunk(len(names))
        theirs |= {name: part.contiguous() for name, part in zip(names, parts, strict=True)}
    if "cls.predictions.bias" in theirs:
        theirs["cls.predictions.decoder.bias"] = theirs["cls.predictions.bias"].clone()
    if architecture is ROFORMER:
        theirs["roformer.encoder.embed_positions.weight"] = _sines_beside_cosines(config)
    return theirs


def from_huggingface(
    theirs: State, wanted: list[str], architecture: Architecture, config: BertConfig
) -> State:
    """Those of our `wanted` tensors whose counterparts are all there."""
    found = {}
    for ours in wanted:
        names = architecture.names(ours)
        if names and all(name in theirs for name in names):
            tensor = torch.cat([theirs[name] for name in names]).float()
            if architecture.is_interleaved and QKV in ours:
                tensor = _separate(tensor, config.heads)
            found[ours] = tensor
    return found


def _interleave(qkv: Tensor, heads: int) -> Tensor:
    """Rows of queries and keys so that those turned together, i and i + D/2, are neighbours."""
    turned, value = _turned(qkv)
    halves = turned.reshape(2 * heads, 2, -1, *turned.shape[1:])
    return torch.cat([halves.transpose(1, 2).flatten(0, 2), value])


def _separate(qkv: Tensor, heads: int) -> Tensor:
    """The inverse of `_interleave`."""
    turned, value = _turned(qkv)
    pairs = turned.reshape(2 * heads, -1, 2, *turned.shape[1:])
    return torch.cat([pairs.transpose(1, 2).flatten(0, 2), value])


def _turned(qkv: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys, which rotary positions turn, and values, which they do not."""
    third = len(qkv) // 3
    return qkv[: 2 * third], qkv[2 * third :]


def _sines_beside_cosines(config: BertConfig) -> Tensor:
    """RoFormer keeps its table of angles among its weights: sines first, then cosines."""
    table = sinusoids(config.max_positions, config.hidden // config.heads)
    return torch.cat([table[:, 0::2], table[:, 1::2]], 1)


@dataclass(frozen=True)
class _Folder:
    architecture: Architecture
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
    wanted = [prefix + name for name in state]
    found = from_huggingface(read.weights, wanted, read.architecture, read.config)
    fresh: dict[str, None] = {}  # ordered, each once
    for name in wanted:
        if name in found:
            continue
        head = next((title for start, title in HEADS.items() if name.startswith(start)), None)
        if head is None:
            raise SesameError(
                f"{read.path}: has no {read.architecture.names(name)[0]}, so it is no whole "
                f"{read.architecture.title} encoder"
            )
        fresh[head] = None
    for name, tensor in found.items():
        expected = state[name.removeprefix(prefix)].shape
        if tensor.shape != expected:
            raise SesameError(
                f"{read.path}: {read.architecture.names(name)[0]} makes {list(tensor.shape)}, but "
                f"the folder's config.json asks for {list(expected)}"
            )
    model.load_state_dict(
        {name.removeprefix(prefix): tensor for name, tensor in found.items()}, strict=False
    )
    return list(fresh)


def _read(folder: Path) -> _Folder:
    stated = read_stated(folder)
    architecture = stated.architecture
    path, tensors = _read_weights(folder)
    weights = {_full_name(name, architecture): tensor for name, tensor in tensors.items()}
    words = weights.get(architecture.names("bert.embeddings.tokens.weight")[0])
    vocab_size = stated.vocab_size
    if vocab_size is None:
        vocab_size = 0 if words is None else len(words)
    return _Folder(architecture, stated.config, vocab_size, weights, path)


def _read_weights(folder: Path) -> tuple[Path, State]:
    path = folder / "model.safetensors"
    try:
        if path.exists():
            return path, load_file(path)
        path = folder / "pytorch_model.bin"
        return path, torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UsageError(f"{folder}: has neither model.safetensors nor {path.name}") from error
    except (SafetensorError, UnpicklingError, RuntimeError, OSError, ValueError) as error:
        raise SesameError(f"{path}: damaged or not a file of weights; fetch it again") from error


def _full_name(name: str, architecture: Architecture) -> str:
    """Undo what older files and bare encoders call their tensors."""
    if name.startswith(architecture.bare):
        name = f"{architecture.encoder}.{name}"
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )
