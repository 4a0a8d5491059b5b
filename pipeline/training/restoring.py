"""Reads the tensors of a checkpoint, whole or in slices; `checkpoint` describes the files."""

from math import prod
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from data_prep.errors import SesameError

CARRIED_STREAMS = 2  # index of the stream dimension in [layer, direction, stream, width]


def weight_files(checkpoint: Path) -> list[Path]:
    """Return the files with weights: one per rank that wrote some.

    Earlier versions of Sesame wrote a single `weights.safetensors`.
    """
    return sorted(checkpoint.glob("weights*.safetensors"))


class SavedParameters:
    """Weights and moments of a checkpoint. Every call reads only what it returns.

    Raises `SesameError` if names or shapes of the weights differ from `shapes`.
    """

    def __init__(self, checkpoint: Path, shapes: dict[str, torch.Size]) -> None:
        self._files: dict[str, Path] = {}  # by key: <name>, or <moment>/<name>
        self._moments: dict[str, list[str]] = {name: [] for name in shapes}
        found: dict[str, torch.Size] = {}
        for path in weight_files(checkpoint):
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118 not a dict
                    found[name] = torch.Size(file.get_slice(name).get_shape())
                    self._files[name] = path
        _check(checkpoint, found, shapes)
        for path in sorted(checkpoint.glob("moments-*.safetensors")):
            with safe_open(path, "pt") as file:
                for key in sorted(file.keys()):
                    moment, _, name = key.partition("/")
                    self._moments[name].append(moment)
                    self._files[key] = path

    def moments(self, name: str) -> list[str]:
        """Return the names of the moments that are saved for a parameter."""
        return self._moments[name]

    def whole(self, key: str) -> Tensor:
        """Return one tensor: `<name>` is a weight, `<moment>/<name>` a moment."""
        with safe_open(self._files[key], "pt") as file:
            whole: Tensor = file.get_tensor(key)
        return whole

    def flat(self, key: str, start: int, length: int) -> Tensor:
        """Return `length` elements of the flattened tensor from `start` on; zeros past its end."""
        padded = torch.zeros(length)
        with safe_open(self._files[key], "pt") as file:
            saved = file.get_slice(key)
            rows, *rest = saved.get_shape()
            width = prod(rest)
            stop = min(start + length, rows * width)
            if start < stop:
                first = start // width
                read = saved[first : -(-stop // width)].flatten()
                padded[: stop - start] = read[start - first * width : stop - first * width]
        return padded


def _check(checkpoint: Path, found: dict[str, torch.Size], expected: dict[str, torch.Size]) -> None:
    if found.keys() != expected.keys():
        odd = sorted(found.keys() ^ expected.keys())[0]
        raise SesameError(f"{checkpoint}: its weights do not fit the model at parameter {odd}")
    for name, shape in expected.items():
        if found[name] != shape:
            raise SesameError(
                f"{checkpoint}: {name} has shape {list(found[name])}, the model's has {list(shape)}"
            )


def read_carried(checkpoint: Path, rank: int, ranks: int) -> Tensor | None:
    """Return the carried state of this rank's streams, [layer, direction, stream, width].

    None for an objective without carried state.
    """
    files = sorted(checkpoint.glob("carried-*.safetensors"))
    if not files:
        return None
    with safe_open(files[0], "pt") as file:
        per_file = file.get_slice("state").get_shape()[CARRIED_STREAMS]
    share = per_file * len(files) // ranks
    first, last = rank * share, (rank + 1) * share
    parts = []
    for number in range(first // per_file, -(-last // per_file)):
        low, high = (min(max(place - number * per_file, 0), per_file) for place in (first, last))
        with safe_open(files[number], "pt") as file:
            parts.append(file.get_slice("state")[:, :, low:high])
    return torch.cat(parts, CARRIED_STREAMS)
