"""Files of other people: sizes are checked before memory is allocated, nothing is executed."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from data_prep.errors import SesameError
from data_prep.reading.untrusted import open_array, read_bytes, read_object


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": NaN}', "a number that cannot be read"),
        (b'{"a": -Infinity}', "a number that cannot be read"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a number that cannot be read"),
        (b'{"a": 1\n"b": 2}', "line 2: not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    ],
)
def test_settings_that_cannot_be_read_are_told_in_a_sentence(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(SesameError, match=message) as caught:
        read_object(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_is_measured_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as stream:
        os.truncate(stream.fileno(), 1 << 40)  # a sparse terabyte
    with pytest.raises(SesameError, match=r"has 1,099,511,627,776 bytes; .* may have 16,777,216"):
        read_object(path)


def test_what_is_no_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    os.symlink("/dev/zero", tmp_path / "weights.npy")
    with pytest.raises(SesameError, match=r"config\.json: not a regular file"):
        read_object(tmp_path / "config.json")
    with pytest.raises(SesameError, match=r"weights\.npy: not a regular file"):
        open_array(tmp_path / "weights.npy", "f", 2)
    with pytest.raises(SesameError, match=r"missing: cannot be read \(No such file"):
        read_bytes(tmp_path / "missing", 10)


def npy(shape: str, descr: str = "<f4", data: bytes = b"\0" * 24) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode()
    header = header.ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy("(1000000000, 300)"), "damaged"),
        (npy("(4294967296, 4294967296)"), "damaged"),
        (npy("(-1, 3)"), "damaged"),
        (npy("(2, 3)", "<c8", b"\0" * 48), r"holds complex64 \[2, 3\]; needed are floating-point"),
        (npy("(2, 3)", "<i4"), r"holds int32 \[2, 3\]"),
        (npy("(6,)"), r"holds float32 \[6\]; .* in 2 dimensions"),
        (npy("(2, 3)", "|O"), r"refused because reading a pickle could run code; save a plain"),
        (pickle.dumps([1, 2]), "refused because reading a pickle could run code"),
        (b"", "damaged"),
        (b"\x93NUMPY\x01\x00\xff\xff", "damaged"),
    ],
)
def test_arrays_must_be_what_their_header_says(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "matrix.npy"
    path.write_bytes(content)
    with pytest.raises(SesameError, match=message):
        open_array(path, "f", dimensions=2)


def test_an_array_is_read_as_it_was_written(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    np.save(tmp_path / "matrix.npy", array)
    assert np.array_equal(open_array(tmp_path / "matrix.npy", "f", dimensions=2), array)
    (tmp_path / "settings.json").write_text(json.dumps({"a": [1.5, "x", None]}))
    assert read_object(tmp_path / "settings.json") == {"a": [1.5, "x", None]}
