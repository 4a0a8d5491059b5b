"""Reads the weights to export: one checkpoint's, or the mean of several."""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from pipeline.models.untrusted import State
from pipeline.training.restoring import weight_files


def read_weights(checkpoints: list[Path]) -> State:
    """Return the mean of the checkpoints' weights, in fp32; the weights themselves of a single one.

    Sums are in double precision, and one tensor of one checkpoint is read at a time.
    """
    if len(checkpoints) == 1:
        return {
            name: tensor
            for path in weight_files(checkpoints[0])
            for name, tensor in load_file(path).items()
        }
    totals: State = {}
    for path in (path for checkpoint in checkpoints for path in weight_files(checkpoint)):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 not a dict
                tensor = file.get_tensor(name).double()
                totals[name] = tensor if name not in totals else totals[name].add_(tensor)
    return {name: total.div_(len(checkpoints)).to(torch.float32) for name, total in totals.items()}
