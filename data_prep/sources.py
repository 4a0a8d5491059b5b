"""The user's files: which there are, and how they are cut into parts and pieces of work."""

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from data_prep.errors import UsageError

PIECE_BYTES = 16 << 20  # raw bytes one piece of work takes, where a file can be cut
# Dumps in several files are called …xml-p10p30302.bz2.
FORMAT = re.compile(
    r"\.(?:(txt|jsonl|csv|tsv|xml)(?:-p\d+p\d+[^.]*)?(\.(?:gz|bz2|xz|zst))?|(parquet))$",
    re.IGNORECASE,
)
ENDINGS = ".parquet; .txt, .jsonl, .csv, .tsv, .xml, each also with .gz, .bz2, .xz or .zst"


@dataclass(frozen=True)
class SourceFile:
    """A file of the corpus; `name` is its path below the root the user gave.

    Below a named source it is `<source>/<path>`, and `source` the source's number.
    """

    path: Path
    name: str
    source: int = 0

    @property
    def format(self) -> str:
        """One of txt, jsonl, csv, tsv, xml, parquet."""
        return _endings(self.path.name)[0]

    @property
    def compression(self) -> str:
        """The compressed ending with its dot, or nothing."""
        return _endings(self.path.name)[1]


@dataclass(frozen=True)
class Part:
    """The records of a file that start in [start, end) after both ends move to a record's start."""

    file: SourceFile
    start: int
    end: int


def _endings(name: str) -> tuple[str, str]:
    match = FORMAT.search(name)
    assert match, f"{name} was not checked by discover"
    return (match[1] or match[3]).lower(), (match[2] or "").lower()


def discover(paths: Any, sources: Mapping[str, Any] | None = None) -> list[SourceFile]:
    """The files that `corpus.paths` or `corpus.sources` means, by name; no name comes twice."""
    if not sources:
        return sorted(_find("corpus.paths", paths), key=lambda file: file.name)
    files: dict[str, SourceFile] = {}
    for number, name in enumerate(sorted(sources)):
        key = f"corpus.sources.{name}"
        for file in sorted(_find(key, sources[name]), key=lambda file: file.name):
            place = os.path.realpath(file.path)
            if place in files:
                raise UsageError(
                    f"{key}: {file.name} is {files[place].name} too; a file has one source"
                )
            files[place] = SourceFile(file.path, f"{name}/{file.name}", number)
    return list(files.values())


def _find(key: str, paths: Any) -> list[SourceFile]:
    given = [paths] if isinstance(paths, str | Path) else list(paths or [])
    if not given:
        raise UsageError(f"{key} is empty: name the files or folders with your text")
    found: dict[str, tuple[int, SourceFile]] = {}
    for number, item in enumerate(given):
        for file in _files_of(key, os.path.expanduser(str(item))):
            found.setdefault(os.path.realpath(file.path), (number, file))
    files = [file for _, file in found.values()]
    if len({file.name for file in files}) < len(files):  # two roots have a file of the same name
        files = [SourceFile(file.path, f"{number}/{file.name}") for number, file in found.values()]
    return files


def _files_of(key: str, item: str) -> list[SourceFile]:
    if os.path.isfile(item):
        if not FORMAT.search(item):
            raise UsageError(f"{key}={item}: cannot tell what this is; known: {ENDINGS}")
        return [SourceFile(Path(item), os.path.basename(item))]
    if os.path.isdir(item):
        files = list(_walk(item, Path(item)))
    elif glob.has_magic(item):
        files = _match(item)
    else:
        raise UsageError(f"{key}={item}: there is no such file or folder")
    if not files:
        raise UsageError(f"{key}={item}: nothing there to read; known: {ENDINGS}")
    return files


def _match(pattern: str) -> list[SourceFile]:
    parts = Path(pattern).parts
    fixed = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:fixed])
    files: list[SourceFile] = []
    for match in sorted(glob.glob(pattern, recursive=True)):
        if os.path.isdir(match):
            files.extend(_walk(match, root))
        elif FORMAT.search(match):
            files.append(SourceFile(Path(match), Path(match).relative_to(root).as_posix()))
    return files


def _walk(folder: str, root: Path) -> Iterator[SourceFile]:
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if os.path.realpath(place) in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(os.path.realpath(place))
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if FORMAT.search(name) and not name.startswith("."):
                path = Path(place, name)
                yield SourceFile(path, path.relative_to(root).as_posix())


def plan_pieces(
    files: Sequence[SourceFile], whole: Callable[[SourceFile], bool], piece_bytes: int
) -> list[list[Part]]:
    """Cut files into parts and group small ones, in order; `whole` files are never cut.

    The result follows from names and sizes alone, never from the number of workers. A file of a
    quarter piece or more shares with no other, and a piece of small ones also ends where a file's
    name says so: a new file changes the pieces around it and no others.
    """
    pieces: list[list[Part]] = []
    filled = piece_bytes
    for file in files:
        size = file.path.stat().st_size
        step = max(size, 1) if size <= piece_bytes or whole(file) else piece_bytes
        if 4 * size >= piece_bytes:
            filled = piece_bytes
        for start in range(0, size, step):
            part = Part(file, start, min(start + step, size))
            if filled + (part.end - part.start) > piece_bytes:
                pieces.append([])
                filled = 0
            pieces[-1].append(part)
            filled += part.end - part.start
        ends = 2 * filled >= piece_bytes and blake2b(file.name.encode()).digest()[0] < 256 // 8
        if ends or 4 * size >= piece_bytes:
            filled = piece_bytes
    return pieces
