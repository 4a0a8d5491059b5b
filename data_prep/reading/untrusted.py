"""Read files that other people wrote: models, word vectors and tokenizers.

Every size that a file states is compared with the file's length before memory is allocated, and
nothing in a file is executed. A file that does not pass raises SesameError with its path.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from data_prep.errors import SesameError

SETTINGS_BYTES = 16 << 20  # config.json and the like; published ones have at most 200 KB
VOCABULARY_BYTES = 256 << 20  # tokenizer.json, vocab.txt, .model; published ones reach 35 MB
# The first bytes of a pickle, and of the zip file that torch.save writes around one.
PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")
KINDS = {"f": "floating-point numbers", "i": "whole numbers"}


def file_size(path: Path) -> int:
    """Return the size of a regular file. A FIFO, socket or device is refused: it may never end."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise SesameError(f"{path}: not a regular file; replace it by one")
    return status.st_size


def read_bytes(path: Path, most: int) -> bytes:
    """Read a whole file of at most `most` bytes."""
    size = file_size(path)
    if size > most:
        raise SesameError(f"{path}: has {size:,} bytes; files of this kind may have {most:,}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def read_text(path: Path, most: int) -> str:
    """Read a whole UTF-8 file of at most `most` bytes."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise SesameError(f"{path}: not UTF-8 at byte {error.start}") from error


def read_object(path: Path, most: int = SETTINGS_BYTES) -> dict[str, Any]:
    """Read a JSON object from a file of at most `most` bytes; all its numbers are finite."""
    try:
        value = json.loads(read_text(path, most), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise SesameError(f"{path}, line {error.lineno}: not JSON") from error
    except RecursionError as error:
        raise SesameError(f"{path}: its JSON is nested too deeply") from error
    except ValueError as error:  # NaN, Infinity, or thousands of digits
        raise SesameError(f"{path}: holds a number that cannot be read") from error
    if not isinstance(value, dict):
        raise SesameError(f"{path}: must be a JSON object")
    return value


def open_array(path: Path, kind: str, dimensions: int) -> NDArray[Any]:
    """Map the array of an .npy file into memory, without reading it.

    kind: one of KINDS. Raises SesameError if the file is shorter than its header says.
    """
    file_size(path)
    try:
        with np.errstate(over="raise"):  # a shape whose product does not fit in 64 bits
            array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # the parser of headers raises nearly anything
        if "objects" in str(error) or is_pickle(path):
            raise refused_pickle(path, "save a plain array with numpy.save") from error
        raise SesameError(f"{path}: damaged, or not an .npy file; download it again") from error
    if array.dtype.kind != kind or array.ndim != dimensions:
        raise SesameError(
            f"{path}: holds {array.dtype} {list(array.shape)}; needed are {KINDS[kind]} in "
            f"{dimensions} dimensions"
        )
    return array


def is_pickle(path: Path) -> bool:
    """Return True if a file begins as a pickle or as a file of torch.save does."""
    with open(path, "rb") as stream:
        return stream.read(4).startswith(PICKLES)


def refused_pickle(path: Path, remedy: str) -> SesameError:
    """Return the error for a file of pickled objects."""
    return SesameError(f"{path}: refused because reading a pickle could run code; {remedy}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are not JSON


def _unreadable(path: Path, error: OSError) -> SesameError:
    return SesameError(f"{path}: cannot be read ({error.strerror})")
