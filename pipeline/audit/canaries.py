"""Searches planted strings in the files of a run.

A canary is a string that was added to the corpus so that one can see where its text goes. It is
searched as text (also as JSON and HTML escape it) in every file, and as token ids in examples.
"""

import html
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.errors import UsageError
from data_prep.examples.chunks import ChunkStore
from data_prep.tokenizers import Tokenizer

BLOCK = 1 << 22  # bytes read at a time
SPLITS = ("train", "heldout")


@dataclass(frozen=True)
class Found:
    """How many files of an output hold a canary."""

    canary: int  # its line in the file of canaries, from 1 on
    output: str  # reference
    files: int


def read_canaries(path: Path) -> list[str]:
    """Read one canary per line. Raises `UsageError` for a missing file and short canaries."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"canaries={path}: cannot be read as UTF-8 text: {error}") from error
    canaries = [line.strip() for line in lines if line.strip()]
    short = next((n for n, line in enumerate(canaries, 1) if len(line) < 6), None)
    if short is not None or not canaries:
        raise UsageError(
            f"canaries={path}: needs one string per line, of at least 6 characters"
            + (f"; line {short} is shorter" if short else "")
        )
    return canaries


def search_text(folder: Path, canaries: list[str]) -> dict[int, int]:
    """Return, by canary number, the number of files below `folder` that hold it as text."""
    forms = [_forms(canary) for canary in canaries]
    counts: dict[int, int] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found = set()
        for block in _overlapping(path, max(map(len, (f for each in forms for f in each)))):
            lower = block.lower()
            found |= {n for n, each in enumerate(forms, 1) if any(f in lower for f in each)}
        for number in found:
            counts[number] = counts.get(number, 0) + 1
    return counts


def search_ids(examples: Path, canaries: list[str], tokenizer: Tokenizer) -> dict[int, int]:
    """Return, by canary number, the number of chunks that hold it as token ids."""
    encoded = tokenizer.encode(canaries)
    wanted = {n + 1: np.asarray(encoded[n]) for n in range(len(canaries)) if len(encoded[n])}
    counts: dict[int, int] = {}
    for split in SPLITS:
        store = ChunkStore(examples, split)
        for chunk in range(store.chunks):
            tokens = store.read(chunk).tokens
            for number, ids in wanted.items():
                if _holds(tokens, ids):
                    counts[number] = counts.get(number, 0) + 1
    return counts


def _forms(canary: str) -> set[bytes]:
    """Return the ways to write a canary; `search_text` lowers ASCII letters in the files too."""
    forms = set()
    for text in (canary, canary.lower()):
        forms |= {text, json.dumps(text)[1:-1], html.escape(text)}
    return {form.encode().lower() for form in forms}


def _overlapping(path: Path, longest: int) -> Iterator[bytes]:
    """Yield the blocks of a file, each with the end of the one before it."""
    tail = b""
    with open(path, "rb") as stream:
        while block := stream.read(BLOCK):
            yield tail + block
            tail = (tail + block)[-longest:]


def _holds(tokens: np.ndarray, ids: np.ndarray) -> bool:
    starts = np.flatnonzero(tokens[: max(len(tokens) - len(ids) + 1, 0)] == ids[0])
    for place, token in enumerate(ids[1:], 1):
        starts = starts[tokens[starts + place] == token]
    return bool(len(starts))


def as_found(reference: str, counts: dict[int, int]) -> Iterable[Found]:
    """Return the canaries found in one output, in order."""
    return [Found(number, reference, counts[number]) for number in sorted(counts)]
