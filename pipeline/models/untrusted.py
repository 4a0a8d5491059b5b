"""Read weights that other people wrote: safetensors and HDF5, never pickles.

Shapes and stored sizes are compared with what is wanted before memory is allocated. All numbers
must be finite.
"""

from pathlib import Path

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from data_prep.errors import SesameError
from data_prep.reading.untrusted import file_size, is_pickle, refused_pickle

State = dict[str, Tensor]
# Copies, since a file of torch.save may hold one tensor under two names and safetensors may not.
CONVERSION = (
    'convert it in its folder: python -c "import torch, safetensors.torch as s; '
    "s.save_file({{k: v.clone() for k, v in torch.load('{name}', weights_only=True).items()}}, "
    "'model.safetensors')\""
)


def read_safetensors(path: Path) -> State:
    """Return the tensors of a file; memory is bounded by its size."""
    file_size(path)
    if is_pickle(path):
        raise refused_weights(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise SesameError(f"{path}: damaged or not a file of weights; fetch it again") from error


def refused_weights(path: Path) -> SesameError:
    """Return the error for pickled weights, with the command that converts them."""
    return refused_pickle(path, CONVERSION.format(name=path.name))


def refuse_unusable(path: Path, name: str, tensor: Tensor) -> None:
    """Raise SesameError if a tensor holds whole or complex numbers, or one that is not finite."""
    if not tensor.is_floating_point():
        raise SesameError(
            f"{path}: {name} holds {tensor.dtype}; weights are floating-point numbers"
        )
    if not torch.isfinite(tensor.float()).all():
        raise SesameError(f"{path}: {name} holds a number that is not finite")


class Hdf5Weights:
    """The datasets of an HDF5 file that lie in the file itself, as they are.

    HDF5 can name other files (external links and storage, virtual datasets) and expand without
    bound (filters, storage that was never written); all of this is refused.
    """

    def __init__(self, path: Path, file: h5py.File) -> None:
        self._path = path
        self._file = file

    def read(self, name: str, *shape: int) -> NDArray[np.float32]:
        """Read a dataset. Raises SesameError if it is missing or has another shape."""
        dataset = self._find(name)
        if dataset.shape != shape or dataset.dtype.kind != "f":
            raise SesameError(
                f"{self._path}: {name} is {dataset.dtype} {list(dataset.shape or ())}, but the "
                f"options ask for floats {list(shape)}"
            )
        how = dataset.id.get_create_plist()
        if how.get_external_count() or how.get_layout() == h5py.h5d.VIRTUAL:
            raise SesameError(f"{self._path}: {name} lies in another file, which is not opened")
        if how.get_nfilters() or dataset.id.get_storage_size() < dataset.nbytes:
            raise SesameError(
                f"{self._path}: {name} is compressed or incomplete; h5repack -f NONE <file> <new "
                "file> writes it without compression"
            )
        array: NDArray[np.float32] = dataset[...].astype(np.float32)
        if not np.isfinite(array).all():
            raise SesameError(f"{self._path}: {name} holds a number that is not finite")
        return array

    def _find(self, name: str) -> h5py.Dataset:
        found: h5py.Group | h5py.Dataset = self._file
        for part in name.split("/"):
            # Ask for the link itself: `in` and `get` would follow it, into another file too.
            links = found.id.links if isinstance(found, h5py.Group) else None
            if links is None or not links.exists(part.encode()):
                raise SesameError(f"{self._path}: has no {name}, so it is no complete ELMo")
            if links.get_info(part.encode()).type != h5py.h5l.TYPE_HARD:
                raise SesameError(f"{self._path}: {name} is a link, which is not followed")
            found = found[part]
        if not isinstance(found, h5py.Dataset):
            raise SesameError(f"{self._path}: has no {name}, so it is no complete ELMo")
        return found
