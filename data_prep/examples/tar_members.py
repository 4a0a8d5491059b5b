"""The members of example tars: one `.npy` array each, with headers that are written here."""

import re
import tarfile

import numpy as np

from data_prep.examples.columns import Array

BLOCK = 512  # tar's unit
# Every member starts with a 128-byte header of .npy version 1.0: magic, length 118 ("v"), a dict.
NPY_BYTES = 128
NPY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00v\x00\{'descr': '([<|][iu]\d)', 'fortran_order': False, "
    rb"'shape': \((\d+),(?: (\d+))?\), \} *\n"
)
TAR_HEADER = tarfile.TarInfo("").tobuf(tarfile.USTAR_FORMAT)  # name at 0, size at 124, sum at 148


def tar_member(name: str, array: Array) -> bytes:
    """Return one tar member: header, `.npy` bytes, padding.

    The header is written here, so that the bytes do not depend on the version of numpy.
    """
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    header = b"\x93NUMPY\x01\x00v\x00" + text.encode().ljust(NPY_BYTES - 11) + b"\n"
    assert NPY_HEADER.fullmatch(header), text
    content = header + np.ascontiguousarray(array).tobytes()
    return tar_header(name, len(content)) + content + bytes(-len(content) % BLOCK)


def tar_header(name: str, size: int) -> bytes:
    """Return the header of a tar member, as `tarfile` makes it but at a fifth of the cost.

    The name has at most 100 bytes. The mode is 0644, owner and time are 0.
    """
    start = name.encode().ljust(100, b"\0") + TAR_HEADER[100:124] + b"%011o\0" % size
    end = TAR_HEADER[156:]
    checksum = sum(start) + sum(TAR_HEADER[136:148]) + 8 * ord(" ") + sum(end)
    return start + TAR_HEADER[136:148] + b"%06o\0 " % checksum + end
