"""Converts weights to and from transformers' encoders, and reads Hugging Face folders.

Tensors correspond one to one, with two exceptions: our query, key and value are one matrix, and
architectures without pairs have no pooler and pair head.

D width of a head
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from data_prep.errors import SesameError, UsageError
from pipeline.models.bert.architectures import ROFORMER, Architecture, read_stated
from pipeline.models.bert.config import BertConfig
from pipeline.models.bert.network import BertForPretraining
from pipeline.models.positions import sinusoids
from pipeline.models.untrusted import (
    State,
    read_safetensors,
    refuse_unusable,
    refused_weights,
)

# Parts that a folder may lack, by the beginning of their tensors' names.
HEADS = {"bert.pooler": "pooler", "masked": "masked-LM head", "pair": "pair head"}
QKV = ".attention.qkv."


def to_huggingface(state: State, architecture: Architecture, config: BertConfig) -> State:
    """Rename and convert the tensors of BertForPretraining for a model of transformers."""
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
    """Convert transformers' tensors to ours; return those of `wanted` that are complete."""
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
    """Reorder rows of queries and keys so that each rotary pair (i, i + D/2) becomes adjacent."""
    turned, value = _turned(qkv)
    halves = turned.reshape(2 * heads, 2, -1, *turned.shape[1:])
    return torch.cat([halves.transpose(1, 2).flatten(0, 2), value])


def _separate(qkv: Tensor, heads: int) -> Tensor:
    """The inverse of `_interleave`."""
    turned, value = _turned(qkv)
    pairs = turned.reshape(2 * heads, -1, 2, *turned.shape[1:])
    return torch.cat([pairs.transpose(1, 2).flatten(0, 2), value])


def _turned(qkv: Tensor) -> tuple[Tensor, Tensor]:
    """Split qkv into queries and keys, which rotary positions rotate, and values."""
    third = len(qkv) // 3
    return qkv[: 2 * third], qkv[2 * third :]


def _sines_beside_cosines(config: BertConfig) -> Tensor:
    """Return RoFormer's position table, which is one of its weights: sines, then cosines."""
    table = sinusoids(config.max_positions, config.hidden // config.heads)
    return torch.cat([table[:, 0::2], table[:, 1::2]], 1)


@dataclass(frozen=True)
class _Folder:
    architecture: Architecture
    config: BertConfig
    vocab_size: int
    weights: State
    path: Path


def load_for_pretraining(folder: Path) -> tuple[BertForPretraining, list[str]]:
    """Read encoder and heads of a Hugging Face folder.

    Also returns the names of the parts that the folder lacks; they keep random weights. Raises
    `SesameError` if a tensor of the encoder is missing or unusable. Memory for the network is
    allocated only after all shapes are known to be those of the file.
    """
    read = _read(folder)
    if read.config.layers > len(read.weights):
        raise SesameError(
            f"{read.path}: has {len(read.weights)} tensors, but the folder's config.json asks for "
            f"{read.config.layers} layers"
        )
    with torch.device("meta"):
        wanted = BertForPretraining(read.config, read.vocab_size).state_dict()
    found, missing = _find(read, {name: tensor.shape for name, tensor in wanted.items()})
    model = BertForPretraining(read.config, read.vocab_size)
    model.load_state_dict(found, strict=False)
    return model, missing


def _find(read: _Folder, shapes: dict[str, torch.Size]) -> tuple[State, list[str]]:
    """Return the folder's tensors by our names, and the names of missing heads."""
    names = [theirs for ours in shapes for theirs in read.architecture.names(ours)]
    for name in names:
        if name in read.weights:
            refuse_unusable(read.path, name, read.weights[name])
    try:
        found = from_huggingface(read.weights, list(shapes), read.architecture, read.config)
    except RuntimeError as error:
        raise SesameError(f"{read.path}: its tensors do not fit together") from error
    missing: dict[str, None] = {}  # an ordered set
    for name in shapes:
        if name in found:
            continue
        head = next((title for start, title in HEADS.items() if name.startswith(start)), None)
        if head is None:
            raise SesameError(
                f"{read.path}: has no {read.architecture.names(name)[0]}, so it is no complete "
                f"{read.architecture.title} encoder"
            )
        missing[head] = None
    for name, tensor in found.items():
        if tensor.shape != shapes[name]:
            raise SesameError(
                f"{read.path}: {read.architecture.names(name)[0]} makes {list(tensor.shape)}, but "
                f"the folder's config.json asks for {list(shapes[name])}"
            )
    return found, list(missing)


def _read(folder: Path) -> _Folder:
    stated = read_stated(folder)
    architecture = stated.architecture
    path = folder / "model.safetensors"
    pickled = folder / "pytorch_model.bin"
    if not path.exists() and pickled.exists():
        raise refused_weights(pickled)
    if not path.exists():
        raise UsageError(f"{folder}: has no model.safetensors")
    tensors = read_safetensors(path)
    weights = {_full_name(name, architecture): tensor for name, tensor in tensors.items()}
    words = weights.get(architecture.names("bert.embeddings.tokens.weight")[0])
    vocab_size = stated.vocab_size
    if vocab_size is None:
        vocab_size = len(words) if words is not None and words.ndim else 1
    return _Folder(architecture, stated.config, vocab_size, weights, path)


def _full_name(name: str, architecture: Architecture) -> str:
    """Convert tensor names of bare encoders and of old files to the current full names."""
    if name.startswith(architecture.bare):
        name = f"{architecture.encoder}.{name}"
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )
