"""Let one write to a folder fail, wherever it comes from: Python, numpy, HDF5 or safetensors.

The C library of faults.c stands before libc's calls. It is compiled on first use and needs gcc.
"""

import ctypes
import errno
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

LIBRARY = Path(tempfile.gettempdir()) / f"sesame-soak-faults-{os.getuid()}.so"
SHORT_WRITE = -1
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "ESTALE": errno.ESTALE}
WRITES = ("write", "pwrite", "writev", "fwrite")  # calls that can be short
NOTHING = -1  # no call has this number


@dataclass(frozen=True)
class Site:
    """A place where a stage changes a file: the call, and the path without numbers and hashes."""

    call: str
    path: str


def preload() -> None:
    """Start this program again with the library before libc, unless it is there already."""
    if str(LIBRARY) in os.environ.get("LD_PRELOAD", ""):
        _library().faults_prepare()
        return
    source = Path(__file__).with_name("faults.c")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", LIBRARY, source, "-ldl"], check=True)
    os.environ["LD_PRELOAD"] = str(LIBRARY)
    os.execv(sys.executable, [sys.executable, "-m", "tests.soak.table", *sys.argv[1:]])


def arm(folder: Path, number: int = NOTHING, failure: int = 0, journal: int = -1) -> None:
    """Let call `number` below a folder fail; list all calls in the descriptor `journal`."""
    _library().faults_arm(str(folder).encode(), number, failure, journal)


def disarm() -> int:
    """Let all calls succeed; return how many there were."""
    return int(_library().faults_disarm())


def failures_of(site: Site, turn: int) -> dict[str, int]:
    """Return the ways in which a site is to fail: all for a write, one by turns for other calls."""
    if site.call in WRITES:
        return ERRORS | {"short write": SHORT_WRITE}
    name = list(ERRORS)[turn % len(ERRORS)]
    return {name: ERRORS[name]}


def read_sites(journal: Path, folder: Path) -> dict[Site, int]:
    """Return the first call of every site."""
    found: dict[Site, int] = {}
    for line in journal.read_text().splitlines():
        number, call, path = line.split("\t")
        inside = path.removeprefix(f"{folder}/")
        found.setdefault(Site(call, plain_name(inside)), int(number))
    return found


def plain_name(path: str) -> str:
    """Return a path without numbers and hashes: files of one kind have the same."""
    without_hashes = re.sub(r"[0-9a-f]{8,}|(?<=\.tmp)\w{6}$", "#", path)
    return re.sub(r"\d+", "0", without_hashes)


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(LIBRARY))
