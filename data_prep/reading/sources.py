"""Find the user's files and divide them into parts and work units."""

import glob
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from data_prep.errors import SesameError, UsageError
from data_prep.files import is_text

PIECE_BYTES = 16 << 20  # raw bytes per work unit, if a file can be split
# Wikipedia dumps in several files have names such as …xml-p10p30302.bz2.
FORMAT = re.compile(
    r"\.(?:(txt|jsonl|ndjson|csv|tsv|xml)(?:-p\d+p\d+[^.]*)?(\.(?:gz|bz2|xz|zst))?|(parquet))$",
    re.IGNORECASE,
)
ENDINGS = ".parquet; .txt, .jsonl, .ndjson, .csv, .tsv, .xml, each also with .gz, .bz2, .xz or .zst"
JSON_DOCUMENT = re.compile(r"\.json(\.(?:gz|bz2|xz|zst))?$", re.IGNORECASE)
# Reasons why a file in a corpus folder is not read. The manifest has a count per key.
UNREAD = {
    "unknown_ending": f"the ending is unknown; known: {ENDINGS}",
    "json_document": "a .json file may be one document; name it .jsonl if each line is an object",
    "hidden": "the name starts with a dot",
    "name_not_utf8": "the name is not valid UTF-8; rename it",
    "not_a_file": "a FIFO, socket or device is never opened",
}


@dataclass(frozen=True)
class FileState:
    """The size, time and inode of a file; any change of the file changes one of them."""

    size: int
    modified: int  # in nanoseconds
    inode: int

    @classmethod
    def of(cls, path: Path) -> "FileState | None":
        """Return the present state of a file, or None if it cannot be read."""
        try:
            status = path.stat()
        except OSError:
            return None
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(frozen=True)
class SourceFile:
    """A file of the corpus.

    `name` is its path below the root that the user gave, or `<source>/<path>` for a named source.
    `source` is the number of the source.
    """

    path: Path
    name: str
    source: int = 0
    state: FileState | None = field(default=None, compare=False)  # at the time of the survey

    def refuse_change(self) -> None:
        """Raise SesameError if the file has changed since the survey: text may be lost."""
        now = FileState.of(self.path)
        if self.state is None or now == self.state:
            return
        sizes = f" ({self.state.size:,} bytes, now {now.size:,})" if now else ""
        raise SesameError(
            f"{self.name} {'changed' if now else 'is gone'}{sizes} while the corpus was read; "
            "no output was made: do not change the files, and run the same command again"
        )

    @property
    def format(self) -> str:
        """The format: txt, jsonl (also .ndjson), csv, tsv, xml or parquet."""
        ending = _endings(self.path.name)[0]
        return "jsonl" if ending == "ndjson" else ending

    @property
    def compression(self) -> str:
        """The suffix of the compression with its dot, or an empty string."""
        return _endings(self.path.name)[1]


@dataclass(frozen=True)
class Part:
    """A part of a file: the records that start in bytes [start, end).

    Both bounds may lie inside a record. Readers move each to the start of the next record.
    """

    file: SourceFile
    start: int
    end: int


def _endings(name: str) -> tuple[str, str]:
    match = FORMAT.search(name)
    assert match, f"{name} was not checked by discover"
    return (match[1] or match[3]).lower(), (match[2] or "").lower()


@dataclass
class Survey:
    """The files below `corpus.paths` or `corpus.sources`: those to read, and the others."""

    files: list[SourceFile] = field(default_factory=list)  # sorted by name; names are unique
    unread: dict[str, str] = field(default_factory=dict)  # name to reason, a key of UNREAD

    def take(self, path: Path, root: Path) -> None:
        """Add a path below `root` to `files`, or to `unread` with the reason."""
        name = path.relative_to(root).as_posix()
        reason = _reason_not_to_read(path)
        if not is_text(name):  # it could be neither stored nor shown
            name, reason = name.encode(errors="backslashreplace").decode(), "name_not_utf8"
        if reason is None:
            self.files.append(SourceFile(path, name, state=FileState.of(path)))
        else:
            self.unread[name] = reason


def survey(paths: Any, sources: Mapping[str, Any] | None = None) -> Survey:
    """Find all files to read, and all files in the same folders and globs that are not read.

    paths, sources: `corpus.paths` and `corpus.sources`; sources, if given, take precedence.
    Raises UsageError if a path does not exist or has nothing to read, or a file has two sources.
    """
    if not sources:
        found = _find("corpus.paths", paths)
        return replace(found, files=sorted(found.files, key=lambda file: file.name))
    files: dict[str, SourceFile] = {}
    unread: dict[str, str] = {}
    for number, name in enumerate(sorted(sources)):
        key = f"corpus.sources.{name}"
        found = _find(key, sources[name])
        for file in sorted(found.files, key=lambda file: file.name):
            place = os.path.realpath(file.path)
            if place in files:
                raise UsageError(
                    f"{key}: {file.name} is also {files[place].name}; a file can have only one "
                    "source"
                )
            files[place] = replace(file, name=f"{name}/{file.name}", source=number)
        unread |= {f"{name}/{other}": reason for other, reason in found.unread.items()}
    return Survey(list(files.values()), unread)


def discover(paths: Any, sources: Mapping[str, Any] | None = None) -> list[SourceFile]:
    """Return the files to read, sorted by name; names are unique. See `survey`."""
    return survey(paths, sources).files


def describe_unread(unread: Mapping[str, str], most: int = 5) -> list[str]:
    """Return one sentence per reason: the number of unread files, the first names, the reason."""
    lines = []
    for reason, why in UNREAD.items():
        names = sorted(name for name, found in unread.items() if found == reason)
        if names:
            more = f" and {len(names) - most:,} more" if len(names) > most else ""
            files = "1 file is" if len(names) == 1 else f"{len(names):,} files are"
            lines.append(f"{files} not read: {', '.join(names[:most])}{more} ({why})")
    return lines


def _reason_not_to_read(path: Path) -> str | None:
    if path.name.startswith("."):
        return "hidden"
    if not FORMAT.search(path.name):
        return "json_document" if JSON_DOCUMENT.search(path.name) else "unknown_ending"
    return "not_a_file" if _is_special(path) else None


def _is_special(path: str | Path) -> bool:
    """Return True for a FIFO, socket or device: reading it might never end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # a dangling link: opening it will fail with a message that names it
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _find(key: str, paths: Any) -> Survey:
    given = [paths] if isinstance(paths, str | Path) else list(paths or [])
    if not given:
        raise UsageError(f"{key} is empty: name the files or folders with your text")
    found: dict[str, tuple[int, SourceFile]] = {}
    unread: dict[str, str] = {}
    for number, item in enumerate(given):
        own = _survey_item(key, os.path.expanduser(str(item)))
        for file in own.files:
            found.setdefault(os.path.realpath(file.path), (number, file))
        unread |= own.unread
    files = [file for _, file in found.values()]
    if len({file.name for file in files}) < len(files):  # two roots have files of the same name
        files = [replace(file, name=f"{number}/{file.name}") for number, file in found.values()]
    return Survey(files, unread)


def _survey_item(key: str, item: str) -> Survey:
    found = Survey()
    if os.path.isfile(item):
        if not FORMAT.search(item):
            raise UsageError(f"{key}={item}: the file ending is unknown; known: {ENDINGS}")
        path = Path(item)
        found.files.append(SourceFile(path, path.name, state=FileState.of(path)))
        return found
    if _is_special(item):
        raise UsageError(f"{key}={item}: this is a FIFO, socket or device; give files or folders")
    if os.path.isdir(item):
        _walk(key, item, Path(item), found)
    elif glob.has_magic(item):
        _match(key, item, found)
    else:
        raise UsageError(f"{key}={item}: there is no such file or folder")
    if not found.files:
        others = "; ".join(describe_unread(found.unread))
        raise UsageError(
            f"{key}={item}: there is nothing to read; {others or f'known endings: {ENDINGS}'}"
        )
    return found


def _match(key: str, pattern: str, found: Survey) -> None:
    parts = Path(pattern).parts
    fixed = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    root = Path(*parts[:fixed])
    for match in sorted(glob.glob(pattern, recursive=True)):
        if os.path.isdir(match):
            _walk(key, match, root, found)
        else:
            found.take(Path(match), root)


def _walk(key: str, folder: str, root: Path, found: Survey) -> None:
    def refuse(error: OSError) -> None:
        raise UsageError(f"{key}: the folder {error.filename} cannot be read ({error.strerror})")

    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True, onerror=refuse):
        if os.path.realpath(place) in seen:  # a link to a folder that was visited before
            folders.clear()
            continue
        seen.add(os.path.realpath(place))
        for name in folders:
            if name.startswith("."):
                found.take(Path(place, name), root)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            found.take(Path(place, name), root)


def plan_pieces(
    files: Sequence[SourceFile], whole: Callable[[SourceFile], bool], piece_bytes: int
) -> list[list[Part]]:
    """Divide files into work units: lists of parts with about `piece_bytes` bytes, in order.

    Large files are split, unless `whole(file)` is True; small files are grouped. The result depends
    on names and sizes only, not on the number of workers. A new file changes only the units next to
    it, so that the others stay in the cache: a file of at least a quarter unit shares its unit with
    no other file, and a unit of small files also ends after a file whose name's hash says so.
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
