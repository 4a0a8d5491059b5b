"""The members of example tars: one `.npy` array each, with headers that are written here."""

import re

import numpy as np

from data_prep.corpus.shard_format import tar_header
from data_prep.examples.columns import Array

BLOCK = 512  # tar's unit
# Every member starts with a 128-byte header of .npy version 1.0: magic, length 118 ("v"), a dict.
NPY_BYTES = 128
NPY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00v\x00\{'descr': '([<|][iu]\d)', 'fortran_order': False, "
    rb"'shape': \((\d+),(?: (\d+))?\), \} *\n"
)


def tar_member(name: str, array: Array) -> bytes:
    """Return one tar member: header, `.npy` bytes, padding.

    The header is written here, so that the bytes do not depend on the version of numpy.
    """
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    header = b"\x93NUMPY\x01\x00v\x00" + text.encode().ljust(NPY_BYTES - 11) + b"\n"
    assert NPY_HEADER.fullmatch(header), text
    content = header + np.ascontiguousarray(array).tobytes()
    return tar_header(name, len(content)) + content + bytes(-len(content) % BLOCK)
