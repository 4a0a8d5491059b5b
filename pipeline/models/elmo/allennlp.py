"""Converts ELMo's encoder to and from the files of bilm-tf and AllenNLP: options and HDF5 weights.

Reads options.json and weights.hdf5 of a folder, also under the longer names of published pairs
(elmo_2x4096_..._options.json); writes the short names. The files follow TensorFlow's conventions:
    matrices      [inputs, outputs], transposed relative to torch
    LSTMs         one matrix W_0 for [input; recurrent]; gates in the order i, g, f, o; the bias of
                  the forget gate lacks the 1 that TensorFlow's cell adds
    highways      W_carry gates the transformed part, g relu(T x) + (1 - g) x, as ours does
    char_embed    has no row for AllenNLP's mask 0
The format does not include the softmax over words.
Try it: sesame embed encoder=<folder> input=sentences.txt
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from data_prep.errors import SesameError, UsageError
from data_prep.files import atomic_write, write_atomically
from data_prep.reading.untrusted import file_size
from data_prep.tokenizers.characters import ALPHABET
from pipeline.models.elmo.allennlp_options import (
    OPTIONS,
    WEIGHTS,
    find_pair,
    options_of,
    read_options,
)
from pipeline.models.elmo.config import ElmoConfig
from pipeline.models.elmo.network import DIRECTIONS, Elmo
from pipeline.models.untrusted import Hdf5Weights, State, read_safetensors, refuse_unusable

Array = NDArray[np.float32]


def write_allennlp(folder: Path, elmo: Elmo) -> None:
    """Write options.json and weights.hdf5 of an encoder into `folder`."""
    with atomic_write(folder / WEIGHTS) as stream, h5py.File(stream.name, "w") as file:
        for name, array in _members(elmo):
            file.create_dataset(name, data=array)
    write_atomically(folder / OPTIONS, json.dumps(options_of(elmo.config), indent=1) + "\n")


def load_allennlp(folder: Path) -> Elmo:
    """Read the encoder of a folder.

    Raises `UsageError` if the folder has no pair, `SesameError` if a file is damaged.
    """
    pair = find_pair(folder)
    if pair is None:
        raise UsageError(f"{folder}: has no pair of {OPTIONS} and {WEIGHTS}")
    config = read_options(pair[0])
    file_size(pair[1])
    try:
        with h5py.File(pair[1], "r") as file:
            # Before the network is built: only now it is known that the file has all of it.
            state = dict(_read_members(Hdf5Weights(pair[1], file).read, config))
    except SesameError:
        raise
    except Exception as error:  # h5py has no class of its own for damage
        raise SesameError(f"{pair[1]}: damaged or not an HDF5 file; fetch it again") from error
    elmo = Elmo(config)
    elmo.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    return elmo


def read_softmax(path: Path, config: ElmoConfig) -> State:
    """Read the softmax over words that an export wrote beside the pair: `weight` and `bias`."""
    softmax = read_safetensors(path)
    weight, bias = softmax.get("weight"), softmax.get("bias")
    if (
        weight is None
        or bias is None
        or bias.ndim != 1
        or weight.shape != (len(bias), config.projection)
    ):
        raise SesameError(
            f"{path}: not a weight [words, {config.projection}] and a bias [words]; fetch it again"
        )
    for name, tensor in softmax.items():
        refuse_unusable(path, name, tensor)
    return {"weight": weight.float(), "bias": bias.float()}


def _members(elmo: Elmo) -> Iterator[tuple[str, Array]]:
    """Yield (name, array) of every dataset in weights.hdf5."""
    state = {name: part.numpy(force=True) for name, part in elmo.float().state_dict().items()}
    config, projection = elmo.config, "characters.projection"
    yield "char_embed", state["characters.embedding.weight"][1:]
    for number in range(len(config.filters)):
        name = f"characters.convolutions.{number}"
        yield f"CNN/W_cnn_{number}", state[f"{name}.weight"].transpose(2, 1, 0)[None]
        yield f"CNN/b_cnn_{number}", state[f"{name}.bias"]
    for ours, weight, bias in _highways(config):
        yield weight, state[f"{ours}.weight"].T
        yield bias, state[f"{ours}.bias"]
    yield "CNN_proj/W_proj", state[f"{projection}.weight"].T
    yield "CNN_proj/b_proj", state[f"{projection}.bias"]
    for ours, cell in _layers(config):
        joint = np.concatenate([state[f"{ours}.input"], state[f"{ours}.recurrent"]], 1)
        added = _swapped(state[f"{ours}.bias"])
        added[2 * config.cell : 3 * config.cell] -= 1
        yield f"{cell}/W_0", _swapped(joint).T
        yield f"{cell}/B", added
        yield f"{cell}/W_P_0", state[f"{ours}.projection"].T


def _read_members(read: Callable[..., Array], config: ElmoConfig) -> Iterator[tuple[str, Array]]:
    """Yield (name, array) of every tensor of `Elmo`, converted from the datasets."""
    width = sum(count for _, count in config.filters)
    characters, projected, cells = config.character_dim, config.projection, config.cell
    embedding = read("char_embed", ALPHABET - 1, characters)
    yield "characters.embedding.weight", np.pad(embedding, ((1, 0), (0, 0)))
    for number, (size, count) in enumerate(config.filters):
        name = f"characters.convolutions.{number}"
        kernel = read(f"CNN/W_cnn_{number}", 1, size, characters, count)
        yield f"{name}.weight", kernel[0].transpose(2, 1, 0)
        yield f"{name}.bias", read(f"CNN/b_cnn_{number}", count)
    for ours, weight, bias in _highways(config):
        yield f"{ours}.weight", read(weight, width, width).T
        yield f"{ours}.bias", read(bias, width)
    yield "characters.projection.weight", read("CNN_proj/W_proj", width, projected).T
    yield "characters.projection.bias", read("CNN_proj/b_proj", projected)
    for ours, cell in _layers(config):
        joint = _swapped(read(f"{cell}/W_0", 2 * projected, 4 * cells).T)
        yield f"{ours}.input", joint[:, :projected]
        yield f"{ours}.recurrent", joint[:, projected:]
        added = _swapped(read(f"{cell}/B", 4 * cells))
        added[cells : 2 * cells] += 1
        yield f"{ours}.bias", added
        yield f"{ours}.projection", read(f"{cell}/W_P_0", cells, projected).T


def _highways(config: ElmoConfig) -> Iterator[tuple[str, str, str]]:
    """Yield our highway layers with the dataset names of their weight and bias."""
    for number in range(config.highways):
        for ours, theirs in (("transform", "transform"), ("gate", "carry")):
            group = f"CNN_high_{number}"
            yield (
                f"characters.highways.{number}.{ours}",
                f"{group}/W_{theirs}",
                f"{group}/b_{theirs}",
            )


def _layers(config: ElmoConfig) -> Iterator[tuple[str, str]]:
    """Yield our LSTM layers with the names of their HDF5 groups."""
    for direction in range(DIRECTIONS):
        for layer in range(config.layers):
            group = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            yield f"directions.{direction}.layers.{layer}", group


def _swapped(gates: Array) -> Array:
    """Reorder gates from i, f, g, o to i, g, f, o, or back."""
    i, second, third, o = np.split(gates, 4)
    return np.concatenate([i, third, second, o])
